"""Cases keep what the exercises' texts promise: checked for visible and hidden ones, on several seeds."""

import pytest
import torch

from course_lib.grading import engine
from course_lib.workbook.catalogue import all_exercises, find

SEEDS = range(4)
LATER = ("kv", "sinks", "compress", "sparse_attention", "capstone")
ALL_STAY_FLOAT32 = [e.id for e in all_exercises() if e.id.split(".")[0] in LATER]


def cases(exercise):
    for seed in SEEDS:
        visible, hidden = engine.draw(find(exercise), "somebody", seed)
        yield from visible + hidden


@pytest.mark.parametrize("exercise", ALL_STAY_FLOAT32)
def test_numbers_come_in_float32(exercise):
    """So that torch.zeros(n) and torch.linspace(a, b, n), which are of that type, go with what is given."""
    for case in cases(exercise):
        given = [x for x in case.arguments if isinstance(x, torch.Tensor) and x.is_floating_point()]
        assert {x.dtype for x in given} <= {torch.float32}, case.name


def test_attention_in_scissorhands_is_never_negative_and_sums_to_one():
    for case in cases("kv.scissorhands"):
        weights = case.arguments[0]
        assert weights.min() >= 0, case.name
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]), msg=case.name)


def test_costs_of_steps_in_split_are_what_its_text_says():
    for case in cases("capstone.split"):
        sizes, losses, budget = case.arguments
        assert (sizes.diff(dim=1) >= 1).all(), case.name
        assert (losses.diff(dim=1) < 0).all(), case.name
        assert sizes[:, 0].sum() <= budget, case.name


def test_importance_in_recycle_never_sums_to_zero():
    for case in cases("sparse_attention.recycle"):
        assert (case.arguments[1] >= 0).all(), case.name
        assert case.arguments[1].sum() > 0, case.name


def test_keys_of_h2o_are_tied_somewhere():
    tied = [case for case in cases("kv.h2o_step") if len((case.arguments[0] + case.arguments[1])[0].unique()) < 4]
    assert tied, "without a tie a threshold on the score is let through"
