"""`course prune --shape` from end to end on a tiny checkpoint, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from course_lib.cli import cut as command
from course_lib.models import load_model
from course_lib.pruning.structured import distillation
from course_lib.pruning.structured.shape import Shape, shape_of


def cut(model, out, shape, **changed):
    """The command on two windows of 16 tokens."""
    return command.run(
        str(model),
        out,
        shape=shape,
        **{"score": "minitron", "samples": 2, "length": 16, "seed": 0, "steps": 0} | changed,
    )


def test_cuts_refits_distils_saves_and_answers(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert cut(checkpoint, out, "neurons=64, blocks=1,heads=4", steps=2, score="LLMPruner") == 0
    model, tokenizer = load_model(str(out), device="cpu")
    assert shape_of(model) == Shape(width=48, blocks=1, neurons=64, heads=4, groups=2)
    answer = model.generate(**tokenizer("a b", return_tensors="pt"), max_new_tokens=5, do_sample=False)
    assert answer.shape[1] > 2
    said = capsys.readouterr().out
    for row in ("dense", "cut by LLMPruner", "refit", "distilled, 2 steps", "perplexity"):
        assert row in said
    assert not (out / "unfinished").exists()


def test_width_is_cut_without_a_refit(checkpoint, tmp_path, capsys):
    assert cut(checkpoint, tmp_path / "out", "width=42") == 0
    assert "refit" not in capsys.readouterr().out
    assert load_model(str(tmp_path / "out"), device="cpu")[0].config.hidden_size == 42


def test_an_interrupted_run_goes_on(checkpoint, tmp_path, capsys, monkeypatch):
    out, step = tmp_path / "out", distillation._Run.step

    def interrupted(self, number):
        if number == 10:
            raise KeyboardInterrupt
        return step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(distillation._Run, "step", interrupted)
        assert cut(checkpoint, out, "neurons=64", steps=12) == 130
    assert "the same command continues" in capsys.readouterr().out
    assert [path.name for path in out.iterdir()] == ["unfinished"]
    assert cut(checkpoint, out, "neurons=64", steps=12) == 0
    assert cut(checkpoint, tmp_path / "whole", "neurons=64", steps=12) == 0
    one, other = (load_model(str(folder), device="cpu")[0] for folder in (out, tmp_path / "whole"))
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def saved_like(one, other):
    return [path.name for path in sorted(one.iterdir())] == [path.name for path in sorted(other.iterdir())] and all(
        path.read_bytes() == (other / path.name).read_bytes() for path in one.iterdir()
    )


@pytest.mark.parametrize("steps", [0, 1])
def test_an_interrupted_save_leaves_what_it_found(checkpoint, tmp_path, monkeypatch, steps):
    out = tmp_path / "out"

    def interrupted(self, folder, **others):
        (folder / "half").write_text("written")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedTokenizerFast, "save_pretrained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut(checkpoint, out, "neurons=64", steps=steps)
    left = [path.relative_to(out).as_posix() for path in out.rglob("*")]
    assert sorted(left) == (["unfinished", "unfinished/distillation.pt"] if steps else [])
    assert out.exists() == bool(steps)
    assert cut(checkpoint, out, "neurons=64", steps=steps) == 0
    assert cut(checkpoint, tmp_path / "whole", "neurons=64", steps=steps) == 0
    assert saved_like(out, tmp_path / "whole")


def test_a_model_whose_perplexity_cannot_be_measured_is_cut_all_the_same(checkpoint, tmp_path, capsys):
    config = json.loads((checkpoint / "config.json").read_text()) | {"final_logit_softcapping": 30.0}
    (checkpoint / "config.json").write_text(json.dumps(config))
    assert cut(checkpoint, tmp_path / "out", "neurons=64") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not measured" in said
    assert "Perplexity is not measured where the configuration changes logits (final_logit_softcapping)." in said


@pytest.mark.parametrize("n_moved", [0, 1, 3])
def test_a_save_that_is_killed_loads_nowhere_and_is_taken_up_again(checkpoint, tmp_path, monkeypatch, n_moved):
    out, replace, moved = tmp_path / "out", Path.replace, []

    def killed(self, target):
        if self.parent.name == "saved":
            moved.append(self.name)
            if len(moved) > n_moved:
                raise SystemExit(9)
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(SystemExit):
            cut(checkpoint, out, "neurons=64")
    assert len([path for path in out.iterdir() if path.is_file()]) == n_moved
    with pytest.raises(ValueError, match="could not be loaded"):
        load_model(str(out), device="cpu")
    assert cut(checkpoint, out, "neurons=64") == 0
    assert cut(checkpoint, tmp_path / "whole", "neurons=64") == 0
    assert saved_like(out, tmp_path / "whole")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("neurons=0", "expected a whole number"),
        ("neurons=101", "Pruning cannot add any"),
        ("neurons", "expected sizes such as"),
        ("hidden=4", "of width, blocks, neurons, heads, groups"),
        ("width=40", "Use 36"),
        ("heads=5", "groups of equal size"),
    ],
)
def test_shapes_that_cannot_be(checkpoint, tmp_path, shape, words):
    with pytest.raises(ValueError, match=words):
        cut(checkpoint, tmp_path / "out", shape)
    assert not (tmp_path / "out").exists()


def test_a_score_that_does_not_exist(checkpoint, tmp_path):
    with pytest.raises(ValueError, match="expected one of blockinfluence, llmpruner"):
        cut(checkpoint, tmp_path / "out", "neurons=64", score="best")


def test_never_writes_into_a_folder_that_holds_something(checkpoint, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="nothing is overwritten"):
        cut(checkpoint, tmp_path / "out", "neurons=64")
