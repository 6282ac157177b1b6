"""An exercise with the cases of some seeds. Each function is called, and each value compared, once for all rules."""

import dataclasses
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from course_lib.checking import trivial
from course_lib.checking.call import Outcome
from course_lib.checking.exercise import Case, Exercise, Mistake
from course_lib.checking.judge import Verdict, conclude, judge
from course_lib.checking.known import Known, difference
from course_lib.grading.hidden_cases import hidden_cases

SEEDS = (0, 1, 2, 3, 4)  # 0 is that of `check`
N_FOR_MISTAKES = 3  # what all named mistakes give on every case takes longest
LARGE = 10**5  # entries of a tensor that is compared once for all rules


class Compared(Known):
    """As `Known`, with a comparison that remembers what it compared."""

    def __init__(self, exercise: Exercise, cases: list[Case]) -> None:
        super().__init__(with_memory(exercise), cases)
        self._by_heart = trivial.by_heart(exercise, cases)  # which keeps the exercise for good, but no memory


class Part(Known):
    """The first cases of a `Known`; outcomes and right values are those of the whole."""

    def __init__(self, whole: Known, n_cases: int) -> None:
        super().__init__(whole.exercise, whole.cases[:n_cases])
        self.whole, self.expected, self._by_heart = whole, whole.expected[:n_cases], whole._by_heart

    def outcome(self, function: Callable, at: int) -> Outcome:
        return self.whole.outcome(function, at)


class Unnamed(Part):
    """The same cases without named mistakes, for answers of which only the credit matters."""

    def __init__(self, whole: Known) -> None:
        super().__init__(whole, len(whole.cases))
        self.exercise = dataclasses.replace(self.exercise, mistakes=())

    def ways(self, which: list[int]) -> tuple[str, ...]:
        return self.whole.ways(which)


class Drawing:
    """The cases that a seed draws: those of `check`, then the hidden ones.

    `graded` knows all of them, `visible` those of `check`. Functions are told apart by their identity, so they have to
    live as long as the drawing.
    """

    def __init__(self, exercise: Exercise, seed: int) -> None:
        self.seed, (visible, self.hidden) = seed, draw(exercise, seed)
        self.graded = Compared(exercise, visible + self.hidden)
        self.visible = Part(self.graded, len(visible))
        self.unnamed = Unnamed(self.graded), Unnamed(self.visible)
        self._verdicts: dict[tuple[int, Known], Verdict] = {}

    def outcomes(self, function: Callable, known: Known | None = None) -> list[Outcome]:
        """What a function does on each case, of all for None."""
        return [self.graded.outcome(function, at) for at in range(len((known or self.graded).cases))]

    def verdict(self, function: Callable, known: Known) -> Verdict:
        """The verdict on a function, of `visible` or `graded`."""
        key = id(function), known
        if key not in self._verdicts:
            self._verdicts[key] = conclude(known, self.outcomes(function, known))
        return self._verdicts[key]

    def judged(self, function: Callable) -> Verdict:
        """The verdict of `check`: the function is called again."""
        with patch("course_lib.checking.judge.drawn", lambda exercise, seed: self.visible):
            return judge(self.visible.exercise, function, self.seed)

    def state(self, function: Callable) -> str:
        """What `check` says of a function, without a look at named mistakes."""
        return self.verdict(function, self.unnamed[1]).state

    def credits(self, outcomes: list[Outcome]) -> tuple[float, ...]:
        """The fraction of the points that outcomes earn: graded with the hidden cases, and without, as in nbgrader."""
        return tuple(conclude(known, outcomes[: len(known.cases)]).share for known in self.unnamed)

    def differences(self, outcomes: list[Outcome]) -> list[str | None]:
        """For each case what is wrong with an outcome; None where nothing is."""
        compared = zip(self.graded.cases, outcomes, self.graded.expected, strict=True)
        return [difference(self.graded.exercise, *each) for each in compared]


def draw(exercise: Exercise, seed: int) -> tuple[list[Case], list[Case]]:
    """The cases of `check` and the hidden ones, one after the other from one generator, as for a student."""
    generator = torch.Generator().manual_seed(seed)
    return exercise.cases(generator), hidden_cases(exercise, generator)


def with_memory(exercise: Exercise) -> Exercise:
    """The exercise with a comparison that looks at equal values once: many wrong answers give the same to the bit."""
    compared: dict[Hashable, str | None] = {}
    contents: dict[int, tuple[Hashable, Any]] = {}

    def content(value: Any) -> Hashable:
        if id(value) not in contents:
            contents[id(value)] = content_of(value), value  # which has to stay alive, or another takes its identity
        return contents[id(value)][0]

    def agree(got: Any, expected: Any, case: Case) -> str | None:
        try:
            key = content(got), content(expected), id(case)
        except ValueError:
            return exercise.agree(got, expected, case)
        if key not in compared:
            compared[key] = exercise.agree(got, expected, case)
        return compared[key]

    return dataclasses.replace(exercise, agree=agree)


def content_of(value: Any) -> Hashable:
    """What two plain values have in common if they are equal to the bit.

    Raises:
        ValueError: for a tensor that is too large, or of a type that numpy does not have.
    """
    if isinstance(value, Tensor):
        if value.numel() > LARGE or value.dtype == torch.bfloat16:
            raise ValueError(f"got a tensor of {value.numel()} entries and type {value.dtype}, which is not kept.")
        return value.dtype, value.shape, value.contiguous().resolve_conj().numpy().tobytes()
    if isinstance(value, tuple):
        return tuple, *map(content_of, value)
    if isinstance(value, dict):
        return dict, *((repr(key), content_of(item)) for key, item in value.items())
    return type(value), repr(value)


class Subject:
    """An exercise with the cases of all seeds, drawn once for all rules."""

    def __init__(self, exercise: Exercise) -> None:
        self.exercise, self.id = exercise, exercise.id
        self.variants = [(m, f"{m.name}, variant {n}", f) for m in exercise.mistakes for n, f in enumerate(m.functions)]

    @cached_property
    def drawings(self) -> list[Drawing]:
        return [Drawing(self.exercise, seed) for seed in SEEDS]

    @property
    def first(self) -> Drawing:
        return self.drawings[0]

    @property
    def for_mistakes(self) -> list[Drawing]:
        return self.drawings[:N_FOR_MISTAKES]

    @cached_property
    def mistakes(self) -> list[tuple[Drawing, Mistake, str, Verdict]]:
        """The verdict on each variant of each mistake, hidden cases included."""
        each = [(drawing, *variant) for drawing in self.for_mistakes for variant in self.variants]
        return [(drawing, mistake, name, drawing.verdict(f, drawing.graded)) for drawing, mistake, name, f in each]


RULES: dict[str, Callable[[Subject], Iterator[str]]] = {}


def rule(function: Callable[[Subject], Iterator[str]]) -> Callable[[Subject], Iterator[str]]:
    """A rule that holds for every exercise; it yields in words what breaks it."""
    RULES[function.__name__] = function
    return function
