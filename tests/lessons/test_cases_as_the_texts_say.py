"""Cases keep what the exercises' texts promise, on several seeds; and a text says what an answer needs, but not how."""

import re
from pathlib import Path

import pytest
import torch

from course_lib.grading import engine
from course_lib.workbook.catalogue import find

ROOT = Path(__file__).parents[2]
SEEDS = range(4)
LARGE = ("minitron.distil", "moe.gate", "moe.top1", "moe.jacobs", "dejavu.loss")
FOLDED = {  # of each answer that a cell below its check writes out: a piece of it
    "minitron.norm": r"w' = w \sqrt{D/d}",
    "minitron.taylor": r"|\sum_i w_i g_i|$ and $\sum_i |w_i g_i|",
}


def cases(exercise):
    for seed in SEEDS:
        visible, hidden = engine.draw(find(exercise), "somebody", seed)
        yield from visible + hidden


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


@pytest.mark.parametrize("exercise", LARGE)
def test_the_last_hint_speaks_of_large_inputs_where_a_case_has_some(exercise):
    assert re.search(r"may be (large|far)", find(exercise).hints[-1])


@pytest.mark.parametrize(("exercise", "answer"), FOLDED.items())
def test_an_answer_below_its_check_is_folded(exercise, answer):
    below = (ROOT / "solutions/05_minitron.py").read_text(encoding="utf-8").partition(f'check("{exercise}"')[2]
    folded = re.findall(r"<details>.*?</details>", below, re.DOTALL)
    assert [answer in text for text in folded].count(True) == below.count(answer) == 1


def test_no_label_after_the_check_of_taylor_gives_the_answer():
    below = (ROOT / "solutions/05_minitron.py").read_text(encoding="utf-8").partition('check("minitron.taylor"')[2]
    assert "Σ w g" not in below
    assert "Σ |w g|" not in below
