"""Shares, pairs, orders and fronts from made-up tables whose answers are known."""

import pytest

from course_lib.compose.shares import subsets
from course_lib.lessons.capstone.estimates import (
    added_last,
    alone,
    beaten_by,
    interactions,
    last_minus_alone,
    order_gain,
    pareto_set,
    shapley_values,
)
from course_lib.lessons.capstone.experiments.recipes import FIVE
from course_lib.lessons.common.verdicts import verdict

COST = dict(zip(FIVE, (1.0, 2.0, 0.0, 0.5, -0.25), strict=True))
NOISE = (0.0, 0.1, -0.1, 0.05)  # of windows


def loss(chosen, window):
    """Costs add up, but for pruning and rounding, which cost a whole nat more together, in every window a little else;
    a prompt and a cache help each other; of pruning and the cache nothing can be told."""
    extra = (1 + NOISE[window]) * ({"prune", "round"} <= chosen) - (0.5 + NOISE[window]) * (
        {"cache", "prompt"} <= chosen
    )
    extra += NOISE[window] * ({"prune", "cache"} <= chosen)
    return 3 + NOISE[window] + sum(COST[name] for name in chosen) + extra


RESULT = {
    "subsets": [{"parts": sorted(s), "text": [loss(s, window) for window in range(4)]} for s in subsets(FIVE)],
    "orders": [
        {"order": "first", "text": [2.0, 3.0, 4.0]},
        {"order": "worse", "text": [2.5, 3.4, 4.6]},
        {"order": "unclear", "text": [1.0, 3.4, 4.6]},
    ],
    "grid": [
        {"name": "dense", "stored": 90, "cache": 10, "read": 100, "text": [3.0, 4.0]},
        {"name": "half", "stored": 45, "cache": 5, "read": 60, "text": [3.1, 4.1]},
        {"name": "beaten", "stored": 70, "cache": 5, "read": 50, "text": [3.2, 4.2]},
    ],
}


def test_costs_alone_and_shares():
    assert {name: pytest.approx(effect.value) for name, effect in alone(RESULT, "text").items()} == COST
    found = shapley_values(RESULT, "text")
    # Half of what a pair costs more goes to each of its two.
    extra = 1.0125
    assert found["round"].value == pytest.approx(2 + extra / 2)
    assert (found["neurons"].value, found["neurons"].error) == pytest.approx((0.5, 0.0))
    assert sum(effect.value for effect in found.values()) == pytest.approx(3.25 + extra - 0.5125 + 0.0125)
    assert found["round"].error > 0


def test_on_top_of_all_others():
    assert added_last(RESULT, "text")["round"].value == pytest.approx(2 + 1.0125)
    assert added_last(RESULT, "text")["neurons"].value == pytest.approx(0.5)
    found = last_minus_alone(RESULT, "text")
    assert found["round"].value == pytest.approx(1.0125)
    assert found["prompt"].fails
    assert found["neurons"].value == pytest.approx(0)


def test_pairs_that_hurt_help_or_do_neither():
    found = interactions(RESULT, "text")
    assert len(found) == 10
    assert verdict(found["prune", "round"]) == "holds"
    assert verdict(found["cache", "prompt"]) == "does not hold"
    assert verdict(found["prune", "cache"]).startswith("undecided")


def test_orders():
    assert verdict(order_gain(RESULT, "text", "first", "worse")) == "holds"
    assert verdict(order_gain(RESULT, "text", "worse", "first")) == "does not hold"
    assert verdict(order_gain(RESULT, "text", "first", "unclear")).startswith("undecided")


def test_fronts():
    assert [point.name for point in pareto_set(RESULT["grid"], "text")] == ["half", "dense"]
    assert [point.name for point in pareto_set(RESULT["grid"], "text", read=True)] == ["beaten", "half", "dense"]


def test_who_beats_a_recipe_of_fewer_windows():
    """On the windows that it has read; of one window the error is not known."""
    mine = {"name": "mine", "stored": 60, "cache": 0, "read": 60, "text": [3.0, 4.0]}
    assert beaten_by(mine, RESULT["grid"], "text") == []
    worse = mine | {"text": [3.5, 4.5]}
    assert beaten_by(worse, RESULT["grid"], "text") == ["half"]
    assert beaten_by(worse, RESULT["grid"], "text", read=True) == ["half", "beaten"]
    assert beaten_by(worse | {"text": [3.5]}, RESULT["grid"], "text") == []
