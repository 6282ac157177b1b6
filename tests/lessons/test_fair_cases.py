"""What lessons 05, 06 and 09 ask of an answer is said where students read it: dtypes, large inputs, and no solution."""

import re
from pathlib import Path

import pytest
import torch

from course_lib.checking.known import drawn
from course_lib.grading import engine
from course_lib.workbook.catalogue import all_exercises, find

ROOT = Path(__file__).parents[2]
OURS = [e for e in all_exercises() if e.id.split(".")[0] in ("minitron", "moe", "dejavu")]
LARGE = ("minitron.distil", "moe.gate", "moe.top1", "moe.jacobs", "dejavu.loss")
FOLDED = {  # of each answer that a cell below its check writes out: a piece of it
    "minitron.norm": r"w' = w \sqrt{D/d}",
    "minitron.taylor": r"|\sum_i w_i g_i|$ and $\sum_i |w_i g_i|",
}


@pytest.mark.parametrize("exercise", OURS, ids=lambda e: e.id)
def test_floating_point_inputs_have_the_default_dtype(exercise):
    """No text mentions another, and an answer that makes tensors of its own fails on a mixture."""
    visible, hidden = engine.draw(exercise, "somebody", 0)
    dtypes = {
        value.dtype
        for case in (*drawn(exercise, 0).cases, *visible, *hidden)
        for value in case.arguments
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    assert dtypes <= {torch.float32}


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
