"""`course challenge`: one recipe judged, and a line for each kind of bad one."""

import json

import pytest
from rich.console import Console
from sharp_model import calibration, texts_of
from typer.testing import CliRunner

from course_lib.cli import challenge
from course_lib.cli.app import app, main
from course_lib.cli.challenge import recipe_of, run
from course_lib.compose.challenge import judge as judging
from course_lib.compose.challenge.budget import BUDGET, Budget
from course_lib.compose.evaluate import continued_losses
from course_lib.compose.recipe import Calibration
from course_lib.models import tiny_model


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    model = tiny_model()
    monkeypatch.setattr(challenge, "load_model", lambda name: (model, None))
    monkeypatch.setattr(challenge, "texts", lambda tokenizer, n, length, seed: texts_of(model, n, length, seed))
    monkeypatch.setattr(challenge, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(Calibration, "text", calibration)


@pytest.fixture
def file(tmp_path):
    def write(recipe):
        (tmp_path / "recipe.json").write_text(recipe if isinstance(recipe, str) else json.dumps(recipe))
        return tmp_path / "recipe.json"

    return write


def told(path, budget=BUDGET):
    console = Console(record=True, width=200)
    return run(path, 3, 64, 0, budget, console), console.export_text()


def test_a_recipe_within_the_budget(tiny, file):
    recipe = {
        "weights": {"method": "SparseGPT", "pattern": 0.75, "bits": 3, "group": 64},
        "cache": {"policy": "StreamingLLM", "budget": 0.2},
    }
    code, text = told(file(recipe), Budget(held=1 / 2, read=1 / 2))  # of a model this small a third is too little
    assert code == 0
    assert "The recipe is within the budget" in text
    assert "loss increase, nats per token" in text
    assert "weights, cache" in text


def test_the_dense_model_is_itself_and_above_the_budget(tiny, file):
    code, text = told(file({}))
    assert code == 1
    assert "100.0% of the bytes stored, above 33.3%" in text
    assert "+0.000 ± 0.000 nats" in text


def test_a_budget_of_ones_own_and_one_that_nobody_can_meet(tiny, file):
    code, text = told(file({}), Budget(held=1.0, read=1.0))
    assert (code, "The recipe is within the budget" in text) == (0, True)
    with pytest.raises(ValueError, match="which the smallest recipe needs"):
        told(file({}), Budget(held=0.001))


def test_ctrl_c_leaves_nothing_half_written_and_the_same_command_goes_on(tiny, file, monkeypatch, tmp_path):
    path, reads = file({"weights": {"bits": 3}}), []

    def interrupted(built, windows):
        reads.append(len(windows))
        if len(reads) == 4:
            raise KeyboardInterrupt
        return continued_losses(built, windows)

    monkeypatch.setattr(judging, "continued_losses", interrupted)
    code, text = told(path)
    assert code == challenge.STOPPED
    assert "the same command continues from there" in text
    assert [each.name for each in tmp_path.iterdir() if each.name != "cache"] == ["recipe.json"]
    code, text = told(path)
    assert len(reads) == 5  # the one that was interrupted; three were known
    assert "loss increase, nats per token" in text
    assert told(path) == (
        code,
        text.replace("building: prune, round, fit\nreading 3 × 64 tokens: another domain\n", ""),
    )


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("{" * 40_000, "deep"),
        (" " * 100_000, "expected at most 65,536"),
        ("no json", "not JSON"),
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
    with pytest.raises(ValueError, match="which is not a file"):
        recipe_of(tmp_path / "none.json")
    assert "--windows" in CliRunner().invoke(app, ["challenge", "--help"], env={"COLUMNS": "120"}).output
