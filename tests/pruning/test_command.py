"""`course prune` from end to end on a tiny checkpoint, and what it refuses."""

import pytest
import torch

from course_lib import corpora
from course_lib.models import blocks, linears, load_model, tiny_model, weight_of
from course_lib.pruning import command
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import NofM, Unstructured, sparsity_of


@pytest.fixture
def checkpoint(tmp_path, tiny_tokenizer, monkeypatch):
    tiny_model(5).save_pretrained(tmp_path / "in")
    tiny_tokenizer.save_pretrained(tmp_path / "in")

    def windows(corpus, n, length, tokenizer, split, seed):
        return torch.randint(97, (n, length), generator=torch.Generator().manual_seed(seed))

    monkeypatch.setattr(corpora, "windows", windows)
    return tmp_path / "in"


def test_prunes_saves_and_loads_again(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert command.run(str(checkpoint), out, "wanda", "2:4", samples=2, length=16, seed=0) == 0
    model, tokenizer = load_model(str(out), device="cpu")
    assert all(sparsity_of(weight_of(m)) == 0.5 for b in blocks(model) for m in linears(b).values())
    assert tokenizer("a b").input_ids
    said = capsys.readouterr().out
    assert "50.0 %" in said
    assert "perplexity" in said


def test_never_writes_into_a_folder_that_holds_something(checkpoint, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="mine is there already and not an empty folder; nothing is overwritten"):
        command.run(str(checkpoint), tmp_path / "mine", "wanda", "0.5", 1, 16, 0)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_names():
    assert command.method_named("WANDA") is Wanda
    assert command.method_named("magnitude") is Magnitude
    with pytest.raises(ValueError, match="got method 'sgpt'; expected one of .*magnitude.*wanda"):
        command.method_named("sgpt")
    assert command.pattern_named("2:4") == NofM(2, 4)
    assert command.pattern_named("0.3") == Unstructured(0.3)
    for wrong in ("4:2", "1.5", "half", "2:4:8"):
        with pytest.raises(ValueError, match=f"got pattern '{wrong}'"):
            command.pattern_named(wrong)
