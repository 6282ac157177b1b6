"""What holds for the cases of every exercise, and for right answers to it. Each rule yields what breaks it."""

import re
from collections.abc import Iterator

import torch
from drawing import Subject, draw, rule
from further_answers import FURTHER
from lesson_answers import right_answers
from torch import Tensor

from course_lib.checking import given
from course_lib.workbook import masters

STUBS = {exercise: names for master in masters.masters() for exercise, names in masters.parameters(master).items()}
SOME_FLOAT64 = ("start", "patterns", "classic", "sparsegpt", "wanda")  # the lessons that may draw float64


@rule
def numbers_are_float32_where_no_text_says_otherwise(subject: Subject) -> Iterator[str]:
    """So that torch.zeros(n) and torch.linspace(a, b, n), which are of that type, go with what is given."""
    for drawing in subject.drawings if subject.id.split(".")[0] not in SOME_FLOAT64 else ():
        for case in drawing.graded.cases:
            tensors = [x for x in case.arguments if isinstance(x, Tensor) and x.is_floating_point()]
            if {x.dtype for x in tensors} - {torch.float32}:
                yield f"{case.name}, seed {drawing.seed}"


@rule
def hidden_cases_have_names_of_their_own(subject: Subject) -> Iterator[str]:
    """The name of a hidden case is all that a student is told of it."""
    visible, hidden = ([case.name for case in cases] for cases in (subject.first.visible.cases, subject.first.hidden))
    if len(hidden) < 2:
        yield f"{len(hidden)} hidden cases, expected at least two"
    if len(set(hidden)) < len(hidden) or set(visible) & set(hidden):
        yield f"two cases have one name: {visible + hidden}"
    yield from (f"{name!r} has not 10 to 80 characters" for name in hidden if not 10 <= len(name) <= 80)


@rule
def hidden_cases_are_small_data_drawn_from_the_generator(subject: Subject) -> Iterator[str]:
    hidden, (_, again) = subject.first.hidden, draw(subject.exercise, subject.first.seed)
    for case, other in zip(hidden, again, strict=True):
        tensors = [x for x in case.arguments if isinstance(x, Tensor)]
        if not all(map(is_data, case.arguments)):
            yield f"{case.name}: the sandbox takes tensors, numbers, text and collections of these"
        if sum(x.nbytes for x in tensors) >= 2**20 or not all(x.isfinite().all() for x in tensors):
            yield f"{case.name}: large, or not finite"
        if not all(map(same, case.arguments, other.arguments)):
            yield f"{case.name}: differs when it is drawn again"
    others = subject.drawings[1].hidden
    if all(all(map(same, a.arguments, b.arguments)) for a, b in zip(hidden, others, strict=True)):
        yield "all are the same with another seed"


@rule
def no_hidden_case_is_one_of_check(subject: Subject) -> Iterator[str]:
    visible = [case.arguments for case in subject.first.visible.cases]
    for case in subject.first.hidden:
        if any(all(map(same, case.arguments, arguments)) for arguments in visible):
            yield case.name


def is_data(value: object) -> bool:
    """Whether the sandbox can be handed it as data."""
    if isinstance(value, tuple):
        return all(map(is_data, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(item) for key, item in value.items())
    return type(value) in (Tensor, int, float, bool, str)


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@rule
def inputs_are_shown_under_the_names_of_the_stub(subject: Subject) -> Iterator[str]:
    """In a fresh process of a student's copy too: the names are data of the library, not read from the masters."""
    names = STUBS[subject.id]
    if given.stub_names(subject.id) != tuple(names):
        yield f"{given.stub_names(subject.id)}, in the master {names}"
    for case in subject.first.visible.cases:
        shown = given.given(subject.exercise, case)
        found = re.findall(r"(?:^|, )(\w+) (?:=|of shape|with|of type) ", shown)
        if found != (names if shown else []):
            yield f"{case.name}: {shown}"
        if not shown and any(isinstance(x, int | float | str) or is_short(x) for x in case.arguments):
            yield f"nothing of {case.name} is shown"


def is_short(value: object) -> bool:
    return isinstance(value, Tensor) and 0 < value.numel() <= 12


@rule
def the_reference_is_right_and_finite(subject: Subject) -> Iterator[str]:
    for drawing in subject.drawings:
        for known in (drawing.visible, drawing.graded):
            verdict = drawing.verdict(subject.exercise.reference, known)
            if (verdict.state, verdict.n_right, verdict.share) != ("right", len(known.cases), 1.0):
                yield f"seed {drawing.seed}: {verdict.state}: {verdict.difference}"
            if len(known.cases) < 2:
                yield f"seed {drawing.seed}: fewer than two cases"
        if not all(map(is_finite, drawing.graded.expected)):
            yield f"seed {drawing.seed}: a right value is not finite"


def is_finite(value: object) -> bool:
    if isinstance(value, dict | tuple):
        return all(map(is_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) or bool(torch.as_tensor(value, dtype=torch.float64).isfinite().all())


@rule
def the_librarys_function_is_right(subject: Subject) -> Iterator[str]:
    """So that what follows an exercise is the same with it as with a right answer."""
    if subject.exercise.library is not None:
        for drawing in subject.for_mistakes:
            verdict = drawing.verdict(subject.exercise.library, drawing.visible)
            if verdict.state != "right":
                yield f"seed {drawing.seed}: {verdict.case.name}: {verdict.difference}"


@rule
def right_answers_earn_everything(subject: Subject) -> Iterator[str]:
    """Those of the exercise, one more, and those that people gave, without the hidden cases and with them."""
    ways = [(variant.name, variant.function) for variant in subject.exercise.also_right]
    for what, function in [*ways, ("one more", FURTHER[subject.id]), *right_answers(subject.id)]:
        for drawing in subject.drawings:
            for known in (drawing.visible, drawing.graded):
                verdict = drawing.verdict(function, known)
                if verdict.state != "right" or any(verdict.differences):
                    yield f"{what}, seed {drawing.seed}: {verdict.case.name}: {verdict.difference}"
