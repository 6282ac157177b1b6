"""What every exercise says to wrong answers, and what these earn. Each rule yields what breaks it."""

import dataclasses
import html
import types
from collections.abc import Callable, Iterator

import torch
from drawing import Drawing, Subject, rule
from forgeries import FORGED
from forgeries import LAZY as FROM_THE_ANSWER
from lazy_answers import LAZY
from lesson_answers import right_answers, wrong_answers
from recognised import misjudged, only_raises
from told_answers import COUNTS, TOLD

from course_lib.checking.call import Outcome
from course_lib.checking.compare import plain
from course_lib.checking.judge import Verdict, conclude
from course_lib.checking.known import difference
from course_lib.workbook import show
from course_lib.workbook.progress import Record

OF_CHECK = (lambda *a: None, lambda *a: "yes", lambda *a: object(), lambda: 1, lambda *a: a[99])
# Text, a number, and a tensor of a shape that no exercise asks for
NONSENSE = ("nonsense", 1234.5, torch.full((7, 1, 3), 0.5))
TRUE_OF_A_NUMBER = {("minitron.aggregate", "one number for all")}  # judged up to a factor, so this names 1234.5 rightly
# These raise, or never end, on every wrong case. Give new mistakes a variant that returns a value.
ONLY_RAISE = {
    ("dejavu.gathered", "fails without neurons"),
    ("compress.labels", "fails without a prompt"),
    ("capstone.gain", "0/0 where all are accepted"),
}
MOST = 0.1  # of the points, for an answer without the idea


def stub(*arguments):
    raise NotImplementedError


@rule
def the_stub_is_not_attempted(subject: Subject) -> Iterator[str]:
    verdict = subject.first.judged(stub)
    if verdict.state != "not attempted" or f'hint("{subject.id}")' not in show.as_text(verdict, Record()):
        yield verdict.state


@rule
def nonsense_is_wrong_and_can_be_shown(subject: Subject) -> Iterator[str]:
    for number, nonsense in enumerate(OF_CHECK):
        verdict = subject.first.judged(nonsense)
        shown = subject.exercise.title in html.unescape(show.as_html(verdict, Record()))
        if verdict.state != "wrong" or verdict.mistake or not shown:
            yield f"number {number}: {verdict.state}: {verdict.difference}"


@rule
def pictures_are_drawn_and_one_that_raises_fails_nothing(subject: Subject) -> Iterator[str]:
    if subject.exercise.picture is None:
        return
    wrong = subject.first.verdict(subject.exercise.mistakes[0].function, subject.first.visible)
    if "data:image/png" not in show.as_html(wrong, Record()):
        yield "no picture of a wrong answer"
    broken = dataclasses.replace(wrong, exercise=dataclasses.replace(subject.exercise, picture=lambda *a: 1 / 0))
    page = show.as_html(broken, Record())
    if "data:image" in page or subject.exercise.title not in html.unescape(page):
        yield "one that raises hides the verdict"


@rule
def named_mistakes_are_recognised_by_check(subject: Subject) -> Iterator[str]:
    """On the seed of `check` by calling it, on others by what the named mistakes are known to give."""
    for drawing in subject.for_mistakes:
        for mistake, name, function in subject.variants:
            verdict = drawing.judged(function) if drawing.seed == 0 else drawing.verdict(function, drawing.visible)
            if why := misjudged(mistake, verdict) or not_said(verdict):
                yield f"{name}, seed {drawing.seed}: {why}"


def not_said(verdict: Verdict) -> str | None:
    """In words what a student does not read of a wrong answer; None where it is all there."""
    text = show.as_text(verdict, Record())
    explanation = (verdict.mistake.explanation,) if verdict.mistake else ()
    unsaid = [said for said in (*explanation, verdict.case.name) if said not in text]
    return f"not said: {unsaid}" if unsaid else None


@rule
def named_mistakes_are_recognised_with_hidden_cases(subject: Subject) -> Iterator[str]:
    for drawing, mistake, name, verdict in subject.mistakes:
        if why := misjudged(mistake, verdict):
            yield f"{name}, seed {drawing.seed}: {why}"


@rule
def every_mistake_has_a_variant_with_values(subject: Subject) -> Iterator[str]:
    recognisable = {mistake.name for _, mistake, _, verdict in subject.mistakes if not only_raises(verdict)}
    for mistake in subject.exercise.mistakes:
        if mistake.name not in recognisable and (subject.id, mistake.name) not in ONLY_RAISE:
            yield mistake.name


@rule
def credit_depends_on_the_right_cases_alone(subject: Subject) -> Iterator[str]:
    """Each case counts the same, easy ones only together with a harder one, and no name changes that."""
    for drawing, _, name, verdict in subject.mistakes:
        right = right_cases(verdict)
        fraction = 0.0 if drawing.graded.ways(sorted(right)) else len(right) / verdict.n_cases
        if verdict.share != fraction:
            yield f"{name}, seed {drawing.seed}: {verdict.share}, expected {fraction}"


@rule
def more_right_cases_never_earn_less(subject: Subject) -> Iterator[str]:
    for drawing in subject.for_mistakes:
        earned = {(right_cases(verdict), verdict.share) for d, *_, verdict in subject.mistakes if d is drawing}
        if any(less <= more and b > a for more, a in earned for less, b in earned):
            yield f"seed {drawing.seed}"


def right_cases(verdict: Verdict) -> frozenset[int]:
    return frozenset(at for at, said in enumerate(verdict.differences) if said is None)


@rule
def nonsense_gets_no_name(subject: Subject) -> Iterator[str]:
    for outcomes in nonsense(subject):
        named = conclude(subject.first.graded, outcomes).mistake
        if named and (subject.id, named.name) not in TRUE_OF_A_NUMBER:
            yield f"{[outcome.error or outcome.value for outcome in outcomes]}: {named.name}"


def nonsense(subject: Subject) -> Iterator[list[Outcome]]:
    """Outcomes that no slip of the exercise explains: errors of every kind that its mistakes end in, and nonsense."""
    right = [Outcome(value) for value in subject.first.graded.expected]
    n, ends = len(right), [each.error for *_, function in subject.variants for each in subject.first.outcomes(function)]
    for kind in {error.split(":")[0] for error in ends if error} | {"it raised RuntimeError"}:
        error = Outcome(error=f"{kind}: nonsense")
        for at in range(n):
            yield [Outcome(NONSENSE[at % len(NONSENSE)]) if i == at else error for i in range(n)]
            yield [right[i] if i == at else error for i in range(n)]
            yield [error if i == at else right[i] for i in range(n)]
    yield from ([Outcome(value)] * n for value in NONSENSE)


@rule
def forged_answers_earn_nothing(subject: Subject) -> Iterator[str]:
    graded = subject.first.graded
    for name, forge in FORGED.items():
        found = subject.first.differences(
            [Outcome(forge(*each)) for each in zip(graded.cases, graded.expected, strict=True)]
        )
        passed = [case.name for case, said in zip(graded.cases, found, strict=True) if not said]
        if passed or any(len(said) >= 1000 for said in found):
            yield f"{name} is taken for right, or described at length: {passed}"


@rule
def a_comparison_that_raises_counts_as_wrong(subject: Subject) -> Iterator[str]:
    broken = dataclasses.replace(subject.exercise, agree=lambda got, expected, case: 1 / 0)
    case, value = subject.first.hidden[-1], subject.first.graded.expected[-1]
    if not difference(broken, case, Outcome(value), value):
        yield "one that always raises"
    if not difference(subject.exercise, case, Outcome(types.SimpleNamespace(shape=(1,))), value):
        yield "an object with a shape"


@rule
def wrong_answers_get_no_misleading_name(subject: Subject) -> Iterator[str]:
    """Named mistakes are looked through only for answers of which the name is known."""
    for what, function, name in wrong_answers(subject.id):
        for drawing in subject.drawings:
            state, said = told(drawing, function) if name is not None else (drawing.state(function), None)
            if state != "wrong" or said != name:
                yield f"{what}, seed {drawing.seed}: {state}, taken for {said!r}"


def told(drawing: Drawing, function: Callable) -> tuple[str, str]:
    """State and name of the mistake, as `check` gives them."""
    verdict = drawing.verdict(function, drawing.visible)
    return verdict.state, verdict.mistake.name if verdict.mistake else ""


@rule
def what_is_easily_misjudged_is_told_what_its_row_says(subject: Subject) -> Iterator[str]:
    right = {what: told(subject.first, function)[0] for what, function in right_answers(subject.id)}
    names = [(what, *told(subject.first, function)) for what, function, _ in wrong_answers(subject.id)]
    wrong = {what: name if state == "wrong" else state for what, state, name in names}
    rows = TOLD.get(subject.id, {})
    if rows and right.keys() & wrong.keys():
        yield f"one row could not tell apart {right.keys() & wrong.keys()}"
    yield from (
        f"{what}: {(right | wrong).get(what)!r}, expected {row!r}"
        for what, row in rows.items()
        if (right | wrong).get(what) != row
    )
    counts = len(right_answers(subject.id)), len(names), sum(name != "" for *_, name in names)
    if any(n < least for n, least in zip(counts, COUNTS[subject.id], strict=True)):
        yield f"right, wrong and named answers: {counts}, expected at least {COUNTS[subject.id]}"


@rule
def answers_without_the_idea_earn_a_tenth_at_most(subject: Subject) -> Iterator[str]:
    for drawing in subject.drawings:
        graded = drawing.graded
        outcomes = {f"number {n}": drawing.outcomes(lazy) for n, lazy in enumerate(LAZY[subject.id])}
        for name, lazy in FROM_THE_ANSWER.items():
            given = zip(graded.cases, graded.expected, strict=True)
            outcomes[name] = [Outcome(plain(lazy(*each))) for each in given]
        for name, each in outcomes.items():
            if max(drawing.credits(each)) > MOST:
                yield f"{name}, seed {drawing.seed}: {drawing.credits(each)}"


@rule
def enough_cases_need_the_idea(subject: Subject) -> Iterator[str]:
    """One of those of `check` at least, so that the case separates answers with the idea from those without."""
    for drawing in subject.drawings:
        hard = [at for at in range(len(drawing.graded.cases)) if not drawing.graded.ways([at])]
        if len(hard) < 2 or hard[0] >= len(drawing.visible.cases):
            yield f"seed {drawing.seed}: only {[drawing.graded.cases[at].name for at in hard]}"


@rule
def what_an_exercise_lists_as_trivial_is_right_somewhere(subject: Subject) -> Iterator[str]:
    for trivial in subject.exercise.trivial:
        if all(subject.first.differences(subject.first.outcomes(trivial.function))):
            yield f"{trivial.name} is never right: leave it out"
