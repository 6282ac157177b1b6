"""Recipes: what is read, and that everything else is refused in one line that says where."""

import json
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import discover
from course_lib.compose import parts
from course_lib.compose.part import Part
from course_lib.compose.parts.weights import Weights
from course_lib.compose.recipe import PARTS, Recipe, from_json

WHOLE = {
    "weights": {"method": "Wanda", "pattern": "2:4", "bits": 3, "group": 64},
    "cache": {"policy": "SnapKV", "budget": 0.2, "recent": 16, "bits": 4, "settings": {"kernel": 7}},
    "neurons": {"selector": "LowRank", "density": 0.3, "settings": {"rank": 8}},
    "prompt": {"file": "mine.safetensors"},
    "calibration": {"windows": 8},
}


def test_a_recipe_comes_back_from_its_own_json():
    recipe = from_json(json.dumps(WHOLE))
    assert [part.name for part in recipe.parts] == ["weights", "neurons", "cache", "prompt"]
    assert (recipe.part("cache").eviction.kernel, recipe.part("attention")) == (7, None)
    assert json.loads(recipe.as_json()) == WHOLE
    assert from_json(recipe.as_json()) == recipe
    assert from_json("{}") == Recipe()


def test_a_part_dropped_into_the_folder_is_found(tmp_path, monkeypatch):
    """One file, and no list to edit."""
    (tmp_path / "dropped.py").write_text(
        "from course_lib.compose.part import Part\n\n\nclass Dropped(Part):\n    name, place = 'dropped', 9\n\n"
        "    def apply(self, making, ground):\n        return making\n\n"
        "    def in_words(self):\n        return 'A part that was dropped in.'\n"
    )
    monkeypatch.setattr(parts, "__path__", [*parts.__path__, str(tmp_path)])
    found = {kind.name for kind in discover.subclasses(parts, Part)}
    assert found - set(PARTS) == {"dropped"}
    assert parts.dropped.Dropped().in_words() == "A part that was dropped in."
    sys.modules.pop(f"{parts.__name__}.dropped")
    del parts.dropped


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "got a recipe that is a list;"),
        ("null", "got a recipe that is null;"),
        ("true", "got a recipe that is true or false;"),
        ("3", "got a recipe that is a number;"),
        ("0.5", "got a recipe that is a number;"),
        ('"Wanda"', "got a recipe that is a text;"),
        ("[" * 10_000, "10000 deep"),
        ('{"a":' * 50_000, "expected at most 65,536"),
        (" " * 70_000, "expected at most 65,536"),
        (b"\xff{}", "not UTF-8"),
        ('{"weights": {"bits": 4}, "weights": {"bits": 2}}', "'weights' twice"),
        ('{"weights": {"bits": 4, "bits": 2}}', "'bits' twice"),
        ('{"neurons": {"selector": "CATS", "density": NaN}}', "NaN"),
        ('{"neurons": {"selector": "CATS", "density": -Infinity}}', "Infinity"),
        ('{"neurons": {"selector": "CATS", "density": 1e999}}', "beyond what a float holds"),
        ('{"calibration": {"seed": %s}}' % ("9" * 5000), "5000 digits"),
        ('{"wights": {}}', "expected one of embedding, weights"),
        ('{"embedding": {}}', "without 'bits'"),
        ('{"embedding": {"bits": 1}}', "one of 2, 3, 4, 8"),
        ('{"weights": 3}', "expected an object"),
        ('{"weights": {"method": "Wanda", "code": "import os"}}', "'code' in weights"),
        ('{"weights": {}}', "neither a method nor bits"),
        ('{"weights": {"method": "Sorcery"}}', "Magnitude, Refit"),
        ('{"weights": {"method": "Wanda", "pattern": "2-4"}}', "n of m"),
        ('{"weights": {"method": "Wanda", "pattern": "4:4"}}', "n < m"),
        ('{"weights": {"method": "Wanda", "pattern": 1.0}}', "up to 0.95"),
        ('{"weights": {"method": "Wanda", "pattern": true}}', "a number or a name"),
        ('{"weights": {"bits": 5}}', "one of 2, 3, 4, 8"),
        ('{"weights": {"bits": 4.0}}', "a whole number or null"),
        ('{"weights": {"bits": 4, "group": 1}}', "16 columns or more"),
        ('{"weights": {"bits": 4, "rounding": "up"}}', "gptq, nearest"),
        ('{"weights": {"method": "Wanda", "allocation": "Mine"}}', "Uniform"),
        ('{"weights": {"method": "Wanda", "pattern": "2:4", "allocation": "OWL"}}', "leave the allocation out"),
        ('{"weights": {"method": "Wanda", "allocation": "OWL", "by_block": [0.5]}}', "one of them"),
        ('{"weights": {"method": "Wanda", "by_block": [0.5, 2]}}', "expected 0.0 to 0.95"),
        ('{"weights": {"method": "Wanda", "by_block": [0.5, "x"]}}', "weights.by_block[1]"),
        ('{"weights": {"method": "Wanda", "pattern": 0.7, "by_block": [0.5]}}', "pattern = 0.7 and by_block"),
        ('{"weights": {"method": "Wanda", "pattern": "2:4", "by_block": [0.5]}}', "pattern = '2:4' and by_block"),
        ('{"weights": {"bits": 4, "allocation": "OWL"}}', "without a method"),
        ('{"weights": {"bits": 4, "pattern": "2:4"}}', "without a method"),
        ('{"weights": {"method": "Wanda", "group": 64}}', "without bits"),
        ('{"weights": {"method": "SparseGPT", "bits": 4, "rounding": "nearest"}}', "rounds as it prunes"),
        ('{"cache": {"policy": "H2O", "residual": 8}}', "without bits"),
        ('{"cache": {"policy": "Full", "budget": 64}}', "got budget for the policy Full, which keeps all"),
        ('{"cache": {"budget": 1.0, "bits": 4}}', "got budget for the policy Full"),
        ('{"cache": {"policy": "Full", "sinks": 4, "recent": 0}}', "got sinks and recent for the policy Full"),
        ('{"cache": {"policy": "Full", "by_layer": [0.5]}}', "got by_layer for the policy Full"),
        ('{"cache": {"policy": "Full", "settings": {"dropped": 0.5}}}', "got settings for the policy Full"),
        ('{"neurons": {}}', "without 'selector'"),
        ('{"neurons": {"selector": "Oracle"}}', "expected one of CATS"),
        ('{"neurons": {"selector": "DejaVu"}}', "expected one of CATS"),
        ('{"neurons": {"selector": "CATS", "density": 0}}', "above 0"),
        ('{"neurons": {"selector": "LowRank", "settings": {"rank": 1000000}}}', "rank = 1000000; expected 0 to 1024"),
        ('{"neurons": {"selector": "LowRank", "settings": {"rank": 2000}}}', "rank = 2000; expected 0 to 1024"),
        ('{"cache": {"policy": "EMS", "settings": {"window": 5000}}}', "window = 5000; expected -4096 to 4096"),
        ('{"neurons": {"selector": "LowRank", "settings": {"rank": "8"}}}', "settings.rank"),
        ('{"neurons": {"selector": "LowRank", "settings": {"factors": 8}}}', "'factors'"),
        ('{"neurons": {"selector": "LowRank", "settings": {"density": 0.5}}}', "'density'"),
        ('{"cache": {"policy": "Everything"}}', "expected one of D2O"),
        ('{"cache": {"policy": "H2O", "budget": 0}}', "budget of 0"),
        ('{"cache": {"policy": "H2O", "budget": 16}}', "32 recent tokens in a budget of 16"),
        ('{"cache": {"policy": "H2O", "budget": 999999}}', "expected 0 to 8192"),
        ('{"cache": {"policy": "H2O", "by_layer": [0]}}', "by_layer"),
        ('{"cache": {"bits": 3}}', "4 or 8"),
        ('{"cache": {"positions": "random"}}', "rolling"),
        ('{"attention": {"rule": "FlexPrefill", "settings": {"gamma": 2}}}', "gamma"),
        ('{"attention": {"rule": "FlexPrefill"}, "cache": {"policy": "H2O"}}', "attention and cache in one recipe"),
        ('{"prompt": {"file": "../secret.safetensors"}}', "without a folder"),
        ('{"prompt": {"file": "/etc/passwd"}}', "without a folder"),
        ('{"prompt": {"file": "mine.pt"}}', "without a folder"),
        ('{"calibration": {"windows": 1000000}}', "expected 1 to 128"),
        ('{"calibration": {"windows": 128, "length": 2048}}', "16384"),
        ('{"calibration": {"text": "evaluation"}}', "'text' in calibration"),
    ],
)
def test_what_is_no_recipe_is_refused_in_a_line(text, said):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        from_json(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*PARTS, "method", "bits", "policy", "settings", "budget", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_whatever_comes_is_a_recipe_or_a_value_error(data):
    try:
        recipe = from_json(json.dumps(data))
    except ValueError:
        return
    assert from_json(recipe.as_json()) == recipe


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_so_are_bytes(data):
    try:
        from_json(data)
    except ValueError:
        return
    assert json.loads(data) == {}


def test_depth_is_counted_outside_of_strings():
    with pytest.raises(ValueError, match="wrong"):
        from_json('{"wrong": "[[[[[[[[[[[\\"[[["}')


def test_parts_in_code_are_held_to_the_same():
    with pytest.raises(ValueError, match="each once"):
        Recipe(parts=(Weights(bits=4), Weights(bits=2)))
