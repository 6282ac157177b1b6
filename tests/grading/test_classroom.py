"""The made-up class: what it writes is what it says it wrote, and the same seed writes it again."""

import json
import random

import pytest
from submitting import needs_sandbox
from synthetic import classroom
from synthetic.answers import STYLES, known, shown_only, talking
from synthetic.kinds import KINDS
from synthetic.notebooks import blank
from synthetic.setups import SETUPS, set_up

from course_lib.checking.call import Outcome, call
from course_lib.checking.compare import close
from course_lib.checking.judge import judge
from course_lib.grading import engine
from course_lib.grading.intake.submission import Submission
from course_lib.grading.records import Result
from course_lib.workbook.catalogue import lessons

LESSONS = [module.LESSON[:2] for module in lessons()]


def loaded(answer, style):
    """The function that a text makes. It is the course's own text, so it may run here."""
    names = {}
    exec("\n\n".join([*answer.needs, style(answer)]), names)
    return names[answer.node.name]


def same(one: Outcome, other: Outcome) -> bool:
    if one.error or other.error:
        return (one.error or "").split(":")[0] == (other.error or "").split(":")[0]
    return close(one.value, other.value) is None


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_way_to_answer_is_written_as_the_function_that_it_is(lesson, generator):
    plan = engine.plan(lesson)
    module = next(module for module in lessons() if plan.lesson == module.LESSON)
    ways = known(module, plan.functions)
    assert set(ways) == set(plan.functions)
    for exercise in module.EXERCISES:
        found = [way.mistake for way in ways[exercise.id]]
        assert found[: 1 + len(exercise.also_right)] == [""] * (1 + len(exercise.also_right))
        assert list(filter(None, found)) == [mistake.name for mistake in exercise.mistakes for _ in mistake.functions]
        cases = exercise.cases(generator)
        for number, way in enumerate(ways[exercise.id]):
            function = loaded(way, STYLES[number % len(STYLES)])
            for case in cases[:: len(cases) - 1]:
                mine, its = (call(f, case.arguments) for f in (function, way.function))
                assert same(mine, its), f"{exercise.id}, {way.label}: {mine.error or mine.value}"


@pytest.mark.parametrize("style", [*STYLES, talking])
def test_a_style_changes_nothing(style):
    plan = engine.plan("00")
    module = next(module for module in lessons() if plan.lesson == module.LESSON)
    ways = known(module, plan.functions)
    for exercise in module.EXERCISES:
        for way in ways[exercise.id][:: len(ways[exercise.id]) - 1]:
            verdict = judge(exercise, loaded(way, style))
            assert (verdict.mistake.name if verdict.mistake else "") == way.mistake
            assert verdict.state == ("wrong" if way.mistake else "right")


def test_an_answer_for_what_was_shown_is_right_there_and_nowhere_else(generator):
    plan = engine.plan("04")
    module = next(module for module in lessons() if plan.lesson == module.LESSON)
    ways = known(module, plan.functions)
    caught = 0
    for exercise in module.EXERCISES:
        answer = shown_only(ways[exercise.id][0], exercise)
        written = loaded(answer, STYLES[0])
        assert judge(exercise, answer.function).state == judge(exercise, written).state == "right"
        visible, unseen = engine.draw(exercise, "somebody", 0)
        outcomes = [call(answer.function, case.arguments) for case in visible + unseen]
        assert all(
            same(one, call(written, case.arguments)) for one, case in zip(outcomes, visible + unseen, strict=True)
        )
        caught += any(outcome.error for outcome in outcomes[len(visible) :])
    assert caught > len(module.EXERCISES) // 2


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    return folder, classroom.make(folder, "00", len(KINDS), 0)


def test_every_kind_is_there_and_the_truth_lies_outside(small):
    folder, truths = small
    assert [truth.kind for truth in truths] == list(KINDS)
    stored = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    assert [each["student"] for each in stored] == [truth.student for truth in truths]
    assert stored[0]["exercises"][0]["points"] == truths[0].exercises[0].points
    assert {path.name for path in folder.iterdir()} == {"submissions", "truth.json"}
    assert {path.name for path in (folder / "submissions").iterdir()} == {truth.student for truth in truths}


def test_the_truth_has_every_state(small):
    _, truths = small
    by_kind = {truth.kind: truth for truth in truths}
    full = sum(exercise.points for module in lessons()[:1] for exercise in module.EXERCISES)
    assert by_kind["right"].points == by_kind["right, in many styles"].points == full
    assert 0 < by_kind["right on what is shown"].points < full
    for kind, state in {
        "untouched": "not attempted",
        "no notebook": "no submission",
        "empty file": "failed",
        "another lesson": "no submission",
        "another lesson under this name": "not found",
    }.items():
        assert {each.state for each in by_kind[kind].exercises} == {state}
        assert by_kind[kind].points == 0
    states = {each.state for truth in truths for each in truth.exercises}
    assert states == {"right", "partly", "wrong", "not attempted", "not found", "failed", "no submission"}


def test_two_hundred_make_every_mistake_and_come_again_from_the_same_seed(tmp_path):
    desk = classroom._desk("04")
    plan = classroom._plan(desk, 200)
    assert len(plan) == 200
    assert [kind for kind, _ in plan[: len(KINDS)]] == list(KINDS)
    numbers = [hand_in.keywords["number"] for kind, hand_in in plan if kind == "mistakes"]
    made = {(way.exercise, way.mistake) for number in numbers for way in desk.wrong(number).values()}
    assert made == {(way.exercise, way.mistake) for ways in desk.known.values() for way in ways if way.mistake}
    _, hand_in = plan[30]
    again = [hand_in(desk, random.Random(seed)).files for seed in ("a", "a", "b")]
    assert again[0] == again[1] != again[2]


def test_bad_requests_are_told(tmp_path):
    with pytest.raises(ValueError, match="layout 'blackboard'; expected one of folders, "):
        classroom.make(tmp_path, "04", 1, 0, layout="blackboard")
    with pytest.raises(ValueError, match="got lesson '77'"):
        classroom.make(tmp_path, "77", 1, 0)


@needs_sandbox
@pytest.mark.parametrize("first", range(0, len(SETUPS), 5))
def test_what_is_set_up_at_the_top_level_is_graded_as_it_is_worth(first):
    """Every way of setting something up, one an exercise: grades equal the truth, which no grader computed."""
    desk, plan, rng = classroom._desk("00"), engine.plan("00"), random.Random(first)
    answers = desk.right() if not first else desk.right() | desk.mixed(rng)
    notebook = blank(desk.stem)
    set_up(notebook, answers, [*SETUPS][first:] + [*SETUPS][:first], rng)
    work = desk.work(answers, notebook)
    result = engine.grade_content(Submission("somebody", "nowhere"), work.files[0].content, plan)
    due = classroom.truth(desk.exercises, "somebody", "set up", work, plan.seed)
    assert classroom.differences([due], [result]) == []
    assert [row.notes for row in result.exercises] == [()] * len(result.exercises)


def test_differences_are_named(small):
    _, truths = small
    due = truths[0]
    exercises = engine.unreadable(_submission(due.student), engine.plan("00"), "lost").exercises
    lost = Result(due.student, "00", "", 0, exercises)
    assert classroom.differences([due], []) == [f"{due.student} (right): no rows"]
    assert len(classroom.differences([due], [lost])) == len(exercises)
    assert f"{due.student} has 2 results" in classroom.differences([due], [lost, lost])
    assert "somebody is not in the class" in classroom.differences([], [Result("somebody", "00", "", 0, ())])
    assert "rows for " in classroom.differences([due], [Result(due.student, "00", "", 0, exercises[1:])])[0]


def _submission(student):
    return Submission(student, "nowhere", problem="lost")
