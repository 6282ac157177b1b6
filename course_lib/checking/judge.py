"""Judge a function against an exercise: run it on the cases, compare, and recognise named mistakes."""

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
    """The result of a check. `case`, `got`, `expected` and `trace` belong to the first case that went wrong.

    `differences` has one entry for every case that was run: None where it agrees. `explained` says for how many of the
    wrong ones the named mistake gives the same result, `contradicted` how many right ones it would get wrong. `easy`
    says what is enough to get all right cases without the idea, and is empty where one of them needs it. `names` are
    those of the student's own parameters, where known.
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
        """Cases that were run and went wrong."""
        return sum(complaint is not None for complaint in self.differences)

    @property
    def share(self) -> float:
        """The fraction of the points that the answer earns, in a check and in grading. See `credit`."""
        return credit(self.n_right, self.n_cases, self.easy)

    @property
    def lowered(self) -> str:
        """Which cases are right, and why they earn nothing yet, to be read after "right: "; empty where they do.

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
    """The fraction of the points: every case counts the same, and easy cases count only together with a harder one.

    The name of a mistake is feedback and has no part in it: an equal slip without a name would earn something else.
    """
    return 0.0 if easy else n_right / n_cases


def counted(n_right: int, n_cases: int, lowered: str) -> str:
    """How many cases are right, and why they earn nothing yet, in words; empty where they count."""
    return f"{n_right} of {n_cases} cases {'is' if n_right == 1 else 'are'} right: {lowered}." if lowered else ""


def uncounted(lowered: str) -> str:
    """The same without the numbers, where these would tell how many hidden cases there are."""
    return f"right so far: {lowered}" if lowered else ""


def recognise(known: Known, outcomes: list[Outcome], wrong: list[bool]) -> tuple[Mistake | None, int, int]:
    """The first named mistake that gives the student's results on every case, and how many wrong ones that explains.

    Without one: the mistake that explains most of the wrong cases, compared with the right ones that it would get
    wrong, among them the first wrong case and more than half of them all. In other words, one further slip does not
    cost the mistake its name. But a mistake that would get all of the student's right cases wrong is another one,
    unless it explains many times as many wrong ones. Many slips end in the same kind of error, so a mistake also has
    to give the value of a wrong case.

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


def _other_stub(exercise: Exercise, outcomes: list[Outcome]) -> str:
    """The id of another exercise of which the answer calls the function, where that one is still a stub."""
    stubs = [_STUB.search(outcome.error or "") for outcome in outcomes]
    others = {stub[1] for stub in stubs if stub} - {exercise.id}
    return min(others, default="")


def conclude(known: Known, outcomes: list[Outcome]) -> Verdict:
    """As `verdict`, for cases on which more than one answer is judged."""
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
