"""No small change to a right answer passes all cases of its exercise.

A machine changes right answers, one step at a time (helpers/mutants.py). A changed answer that all cases accept, though
some input shows that it is wrong (helpers/probes.py), is a gap: the exercise lacks a case, and `check` tells a student
who made that slip that everything is right.
"""

import dataclasses

import pytest
import torch
from surviving import Tried, gaps

from course_lib.grading import hidden_cases
from course_lib.workbook.catalogue import all_exercises, find

# {exercise: {the change, as printed: why the text of the exercise leaves that free}}
FREE: dict[str, dict[str, str]] = {
    "minitron.distil": {"0 -> 1": "tokens are counted at one entry of the vocabulary; no vocabulary has a single one"},
}


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda e: e.id)
def test_no_changed_answer_survives(exercise):
    found = [gap for gap in gaps(exercise) if gap.mutant.change not in FREE.get(exercise.id, {})]
    advice = "All cases accept these wrong answers. Add or extend a case, or say in FREE why they are right:"
    assert not found, "\n\n".join([advice, *map(str, found)])


def test_what_is_free_belongs_to_an_exercise():
    assert FREE.keys() <= {exercise.id for exercise in all_exercises()}
    assert all(reason for reasons in FREE.values() for reason in reasons.values())


@pytest.mark.parametrize(
    ("exercise", "left_out", "change"),
    [
        ("sparsegpt.hessian", ("inputs", "one token"), "diagonal - 0"),
        ("patterns.columns", ("a square weight",), "transposed if square"),
        ("start.speedup", ("exactly at the limit",), "left > 0 -> left >= 0"),
    ],
)
def test_a_gap_is_found_where_cases_are_left_out(exercise, left_out, change, monkeypatch):
    whole = find(exercise)

    def without(cases):
        return [case for case in cases if not any(words in case.name for words in left_out)]

    monkeypatch.setattr(
        "surviving.hidden_cases", lambda e, generator: without(hidden_cases.hidden_cases(whole, generator))
    )
    incomplete = dataclasses.replace(whole, cases=lambda generator: without(whole.cases(generator)))
    found = list(gaps(incomplete))
    assert any(change in gap.mutant.change for gap in found), [gap.mutant.change for gap in found]
    assert all(exercise in str(gap) and gap.mutant.where in str(gap) and "argument 0 = " in str(gap) for gap in found)


def test_probes_keep_what_all_cases_have_in_common():
    tried = Tried(find("sparsegpt.factor"))
    assert len(tried.probes) > 10
    assert all(torch.allclose(*(x, x.T), rtol=1e-3) for probe, _ in tried.probes for x in probe.arguments)
    masked = Tried(find("sinks.share"))
    assert all(not probe.arguments[0].triu(1).any() for probe, _ in masked.probes), "nothing of what comes later"
