"""`course challenge`: one recipe judged, and a line for each kind of bad one."""

import json

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from course_lib.cli import challenge
from course_lib.cli.app import app, main
from course_lib.cli.challenge import Judged, judge, recipe_of, run
from course_lib.compose.counting.account import Account
from course_lib.compose.recipe import Calibration, from_json
from course_lib.models import tiny_model


def ids(corpus, n, length, tokenizer, split, seed):
    return torch.randint(97, (n, length), generator=torch.Generator().manual_seed(len(corpus) + seed))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(challenge, "load_model", lambda name: (tiny_model(), None))
    monkeypatch.setattr(challenge.corpora, "windows", ids)
    monkeypatch.setattr(challenge, "LENGTH", 64)
    monkeypatch.setattr(Calibration, "text", lambda self, _: ids("text", 2, 40, None, "calibration", self.seed))


@pytest.fixture
def file(tmp_path):
    def write(recipe):
        (tmp_path / "recipe.json").write_text(recipe if isinstance(recipe, str) else json.dumps(recipe))
        return tmp_path / "recipe.json"

    return write


def told(path):
    console = Console(record=True, width=200)
    return run(path, 3, 40, 0, console), console.export_text()


def test_a_recipe_within_the_budget(tiny, file):
    recipe = {
        "weights": {"method": "SparseGPT", "pattern": 0.75, "bits": 3, "group": 64},
        "cache": {"policy": "StreamingLLM", "budget": 0.2},
    }
    code, text = told(file(recipe))
    assert code == 0
    assert "The budget is kept" in text
    assert "nats a token more" in text
    assert "weights, cache" in text


def test_the_dense_model_is_itself_and_above_the_budget(tiny, file):
    code, text = told(file({}))
    assert code == 1
    assert "100.0% of the bytes held, above 33.3%" in text
    assert "+0.000 ± 0.000 nats" in text


def account_of(held, read):
    return Account(stored=held - 10, by_part={}, cache=10, length=1024, read=read, multiply_adds=5)


def test_the_budget_by_hand():
    """Each limit belongs to it; the worse domain counts."""
    losses = {"wikipedia": (0.25, 0.01), "boolq": (0.5, 0.2)}
    dense = account_of(300, 200)
    kept = Judged(dense=dense, found=account_of(100, 100), losses=losses)
    assert (kept.held, kept.read, kept.within) == (1 / 3, 1 / 2, True)
    assert kept.worse == ("boolq", (0.5, 0.2))
    assert not Judged(dense=dense, found=account_of(101, 100), losses=losses).within
    assert not Judged(dense=dense, found=account_of(100, 101), losses=losses).within


def test_losses_are_paired_with_the_dense_models(tiny, tmp_path):
    judged = judge(from_json('{"weights": {"bits": 2}}'), tmp_path, 3, 40, 0, Console(quiet=True))
    assert set(judged.losses) == {"wikipedia", "boolq"}
    assert all(error > 0 for _, error in judged.losses.values())


def test_a_count_that_is_not_that_of_the_formulas_is_refused(tiny, file, monkeypatch):
    monkeypatch.setattr(challenge, "stored_bytes", lambda built: 1)
    with pytest.raises(ValueError, match="one of the two counts is wrong"):
        told(file({}))


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("{" * 40_000, "deep"),
        (" " * 100_000, "expected at most 65,536"),
        ("no json", "no JSON"),
        ({"weights": {"bits": 1}}, "one of 2, 3, 4, 8"),
        ({"cache": {"policy": "H2O"}, "attention": {"rule": "FlexPrefill"}}, "Leave the other out"),
        ({"prompt": {"file": "mine.safetensors"}}, "not there"),
    ],
)
def test_a_bad_recipe_is_one_line(tiny, file, recipe, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["course", "challenge", str(file(recipe))])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="which is no file"):
        recipe_of(tmp_path / "none.json")
    assert "--windows" in CliRunner().invoke(app, ["challenge", "--help"], env={"COLUMNS": "120"}).output
