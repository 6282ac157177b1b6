"""The budget: what binds, what nobody can meet, and what the leanest recipe really holds."""

import json
from math import inf, nan

import pytest
from sharp_model import random_ids

from course_lib.compose.challenge.budget import BUDGET, LEANEST, Budget, smallest
from course_lib.compose.counting.account import account


@pytest.fixture(scope="module")
def behind():
    return random_ids(1, 64, 3)[0]


@pytest.fixture(scope="module")
def dense(made, behind):
    return account(made("{}"), behind)


def test_of_a_third_held_not_all_is_a_quarter_read():
    assert (BUDGET.held, BUDGET.read) == (1 / 3, 1 / 4)
    assert BUDGET.read < BUDGET.held  # nothing is read that is not held, so a larger one would never be felt


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, nan, inf])
@pytest.mark.parametrize("which", ["held", "read"])
def test_no_budget(share, which):
    with pytest.raises(ValueError, match=f"of the bytes {which}; expected a share above 0"):
        Budget(**{which: share})


def test_the_leanest_recipe_holds_what_the_formulas_say(made, behind, model, dense):
    """Rounding zeros some of the few weights that are left, on rows this short up to a tenth of the bytes."""
    found, least = account(made(json.dumps(LEANEST)), behind), smallest(model, dense)
    assert 0.85 * least.held <= found.held / dense.held <= least.held
    assert 0.85 * least.read <= found.read / dense.read <= least.read
    Budget(held=least.held, read=least.read).check(model, dense)


def test_a_budget_that_nobody_can_meet_names_the_smallest(model, dense):
    least = smallest(model, dense)
    for budget in (Budget(held=0.9 * least.held), Budget(read=0.9 * least.read)):
        with pytest.raises(ValueError, match=f"expected at least {least.held:.2%} and {least.read:.2%}"):
            budget.check(model, dense)


def test_what_a_token_skips_is_what_parts_the_two(made, behind, dense):
    """Chosen neurons hold no byte less and read fewer."""
    all_of_them, half = (
        account(made(json.dumps({"weights": {"bits": 4, "rounding": "nearest"}} | more)), behind)
        for more in ({}, {"neurons": {"selector": "Static", "density": 0.5}})
    )
    assert half.held >= all_of_them.held
    assert half.read < 0.95 * all_of_them.read
    assert all_of_them.read <= 1.02 * all_of_them.held  # beside the head a row of the table is read once more
