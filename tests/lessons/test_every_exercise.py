"""Conformance of every exercise of every lesson: discovered, no list.

The reference passes, the stub is "not attempted", each named mistake is rejected and recognised by its own name on
three seeds, each variant passes, hints exist, and a picture that raises does not fail the check.
"""

import dataclasses
import html
import json
import re
from pathlib import Path

import pytest
import torch
from recognised import misjudged

from course_lib.checking import given
from course_lib.checking.judge import conclude, judge
from course_lib.checking.known import drawn
from course_lib.workbook import masters, show
from course_lib.workbook.catalogue import all_exercises, lessons
from course_lib.workbook.progress import Record

EXERCISES = all_exercises()
STUBS = {exercise: names for master in masters.masters() for exercise, names in masters.parameters(master).items()}
SEEDS = (0, 1, 2)
# Minutes by difficulty: each range begins where the one below it ends.
MINUTES = {1: (3, 5), 2: (5, 8), 3: (8, 12), 4: (12, 20), 5: (20, 30)}
NONSENSE = (lambda *a: None, lambda *a: "yes", lambda *a: object(), lambda: 1, lambda *a: a[99])


@pytest.fixture(params=EXERCISES, ids=lambda e: e.id)
def exercise(request):
    return request.param


def stub(*arguments):
    raise NotImplementedError


def test_ids_are_unique_and_name_their_file():
    ids = [e.id for e in EXERCISES]
    assert len(set(ids)) == len(ids)
    for module in lessons():
        lesson, folder = module.__name__.split(".")[-2], Path(module.__file__).parent
        files = {path.stem for path in folder.glob("*.py")} - {"__init__", "common"}
        assert {e.id for e in module.EXERCISES} == {f"{lesson}.{name}" for name in files}
        assert module.LESSON[:2].isdigit()


def test_description_is_complete(exercise):
    assert 1 <= exercise.difficulty <= 5
    assert exercise.minutes > 0
    assert exercise.points > 0
    assert 1 <= len(exercise.hints) <= 3
    assert len(exercise.mistakes) >= 3
    assert len(exercise.also_right) >= 1
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)
    for text in (exercise.title, *exercise.hints, *(m.explanation for m in exercise.mistakes)):
        assert text.strip()
        assert "!" not in text.replace("!=", "")
    for text in (*exercise.hints, *(m.explanation for m in exercise.mistakes)):
        assert text.endswith((".", "?", ")")), text


def is_short(value):
    return isinstance(value, torch.Tensor) and 0 < value.numel() <= 12


def test_inputs_are_shown_under_the_names_of_the_stub_wherever_one_is_small(exercise):
    """In a fresh process of a student's copy too: the names are data of the library, not read from the masters."""
    assert given.stub_names(exercise.id) == tuple(STUBS[exercise.id])
    for case in exercise.cases(torch.Generator().manual_seed(SEEDS[0])):
        shown = given.given(exercise, case)
        names = re.findall(r"(?:^|, )(\w+) (?:=|of shape|with|of type) ", shown)
        assert names == (STUBS[exercise.id] if shown else []), f"{case.name}: {shown}"
        if any(isinstance(value, int | float | str) or is_short(value) for value in case.arguments):
            assert shown, f"nothing of {case.name} is shown"


def test_names_are_kept_of_the_exercises_that_exist():
    assert json.loads(given.NAMES.read_text(encoding="utf-8")) == dict(sorted(STUBS.items()))


def test_minutes_grow_with_difficulty(exercise):
    least, most = MINUTES[exercise.difficulty]
    assert least <= exercise.minutes <= most, f"{exercise.minutes} minutes at difficulty {exercise.difficulty}"


def test_the_first_lesson_says_which_dtypes_there_are():
    dtypes = {
        argument.dtype
        for exercise in EXERCISES
        for case in drawn(exercise, SEEDS[0]).cases
        for argument in case.arguments
        if isinstance(argument, torch.Tensor) and argument.is_floating_point()
    }
    master = (Path(__file__).parents[2] / "solutions" / "00_start_here.py").read_text(encoding="utf-8")
    assert dtypes == {torch.float32, torch.float64}
    assert "may be float32 or float64 tensors, and you may return either" in master


def test_reference_is_right(exercise):
    for seed in SEEDS:
        verdict = judge(exercise, exercise.reference, seed)
        right = (verdict.state, verdict.n_right) == ("right", verdict.n_cases)
        assert right, f"{exercise.id}, seed {seed}: {verdict.difference}"
        assert verdict.n_cases >= 2


def test_the_courses_own_function_is_right(exercise):
    """So that what follows an exercise is the same with it as with a right answer."""
    if exercise.library is None:
        return
    for seed in SEEDS:
        verdict = judge(exercise, exercise.library, seed)
        assert verdict.state == "right", f"{exercise.id}, seed {seed}: {verdict.case.name}: {verdict.difference}"


def test_stub_is_not_attempted(exercise):
    verdict = judge(exercise, stub)
    assert verdict.state == "not attempted"
    assert f'hint("{exercise.id}")' in show.as_text(verdict, Record())


def test_nonsense_is_wrong_and_can_be_shown(exercise):
    for number, nonsense in enumerate(NONSENSE):
        verdict = judge(exercise, nonsense)
        said = f"{exercise.id}, nonsense {number}: {verdict.difference}"
        assert verdict.state == "wrong", said
        assert verdict.mistake is None, said
        assert exercise.title in html.unescape(show.as_html(verdict, Record())), said


def test_right_answers_written_differently_pass(exercise):
    refused = [
        f"{exercise.id}-{variant.name}, seed {seed}: {verdict.case.name}: {verdict.difference}"
        for variant in exercise.also_right
        for seed in SEEDS
        if (verdict := judge(exercise, variant.function, seed)).state != "right"
    ]
    assert not refused, "\n".join(refused)


def test_named_mistakes_are_rejected_and_recognised(exercise):
    missed = [
        f"{exercise.id}-{mistake.name}, written in way {way}, seed {seed}: {why}"
        for mistake in exercise.mistakes
        for way, function in enumerate(mistake.functions)
        for seed in SEEDS
        if (why := not_recognised(mistake, judged(exercise, function, seed)))
    ]
    assert not missed, "\n".join(missed)


def judged(exercise, function, seed):
    """As `judge`; on all but one seed, what a named mistake gives is taken from where it is looked up anyway."""
    if seed == SEEDS[0]:
        return judge(exercise, function, seed)
    known = drawn(exercise, seed)
    return conclude(known, [known.outcome(function, at) for at in range(len(known.cases))])


def not_recognised(mistake, verdict):
    """In words why a verdict does not name the mistake to the student; None where it does."""
    if why := misjudged(mistake, verdict):
        return why
    text = show.as_text(verdict, Record())
    named = (mistake.explanation,) if verdict.mistake else ()
    unsaid = [said for said in (*named, verdict.case.name) if said not in text]
    return f"not said: {unsaid}" if unsaid else None


def test_pictures_draw_and_one_that_raises_fails_nothing(exercise):
    if exercise.picture is None:
        return
    wrong = judge(exercise, exercise.mistakes[0].function)
    assert "data:image/png" in show.as_html(wrong, Record()), "the picture should be drawn for a wrong answer"
    broken = dataclasses.replace(wrong, exercise=dataclasses.replace(exercise, picture=lambda *a: 1 / 0))
    assert "data:image" not in show.as_html(broken, Record())
    assert exercise.title in html.unescape(show.as_html(broken, Record()))
