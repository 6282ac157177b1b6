"""Which changed answers to an exercise no case refuses, though an input shows that they are wrong.

As a script it writes what it finds for a lesson or an exercise:

    PYTHONPATH=tests/helpers python -m surviving kv sinks.share
"""

import os
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from further_answers import FURTHER
from mutants import OURS, Mutant, changed_arguments, changed_sources, sides_of
from probes import Probe, bases, common_to, key_of, on_the_border, probes, size_of
from torch import Tensor

from course_lib.checking.call import DidNotFinish, Outcome, copied, limited
from course_lib.checking.compare import plain
from course_lib.checking.exercise import Case, Exercise
from course_lib.checking.known import difference
from course_lib.checking.short import short
from course_lib.grading.hidden_cases import hidden_cases
from course_lib.workbook.catalogue import all_exercises

SEEDS = (0, 1)  # of the cases that have to refuse a wrong answer
OTHER_SEEDS = (11,)
MOST_MUTANTS = 600  # of one exercise
# Changes that no probe shows: as a rule what else stands in that line makes no difference either.
MOST_OF_A_LINE, MOST_SAME, FEW_SAME = 2, 12, 3
SECONDS = 0.1  # of one call


@dataclass(frozen=True)
class Gap:
    """A wrong answer that every case takes for right, and an input on which it is wrong."""

    exercise: str
    mutant: Mutant
    probe: Probe
    expected: object
    problem: str

    def __str__(self) -> str:
        given = "\n".join(f"    argument {at} = {_in_full(x)}" for at, x in enumerate(self.probe.arguments))
        return (
            f"{self.exercise}: {self.mutant.where}: {self.mutant.change}\n"
            f"  is accepted by all cases and wrong on a probe ({self.probe.how}):\n{given}\n"
            f"    {self.problem}\n    expected result: {_in_full(self.expected)}"
        )


def _in_full(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_in_full, value)) + ")"
    if isinstance(value, Tensor) and value.numel() <= 40:
        rounded = value if not value.is_floating_point() else (value.double() * 1e4).round() / 1e4
        return str(rounded.tolist())
    return short(value) if not isinstance(value, Tensor) else f"{short(value)} of shape {tuple(value.shape)}"


def outcome_of(function: Callable, arguments: tuple) -> Outcome:
    """As `checking.call.call`, without a traceback."""
    try:
        with limited(SECONDS):
            return Outcome(value=plain(function(*copied(arguments, {}))))
    except DidNotFinish:
        return Outcome(error="it did not finish", endless=True)
    except Exception as error:
        return Outcome(error=f"it raised {type(error).__name__}: {error}")


class Tried:
    """An exercise with the cases of several seeds, and the probes made of them."""

    def __init__(self, exercise: Exercise) -> None:
        self.exercise = exercise
        cases = {key_of(case.arguments): case for seed in SEEDS for case in drawn(exercise, seed)}
        self.cases = sorted(cases.values(), key=lambda case: size_of(case.arguments))
        self._expected: dict[int, object] = {}
        self._agreed: dict[int, bool] = {}
        self._lines: dict[Callable, set[tuple[str, int]]] = {}

    def expected(self, at: int) -> object:
        if at not in self._expected:
            self._expected[at] = plain(self.exercise.reference(*copied(self.cases[at].arguments, {})))
        return self._expected[at]

    def refused_by(self, mutant: Mutant) -> int | None:
        """The place of a case that refuses an answer; None where it survives."""
        for at in self._order:
            self.expected(at)
            with mutant.in_place() as function:
                outcome = outcome_of(function, self.cases[at].arguments)
            if same(outcome.value, self.expected(at)):
                continue
            if outcome.endless or difference(self.exercise, self.cases[at], outcome, self.expected(at)) is not None:
                self._order.remove(at)
                self._order.insert(0, at)  # what refused the last one may refuse the next
                return at
        return None

    @cached_property
    def _order(self) -> list[int]:
        return list(range(len(self.cases)))

    @cached_property
    def right(self) -> list[Callable]:
        """Right answers other than the reference."""
        return [*(variant.function for variant in self.exercise.also_right), FURTHER[self.exercise.id]]

    @cached_property
    def probes(self) -> list[tuple[Probe, object]]:
        """Inputs on which the reference gives something, with what it gives."""
        pool = [case.arguments for case in self.cases]
        others = [case.arguments for seed in OTHER_SEEDS for case in drawn(self.exercise, seed)]
        has_nan = any(_has_nan(self.expected(at)) for at in range(len(self.cases)))
        found = []
        for probe in probes(pool, others):
            outcome = outcome_of(self.exercise.reference, probe.arguments)
            if not outcome.error and (has_nan or not _has_nan(outcome.value)):
                found.append((probe, outcome.value))
        return found

    def is_agreed(self, at: int) -> bool:
        """Whether most right answers agree on a probe: where they do not, it is none that the exercise speaks of."""
        if at not in self._agreed:
            probe, expected = self.probes[at]
            case = Case(probe.how, probe.arguments)
            self._agreed[at] = self._most_agree(case, expected)
        return self._agreed[at]

    def _unchanged_agrees(self, mutant: Mutant, probe: Probe, expected: object) -> bool:
        """Whether it is the change that makes the difference."""
        if mutant.target is None:
            return True
        outcome = outcome_of(mutant.function, probe.arguments)
        return difference(self.exercise, Case(probe.how, probe.arguments), outcome, expected) is None

    def is_reached(self, mutant: Mutant) -> bool:
        """Whether the changed line runs at all: a right answer may call one with branches that are for others."""
        if mutant.target is None:
            return True
        if mutant.function not in self._lines:
            self._lines[mutant.function] = lines_of(mutant.function, [probe.arguments for probe, _ in self.probes])
        return (mutant.target.__code__.co_filename, mutant.line) in self._lines[mutant.function]

    def _most_agree(self, case: Case, expected: object) -> bool:
        outcomes = [outcome_of(function, case.arguments) for function in self.right]
        n_agree = sum(difference(self.exercise, case, each, expected) is None for each in outcomes)
        return 2 * n_agree >= len(outcomes)

    def gap(self, mutant: Mutant) -> Gap | None:
        """The smallest probe on which a surviving answer is wrong."""
        for at, (probe, expected) in enumerate(self.probes):
            with mutant.in_place() as function:
                outcome = outcome_of(function, probe.arguments)
            if outcome.endless or same(outcome.value, expected):  # a busy machine is no gap
                continue
            problem = difference(self.exercise, Case(probe.how, probe.arguments), outcome, expected)
            if problem is not None and self.is_agreed(at) and self._unchanged_agrees(mutant, probe, expected):
                return Gap(self.exercise.id, mutant, probe, expected, problem)
        return self._gap_on_the_border(mutant) if mutant.sides else None

    def _gap_on_the_border(self, mutant: Mutant) -> Gap | None:
        """As `gap`, for a comparison that was changed, with arguments for which both of its sides are equal."""
        for base in self._bases:
            for probe in on_the_border(base, sides_of(mutant, base)):
                if not all(holds(probe.arguments) for holds in self._common):
                    continue
                case = Case(probe.how, probe.arguments)
                expected = outcome_of(self.exercise.reference, probe.arguments).value
                with mutant.in_place() as function:
                    outcome = outcome_of(function, probe.arguments)
                if outcome.endless or same(outcome.value, expected):
                    continue
                if difference(self.exercise, case, outcome, expected) is None:
                    continue
                if self._most_agree(case, expected) and self._unchanged_agrees(mutant, probe, expected):
                    problem = difference(self.exercise, case, outcome, expected)
                    return Gap(self.exercise.id, mutant, probe, expected, problem)
        return None

    @cached_property
    def _bases(self) -> list[tuple]:
        return bases([case.arguments for case in self.cases])

    @cached_property
    def _common(self) -> list[Callable]:
        return common_to([case.arguments for case in self.cases])

    def mutants(self) -> Iterator[Mutant]:
        """The changed answers, of the reference and of the other right answers."""
        example = self.cases_of_check[0].arguments
        if len({len(case.arguments) for case in self.cases}) == 1:
            yield from changed_arguments(self.exercise.reference, example, *self._kinds(len(example)))
        seen = set()
        for function in (self.exercise.reference, *self.right):
            for mutant in changed_sources(function, example):
                key = mutant.target, mutant.code.co_code, repr(mutant.code.co_consts), mutant.code.co_names
                if key not in seen:
                    seen.add(key)
                    yield mutant

    @cached_property
    def cases_of_check(self) -> list[Case]:
        return self.exercise.cases(torch.Generator().manual_seed(SEEDS[0]))

    def _kinds(self, n: int) -> tuple[list[bool], list[bool]]:
        """Of each argument: whether a case has −inf in it, and whether it seems to decide what a mask keeps."""
        columns = [[case.arguments[at] for case in self.cases] for at in range(n)]
        has_infinity = [any(_is_float(x) and bool((x == -torch.inf).any()) for x in column) for column in columns]
        masks = [_mask(self.expected(at)) for at in range(len(self.cases))]
        return has_infinity, [_decides(column, masks) for column in columns]


def _is_float(x: object) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _mask(value: object) -> Tensor | None:
    """The first mask of a result."""
    values = value if isinstance(value, tuple) else (value,)
    return next((x for x in values if isinstance(x, Tensor) and x.dtype == torch.bool and x.ndim), None)


def _decides(column: list, masks: list[Tensor | None]) -> bool:
    """Whether what is kept is nearly always larger on average, or smaller, than what is not."""
    larger = [
        bool(x[mask].mean() > x[~mask].mean())
        for x, mask in zip(column, masks, strict=True)
        if mask is not None and _is_float(x) and x.shape == mask.shape and mask.any() and not mask.all()
    ]
    return len(larger) > 2 and not 0.15 < sum(larger) / len(larger) < 0.85


def lines_of(function: Callable, inputs: list[tuple]) -> set[tuple[str, int]]:
    """The lines of the course that run when a function is called with these inputs: file and number."""
    found = set()

    def look(frame: types.FrameType, event: str, argument: object) -> Callable | None:
        if not frame.f_globals.get("__name__", "").startswith(OURS):
            return None
        found.add((frame.f_code.co_filename, frame.f_lineno))
        return look

    before = sys.gettrace()
    for arguments in inputs:
        sys.settrace(look)
        try:
            outcome_of(function, arguments)
        finally:
            sys.settrace(before)
    return found


def drawn(exercise: Exercise, seed: int) -> list[Case]:
    """The cases that a student sees, and the hidden ones."""
    generator = torch.Generator().manual_seed(seed)
    return [*exercise.cases(generator), *hidden_cases(exercise, generator)]


def same(one: object, other: object) -> bool:
    """Whether two results are the same to the last bit: most comparisons can be saved."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return type(one) is type(other) and one == other


def _has_nan(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    if isinstance(value, tuple):
        return any(map(_has_nan, value))
    if isinstance(value, Tensor):
        return bool(value.isnan().any())
    return isinstance(value, float) and value != value


def gaps(exercise: Exercise) -> Iterator[Gap]:
    """Every changed answer that survives all cases and is wrong."""
    tried, n_same = Tried(exercise), Counter()
    for number, mutant in enumerate(tried.mutants()):
        if number == MOST_MUTANTS:
            return
        line, most = (mutant.function, mutant.where), MOST_SAME if mutant.function is exercise.reference else FEW_SAME
        if n_same[line] == MOST_OF_A_LINE or n_same[mutant.function] == most:
            continue
        if tried.refused_by(mutant) is not None or not tried.is_reached(mutant):
            continue
        if gap := tried.gap(mutant):
            yield gap
        elif mutant.target is not None:
            n_same.update((line, mutant.function))


if __name__ == "__main__":
    for each in all_exercises():
        if not sys.argv[1:] or {each.id, each.id.split(".")[0]} & set(sys.argv[1:]):
            began = time.process_time()
            found = list(gaps(each))
            print(*found, sep="\n\n")
            print(f"# {each.id}: {len(found)} in {time.process_time() - began:.2f} s\n", flush=True)
    os._exit(0)
