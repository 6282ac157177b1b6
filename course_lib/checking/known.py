"""Results on the cases of an exercise that no answer changes: right values, and those of named mistakes and trivial
answers. Each is computed when first needed, and once for all answers that are judged on the same cases.
"""

import copy
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import torch

from course_lib.checking import trivial
from course_lib.checking.call import Outcome, Recorded, call
from course_lib.checking.compare import plain, short
from course_lib.checking.exercise import Case, Exercise


def difference(exercise: Exercise, case: Case, outcome: Outcome, expected: Any) -> str | None:
    """None when the outcome is the expected value, else in words what is wrong with it."""
    if outcome.error:
        return outcome.error
    if outcome.value is None and expected is not None:
        return "it returned None: is there a `return`?"
    try:
        return exercise.agree(outcome.value, expected, case)
    except Exception:  # a comparison written for tensors may trip over whatever a student returns
        return f"got {short(outcome.value)}, expected {short(expected)}"


class Known:
    """Cases of an exercise, with what is known of them."""

    def __init__(self, exercise: Exercise, cases: list[Case]) -> None:
        self.exercise, self.cases = exercise, cases
        self._outcomes: dict[tuple[int, int], Outcome] = {}  # by the identity of a function, which the exercise holds
        self._ways: dict[int, list[str]] = {}

    @cached_property
    def expected(self) -> list:
        """The right value of every case."""
        reference = self.exercise.reference
        if isinstance(reference, Recorded):
            return [outcome.value for outcome in reference.outcomes[: len(self.cases)]]
        return [plain(reference(*copy.deepcopy(case.arguments))) for case in self.cases]

    def outcome(self, function: Callable | Recorded, at: int) -> Outcome:
        """Get the outcome of a function of the exercise on one case: call it, or look up the recorded outcome."""
        if isinstance(function, Recorded):
            return function.outcomes[at]
        key = id(function), at
        if key not in self._outcomes:
            self._outcomes[key] = call(function, self.cases[at].arguments)
        return self._outcomes[key]

    @cached_property
    def _by_heart(self) -> set[int]:
        return trivial.by_heart(self.exercise, self.cases)

    def ways(self, which: list[int]) -> tuple[str, ...]:
        """By what some of the cases can all be had without the idea; nothing when one cannot."""
        agrees = partial(difference, self.exercise)
        for at in which:
            if at not in self._ways:
                found = trivial.ways_to(self.exercise, self.cases, self.expected, at, self._by_heart, agrees)
                self._ways[at] = found
            if not self._ways[at]:
                return ()
        return trivial.fewest({at: self._ways[at] for at in which})


@lru_cache(maxsize=8)
def drawn(exercise: Exercise, seed: int) -> Known:
    """The cases that a seed draws. Of the newest they are kept: a student checks one answer again and again."""
    return Known(exercise, exercise.cases(torch.Generator().manual_seed(seed)))
