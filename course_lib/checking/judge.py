"""Judge a function against an exercise: run it on the cases, compare, and recognise named mistakes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from course_lib.checking.call import Outcome, Recorded, calls
from course_lib.checking.exercise import Case, Exercise, Mistake
from course_lib.checking.given import own_names
from course_lib.checking.known import Known, difference, drawn

State = Literal["right", "wrong", "not attempted"]
MOST_OF_A_MISTAKE = 1 / 3  # of the points, for an answer that a named mistake explains altogether


@dataclass(frozen=True)
class Verdict:
    """The result of a check. `case`, `got`, `expected` and `trace` belong to the first case that went wrong.

    `differences` has one entry for every case that was run: None where it agrees. `explained` says of how many of the
    wrong ones the named mistake gives the same result; of all of them, it also agrees with the right ones. `easy` says
    by what all cases that are right can be had without the idea, and is empty where one of them cannot. `names` are those
    of the student's own parameters, where known.
    """

    exercise: Exercise
    state: State
    n_right: int
    n_cases: int
    case: Case | None = None
    got: Any = None
    expected: Any = None
    differences: tuple[str | None, ...] = ()
    trace: str = ""
    mistake: Mistake | None = None
    explained: int = 0
    easy: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def n_wrong(self) -> int:
        """Cases that were run and went wrong."""
        return sum(complaint is not None for complaint in self.differences)

    @property
    def named(self) -> bool:
        """Whether a named mistake explains all that is wrong."""
        return self.mistake is not None and self.explained == self.n_wrong

    @property
    def share(self) -> float:
        """Of the points: every case counts the same. What can be had without the idea counts together with a case that
        cannot; a named mistake, however many cases it meets, earns a third at most.

        Some mistakes show on few cases only, and how many there are of these says nothing about the idea.
        """
        of_cases = 0.0 if self.easy else self.n_right / self.n_cases
        return min(of_cases, MOST_OF_A_MISTAKE) if self.named else of_cases

    @property
    def lowered(self) -> str:
        """Why the points are less than the share of the cases that are right, to be said by `but`; else empty."""
        if self.share == self.n_right / self.n_cases:
            return ""
        if self.easy:
            right, count = ("it", "it counts") if self.n_right == 1 else ("all that are right", "these count")
            return f"{right} can be had by {' or '.join(self.easy)}: {count} once one of the others is right"
        return "a named mistake is all that is wrong: such an answer earns a third of the points at most"

    @property
    def difference(self) -> str:
        """What is wrong with the first case that went wrong."""
        return next((complaint for complaint in self.differences if complaint), "")


def but(n_right: int, n_cases: int, lowered: str) -> str:
    """How many cases are right, and why they do not all count, as a sentence."""
    return f"{n_right} of {n_cases} cases {'is' if n_right == 1 else 'are'} right, but {lowered}." if lowered else ""


def recognise(known: Known, outcomes: list[Outcome], wrong: list[bool]) -> tuple[Mistake | None, int]:
    """The first named mistake that gives the student's results on every case, and how many wrong ones that explains.

    Without one: the mistake that explains most of the wrong cases, among them the first and more than half of them
    all, and more than the right ones that it would get wrong. In other words, one further slip does not cost the
    mistake its name. Many slips end in the same kind of error, so a mistake also has to give the value of a wrong case.
    """
    valued = [at for at, w in enumerate(wrong) if w and not outcomes[at].error]
    best, n_best = None, sum(wrong) // 2
    for mistake in known.exercise.mistakes if valued else ():
        for function in mistake.functions:
            if not _same(known, function, wrong.index(True), outcomes):  # most mistakes need one look
                continue
            if not any(_same(known, function, at, outcomes) for at in valued):
                continue
            same = [_same(known, function, at, outcomes) for at in range(len(outcomes))]
            if all(same):
                return mistake, sum(wrong)
            n_explained = sum(s for s, w in zip(same, wrong, strict=True) if w)
            n_against = sum(not s for s, w in zip(same, wrong, strict=True) if not w)
            if n_explained > max(n_best, n_against):
                best, n_best = mistake, n_explained
    return best, n_best if best else 0


def _same(known: Known, function: Callable | Recorded, at: int, outcomes: list[Outcome]) -> bool:
    """Whether a function of the exercise does on one case what the student's did."""
    outcome, other = outcomes[at], known.outcome(function, at)
    if outcome.error or other.error:
        kinds = [(o.error or "").split(":")[0] for o in (outcome, other)]
        return kinds[0] == kinds[1]
    return difference(known.exercise, known.cases[at], outcome, other.value) is None


def judge(exercise: Exercise, function: Callable, seed: int = 0) -> Verdict:
    """Run a function on the exercise's cases and say whether it is right, and if not, what is known about why."""
    known = drawn(exercise, seed)
    found = conclude(known, list(calls(function, [case.arguments for case in known.cases])))
    return replace(found, names=own_names(function, found.case)) if found.case else found


def verdict(exercise: Exercise, cases: list[Case], outcomes: list[Outcome]) -> Verdict:
    """What outcomes say about an answer, wherever they were produced. Cases without an outcome count as wrong."""
    return conclude(Known(exercise, cases), outcomes)


def conclude(known: Known, outcomes: list[Outcome]) -> Verdict:
    """As `verdict`, for cases on which more than one answer is judged."""
    exercise, n_cases = known.exercise, len(known.cases)
    if not outcomes or all(outcome.unattempted for outcome in outcomes):
        return Verdict(exercise, "not attempted" if outcomes else "wrong", 0, n_cases)
    if len(outcomes) < n_cases:
        known = Known(exercise, known.cases[: len(outcomes)])
    cases, expected = known.cases, known.expected
    differences = tuple(difference(exercise, *compared) for compared in zip(cases, outcomes, expected, strict=True))
    right = [at for at, d in enumerate(differences) if d is None]
    n_right = len(right)
    if n_right == n_cases:
        return Verdict(exercise, "right", n_right, n_right, cases[0], outcomes[0].value, expected[0], differences)
    easy = known.ways(right) if right else ()
    if n_right == len(cases):  # all that there is, is right
        return Verdict(exercise, "wrong", n_right, n_cases, differences=differences, easy=easy)
    wrong = [d is not None for d in differences]
    first = wrong.index(True)
    return Verdict(
        exercise,
        "wrong",
        n_right,
        n_cases,
        cases[first],
        outcomes[first].value,
        expected[first],
        differences,
        outcomes[first].trace,
        *recognise(known, outcomes, wrong),
        easy,
    )
