"""Results on the cases of an exercise that do not depend on the answer: of the reference, of named mistakes and of
trivial answers. Each is computed when it is first needed, and once for all answers to the same cases.
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
    """Return None if the outcome is the expected value, otherwise a sentence on what is wrong."""
    if outcome.error:
        return outcome.error
    if outcome.value is None and expected is not None:
        return "it returned None: is there a `return`?"
    try:
        return exercise.agree(outcome.value, expected, case)
    except Exception:  # a comparison written for tensors may trip over whatever a student returns
        return f"got {short(outcome.value)}, expected {short(expected)}"


class Known:
    """The cases of an exercise with their known results."""

    def __init__(self, exercise: Exercise, cases: list[Case]) -> None:
        self.exercise, self.cases = exercise, cases
        self._outcomes: dict[tuple[int, int], Outcome] = {}  # by the identity of a function, which the exercise holds
        self._ways: dict[int, list[str]] = {}

    @cached_property
    def expected(self) -> list:
        """Compute the right value of every case."""
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
        """Return the answers without the idea that together get all these cases right; nothing if they miss a case."""
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
    """Return the cases of a seed. The newest are cached, because a student checks an exercise many times."""
    return Known(exercise, exercise.cases(torch.Generator().manual_seed(seed)))
