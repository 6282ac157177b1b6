"""`course prune` from end to end on a tiny checkpoint, and what it refuses."""

import json
import re

import pytest

from course_lib.cli import prune as command
from course_lib.models import blocks, linears, load_model, tiny_model, weight_of
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.stream import reader
from course_lib.sparsity.patterns import NofM, Unstructured, sparsity_of


def prune(model, out, method, pattern, **changed):
    """The command on two windows of 16 tokens."""
    settings = {"samples": 2, "length": 16, "seed": 0} | changed
    return command.run(model, out, method=method, pattern=pattern, **settings)


def test_prunes_saves_and_loads_again(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert prune(str(checkpoint), out, "WANDA", "2:4") == 0
    model, tokenizer = load_model(str(out), device="cpu")
    assert all(sparsity_of(weight_of(m)) == 0.5 for b in blocks(model) for m in linears(b).values())
    assert tokenizer("a b").input_ids
    said = capsys.readouterr().out
    assert "50.0 %" in said
    assert "Wanda 2:4" in said  # by its own name, whatever was typed
    assert "WANDA" not in said
    assert "perplexity" in said


def test_never_writes_into_a_folder_that_holds_something(checkpoint, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="mine is there already and not an empty folder; nothing is overwritten"):
        prune(str(checkpoint), tmp_path / "mine", "wanda", "0.5")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_allocation_and_no_evaluation(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert prune(str(checkpoint), out, "magnitude", "0.5", allocation="one-ranking", evaluation=False) == 0
    said = capsys.readouterr().out
    assert "perplexity" not in said
    model, _ = load_model(str(out), device="cpu")
    shares = [sparsity_of(weight_of(m)) for b in blocks(model) for m in linears(b).values()]
    assert len(set(shares)) > 3
    assert f"{100 * min(shares):.1f} % to {100 * max(shares):.1f} %" in said


def test_a_checkpoint_is_opened_once(checkpoint, tmp_path, monkeypatch):
    """Its header is read before the tokenizer, and then handed on: to the run, and to what asks whether it fits."""
    opened, places = [], reader.places
    monkeypatch.setattr(reader, "places", lambda path: opened.append(path.name) or places(path))
    assert prune(str(checkpoint), tmp_path / "out", "wanda", "0.5") == 0
    assert opened == ["model.safetensors"]


def test_a_sparsity_takes_the_usual_pattern_of_the_method(checkpoint, tmp_path):
    out = tmp_path / "out"
    assert prune(str(checkpoint), out, "sparsegpt", "0.3", evaluation=False) == 0
    assert "Unstructured(sparsity=0.3, per='layer'" in json.loads((out / "pruning.json").read_text())["method"]


def test_an_interrupted_run_says_that_it_goes_on_and_does(checkpoint, tmp_path, capsys, monkeypatch):
    def interrupted(self, weight, inputs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Wanda, "prune", interrupted)
        assert prune(str(checkpoint), tmp_path / "out", "wanda", "0.5") == 130
    assert "the same command continues from there" in " ".join(capsys.readouterr().out.split())
    assert prune(str(checkpoint), tmp_path / "out", "wanda", "0.5") == 0


def test_a_failure_in_the_middle_is_one_line_for_the_user(checkpoint, tmp_path, monkeypatch):
    def fails(self, weight, inputs):
        raise RuntimeError("no memory")

    monkeypatch.setattr(Wanda, "prune", fails)
    with pytest.raises(ValueError, match=r"stopped at blocks.0.self_attn.q_proj.*no memory.*give the same command"):
        prune(str(checkpoint), tmp_path / "out", "wanda", "0.5")


def test_a_device_map_goes_through_accelerate(checkpoint, tmp_path):
    pytest.importorskip("accelerate")
    assert prune(str(checkpoint), tmp_path / "out", "wanda", "0.5", device_map="auto") == 0
    model, _ = load_model(str(tmp_path / "out"), device="cpu")
    assert all(sparsity_of(weight_of(m)) == 0.5 for b in blocks(model) for m in linears(b).values())


def test_a_model_that_is_nowhere_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(command.hub, "reachable", lambda: False)
    with pytest.raises(ValueError, match="got the model name 'nope', which could not be loaded.*Use 'smollm2-135m'"):
        prune("nope", tmp_path / "out", "wanda", "0.5")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["./nofolder", "/no/folder", "models/of/mine", "~/model", "mine/", "no folder", "C:\\models\\llama"]
)
def test_a_folder_that_is_missing_is_called_that(tmp_path, name, monkeypatch):
    monkeypatch.setattr(command.hub, "reachable", lambda: pytest.fail("the hub was asked for a path"))
    with pytest.raises(ValueError, match=f"the folder {re.escape(name)} does not exist"):
        prune(name, tmp_path / "out", "wanda", "0.5")


def test_a_file_given_in_place_of_its_folder_is_called_that(checkpoint, tmp_path):
    with pytest.raises(ValueError, match=r"model.safetensors is a file; expected the folder that holds it"):
        prune(str(checkpoint / "model.safetensors"), tmp_path / "out", "wanda", "0.5")


def test_layers_that_are_ignored_are_counted_in_the_table(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert prune(str(checkpoint), out, "wanda", "2:4", ignore=["*.mlp.down_proj"]) == 0
    assert re.search(r"layers kept dense\W+2", capsys.readouterr().out)
    model, _ = load_model(str(out), device="cpu")
    shares = {name: sparsity_of(weight_of(m)) for b in blocks(model) for name, m in linears(b).items()}
    assert shares.pop("mlp.down_proj") == 0
    assert set(shares.values()) == {0.5}


def test_a_model_whose_perplexity_cannot_be_measured_is_saved_and_said_so(checkpoint, tmp_path, capsys, monkeypatch):
    config = json.loads((checkpoint / "config.json").read_text()) | {"final_logit_softcapping": 30.0}
    (checkpoint / "config.json").write_text(json.dumps(config))
    assert prune(str(checkpoint), tmp_path / "out", "wanda", "0.5") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Perplexity was not measured: got a LlamaForCausalLM with final_logit_softcapping 30" in said
    assert "Saved to" in said
    assert load_model(str(tmp_path / "out"), device="cpu")


def test_windows_longer_than_the_model_reads_say_which_length_to_give(checkpoint, tmp_path):
    with pytest.raises(ValueError, match=r"windows of at most 256 tokens.*With `course prune`, give --length 256\."):
        prune(str(checkpoint), tmp_path / "out", "wanda", "0.5", length=512)


def test_a_folder_without_a_tokenizer_is_one_line(tmp_path):
    tiny_model(5).save_pretrained(tmp_path / "in")
    with pytest.raises(
        ValueError, match=r"in has no tokenizer that loads \(Could.*\); .*tokenizer.save_pretrained.$"
    ) as e:
        prune(str(tmp_path / "in"), tmp_path / "out", "wanda", "0.5")
    assert len(str(e.value).splitlines()) == 1


def test_what_is_no_checkpoint_is_not_blamed_on_its_tokenizer(checkpoint, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no config.json; expected a folder as save_pretrained writes it"):
        prune(str(tmp_path / "empty"), tmp_path / "out", "wanda", "0.5")
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is no valid JSON"):
        prune(str(checkpoint), tmp_path / "out", "wanda", "0.5")


def test_a_place_where_no_folder_can_be_is_refused_before_anything_is_fetched(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="file/out lies below .*file, which is a file"):
        prune("no such model", tmp_path / "file" / "out", "wanda", "0.5")


def test_names():
    assert command.method_named("WANDA") is Wanda
    assert command.method_named("magnitude") is Magnitude
    with pytest.raises(ValueError, match="got method 'sgpt'; expected one of .*magnitude.*wanda"):
        command.method_named("sgpt")
    assert command.pattern_named("2:4") == NofM(2, 4)
    assert command.pattern_named("0.3") == Unstructured(0.3)
    assert command.pattern_named("0.3", Unstructured(0.5, per="layer")) == Unstructured(0.3, per="layer")
    assert command.pattern_named("2:4", Unstructured(0.5, per="layer")) == NofM(2, 4)
    assert command.pattern_named("0.3", NofM(2, 4)) == Unstructured(0.3)
    assert command.allocation_named("OWL") == OWL()
    with pytest.raises(ValueError, match="got allocation 'fair'; expected one of uniform, owl, one-ranking"):
        command.allocation_named("fair")
    for wrong in ("4:2", "1.5", "half", "2:4:8"):
        with pytest.raises(ValueError, match=f"got pattern '{wrong}'"):
            command.pattern_named(wrong)
