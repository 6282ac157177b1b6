"""Judge a function against an exercise: run it on the cases, compare the results, and recognise named mistakes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from course_lib.checking.call import Outcome, Recorded, calls
from course_lib.checking.exercise import Case, Exercise, Mistake
from course_lib.checking.given import own_names
from course_lib.checking.known import Known, difference, drawn
from course_lib.checking.trivial import BY_HEART

State = Literal["right", "wrong", "not attempted"]
_STUB = re.compile(r"Exercise ([a-z_]+\.[a-z_0-9]+): replace this line")  # what a stub of `masters.stub` raises
MANY = 5  # wrong cases explained for each right one that is contradicted: then the right ones may be right by chance


@dataclass(frozen=True)
class Verdict:
    """The result of a check. `case`, `got`, `expected` and `trace` belong to the first wrong case.

    `differences` has one entry for every case that was run, None if it is right. `explained` is the number of wrong
    cases for which the named mistake gives the same result; `contradicted` is the number of right cases that it gets
    wrong. `easy` says which answer without the idea is enough for all right cases, and is empty if there is none.
    `names` are the student's own parameter names, if known.
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
    contradicted: int = 0
    easy: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    waits_for: str = ""  # the exercise whose stub raised, where that is another one

    @property
    def n_wrong(self) -> int:
        """The number of wrong cases among those that were run."""
        return sum(complaint is not None for complaint in self.differences)

    @property
    def share(self) -> float:
        """The fraction of the points that the answer earns, in a check and in grading. See `credit`."""
        return credit(self.n_right, self.n_cases, self.easy)

    @property
    def lowered(self) -> str:
        """Which cases are right and why they earn no points yet, to be read after "right: "; empty if they do.

        For example: "the worked example. Such a case earns points once a case that needs the method is right".
        """
        if not self.easy:
            return ""
        one = self.n_right == 1
        if self.easy == (BY_HEART,):
            which = "the worked example" if one else "the worked examples"
        else:
            which = f"{'one' if one else 'those'} for which {' or '.join(self.easy)} is enough"
        such = "Such a case earns" if one else "Such cases earn"
        return f"{which}. {such} points once a case that needs the method is right"

    @property
    def difference(self) -> str:
        """Return the complaint about the first wrong case."""
        return next((complaint for complaint in self.differences if complaint), "")


def credit(n_right: int, n_cases: int, easy: tuple[str, ...]) -> float:
    """Compute the fraction of the points: all cases count equally, but easy ones only together with a harder one.

    The name of a mistake is only feedback. If it changed the points, an equal mistake without a name would earn others.
    """
    return 0.0 if easy else n_right / n_cases


def counted(n_right: int, n_cases: int, lowered: str) -> str:
    """Say how many cases are right and why they earn no points yet; empty if they do earn points."""
    return f"{n_right} of {n_cases} cases {'is' if n_right == 1 else 'are'} right: {lowered}." if lowered else ""


def uncounted(lowered: str) -> str:
    """Like `counted` but without numbers, for results that must not reveal how many hidden cases there are."""
    return f"right so far: {lowered}" if lowered else ""


def recognise(known: Known, outcomes: list[Outcome], wrong: list[bool]) -> tuple[Mistake | None, int, int]:
    """Return the first named mistake with the student's results on every case, and how many wrong cases it explains.

    If there is none: the mistake that explains the most wrong cases, minus the right cases that it would get wrong. It
    must explain the first wrong case and more than half of all wrong cases. In other words, we still recognise a
    mistake if the student made one more. But a mistake that would get all of the student's right cases wrong is a
    different one, unless it explains many times as many wrong cases. Many errors in code end in the same exception, so
    a mistake must also give the same value in at least one wrong case.

    Returns:
        the mistake, how many wrong cases it explains, and how many right ones it would get wrong.
    """
    valued = [at for at, w in enumerate(wrong) if w and not outcomes[at].error]
    n_wrong, n_right = sum(wrong), len(wrong) - sum(wrong)
    best = None, 0, 0
    for mistake in known.exercise.mistakes if valued else ():
        for function in mistake.functions:
            if not _same(known, function, wrong.index(True), outcomes):  # most mistakes need one look
                continue
            if not any(_same(known, function, at, outcomes) for at in valued):
                continue
            same = [_same(known, function, at, outcomes) for at in range(len(outcomes))]
            if all(same):
                return mistake, n_wrong, 0
            n_explained = sum(s for s, w in zip(same, wrong, strict=True) if w)
            n_against = sum(not s for s, w in zip(same, wrong, strict=True) if not w)
            contradicts_all = n_against == n_right > 0 and n_explained < MANY * n_against
            if 2 * n_explained > n_wrong and not contradicts_all and n_explained - n_against > best[1] - best[2]:
                best = mistake, n_explained, n_against
    return best


def _same(known: Known, function: Callable | Recorded, at: int, outcomes: list[Outcome]) -> bool:
    """Whether a function of the exercise has the same outcome on a case as the student's function."""
    outcome, other = outcomes[at], known.outcome(function, at)
    if outcome.error or other.error:
        kinds = [(o.error or "").split(":")[0] for o in (outcome, other)]
        return kinds[0] == kinds[1]
    return difference(known.exercise, known.cases[at], outcome, other.value) is None


def judge(exercise: Exercise, function: Callable, seed: int = 0) -> Verdict:
    """Run a function on the exercise's cases, and judge the outcomes."""
    known = drawn(exercise, seed)
    found = conclude(known, list(calls(function, [case.arguments for case in known.cases])))
    return replace(found, names=own_names(function, found.case)) if found.case else found


def verdict(exercise: Exercise, cases: list[Case], outcomes: list[Outcome]) -> Verdict:
    """Judge the outcomes of an answer from any source. Cases without an outcome count as wrong."""
    return conclude(Known(exercise, cases), outcomes)


def _other_stub(exercise: Exercise, outcomes: list[Outcome]) -> str:
    """Return the id of another exercise whose function the answer calls, if that function is still a stub."""
    stubs = [_STUB.search(outcome.error or "") for outcome in outcomes]
    others = {stub[1] for stub in stubs if stub} - {exercise.id}
    return min(others, default="")


def conclude(known: Known, outcomes: list[Outcome]) -> Verdict:
    """Like `verdict`, for cases on which several answers are judged."""
    exercise, n_cases = known.exercise, len(known.cases)
    if not outcomes or all(outcome.unattempted for outcome in outcomes):
        state = "not attempted" if outcomes else "wrong"
        return Verdict(exercise, state, 0, n_cases, waits_for=_other_stub(exercise, outcomes))
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
