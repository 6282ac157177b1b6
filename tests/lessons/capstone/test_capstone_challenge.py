"""Recipes that are tried in the notebook: one row each, whatever they hold; the figure; and the folder to hand in."""

import json

import pytest
import torch
from sharp_model import calibration, sharp_model, texts_of
from transformers import PreTrainedTokenizerBase

from course_lib.compose.recipe import Calibration, from_json
from course_lib.lessons.capstone import challenge, plots, tables
from course_lib.lessons.capstone.challenge import hand_in, try_recipes
from course_lib.prompts.soft import SoftPrompt, fingerprint

RECIPES = {
    "8 bits": {"weights": {"bits": 8}},
    "leaner": '{"weights": {"method": "Magnitude", "pattern": 0.75, "bits": 2}, "cache": {"policy": "Window"}}',
    "wrong": {"weights": {"bits": 5}},
    "no recipe": "bits: 5",
}


class Nothing(PreTrainedTokenizerBase):
    """A tokenizer that nobody asks anything."""

    def __init__(self):
        pass


@pytest.fixture(scope="module")
def tries():
    model = sharp_model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(challenge, "texts", lambda tokenizer, n, length: texts_of(model, n))
        patch.setattr(Calibration, "text", calibration)
        return try_recipes(RECIPES, model, Nothing())


def test_each_recipe_has_a_row(tries):
    assert [each.name for each in tries] == list(RECIPES)
    assert [bool(each.problem) for each in tries] == [False, False, True, True]
    assert "one of 2, 3, 4, 8" in tries[2].problem
    assert tries[1].loss > tries[0].loss
    assert tries[0].held > tries[1].held
    assert not tries[2].is_within
    assert all(len(each.losses) == 2 for each in tries[:2])


def test_the_table(tries):
    table = tables.tries(tries)
    assert list(table.frame["recipe"]) == list(RECIPES)
    assert list(table.frame["held"][:2]) == [tries[0].held, tries[1].held]
    assert "expected one of 2, 3, 4, 8" in table.frame["budget"][2]
    assert [each in ("kept", "exceeded") for each in table.frame["budget"]] == [True, True, False, False]
    assert list(table.frame["budget"][:2]) == ["kept" if each.is_within else "exceeded" for each in tries[:2]]
    assert max(map(len, str(table).splitlines())) <= 100


def test_the_figure(tries):
    fig = plots.tries(tries)
    for axes, which, most in zip(fig.axes, ("held", "read"), (1 / 3, 1 / 4), strict=True):
        shown = [tuple(line.get_xydata()[0]) for line in axes.lines[:-1]]
        assert shown == [(100 * getattr(each, which), each.loss) for each in tries[:2]]
        n = sum(getattr(each, which) <= most for each in tries[:2])
        assert axes.get_title(loc="left").startswith(f"{n} of 4 stay within")


def test_one_recipe_alone_is_drawn_on_the_scale_of_eight(tries):
    for axes in plots.tries(tries[:1]).axes:
        assert axes.get_xlim()[0] == 0
        assert axes.get_xlim()[1] > 100
        assert axes.get_ylim()[1] - axes.get_ylim()[0] > 0.5


def test_no_more_than_eight():
    with pytest.raises(ValueError, match="got 9 recipes; expected at most 8"):
        try_recipes({str(n): {} for n in range(9)}, sharp_model(), Nothing())


def test_what_is_handed_in_is_a_recipe_and_nothing_is_lost(tmp_path, capsys):
    path = hand_in({"weights": {"bits": 4}}, tmp_path / "mine")
    assert f"course challenge {path}" in capsys.readouterr().out
    hand_in({"weights": {"bits": 4}}, tmp_path / "mine")  # the same again
    hand_in({"weights": {"bits": 3}}, tmp_path / "mine")
    hand_in('{"weights": {"bits": 2}}', tmp_path / "mine")
    assert sorted(each.name for each in path.parent.iterdir()) == ["recipe.json", "recipe.json.1", "recipe.json.2"]
    assert [
        json.loads((path.parent / f"recipe.json{end}").read_text())["weights"]["bits"] for end in ("", ".1", ".2")
    ] == [2, 4, 3]
    with pytest.raises(ValueError, match="one of 2, 3, 4, 8"):
        hand_in({"weights": {"bits": 5}}, tmp_path / "mine")
    assert json.loads(path.read_text()) == {"weights": {"bits": 2}}


def test_a_prompt_goes_with_the_recipe_that_names_it(tmp_path):
    prompt = SoftPrompt(vectors=torch.zeros(2, 48), table=fingerprint(sharp_model()))
    with pytest.raises(ValueError, match="got a prompt for a recipe without one"):
        hand_in({}, tmp_path, prompt)
    with pytest.raises(ValueError, match=r"which is not in .*expected prompt="):
        hand_in({"prompt": {"file": "p.safetensors"}}, tmp_path)
    path = hand_in({"prompt": {"file": "p.safetensors"}}, tmp_path, prompt)
    assert from_json(path.read_text()).part("prompt").path_in(tmp_path).name == "p.safetensors"
