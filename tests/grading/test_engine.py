"""The engine alone: what the sandbox brings back is made up here."""

import contextlib
import dataclasses
import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from course_lib.checking import call as call_limits
from course_lib.checking import judge
from course_lib.checking.call import Outcome, call
from course_lib.grading import engine, hidden_cases, store
from course_lib.grading.intake.submission import NOTEBOOK_BYTES, Submission
from course_lib.grading.intake.submissions import find as find_submissions
from course_lib.grading.intake.submissions import newest
from course_lib.grading.records import Answer, seed_of
from course_lib.lessons.wanda import exercises
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.workbook.catalogue import find

SCORE, INTERVAL = find("wanda.score"), find("wanda.interval")
ADA = Submission("ada", "ada/04_wanda.ipynb")


@pytest.fixture(scope="module")
def plan():
    return engine.plan("wanda", seed=3)


@pytest.fixture
def answered(monkeypatch):
    """Grade ada, with answers made from the tasks that the sandbox was given."""

    def grade(plan, answer, submission=ADA, content=b"{}"):
        monkeypatch.setattr(engine.session, "run", lambda *job: [answer(task) for task in job[1]])
        return engine.grade_content(submission, content, plan)

    return grade


def ran(task, function, **fields):
    cases = (*task.arguments, *task.hidden)
    return Answer(task.exercise, "ran", tuple(call(function, each) for each in cases), **fields)


def reference(task):
    return ran(task, find(task.exercise).reference)


def row(result, exercise):
    return next(each for each in result.exercises if each.exercise == exercise)


def test_a_lesson_is_found_by_any_of_its_names(plan):
    assert plan.lesson == "04 Wanda"
    assert plan.stem == "04_wanda"
    assert plan.functions["wanda.score"] == "wanda_score"
    assert engine.plan("04", 3) == engine.plan("4", 3) == plan
    with pytest.raises(ValueError, match="got lesson 'quantum'"):
        engine.plan("quantum")


def test_a_lesson_whose_master_lacks_a_check_is_refused(tmp_path):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "04_wanda.py").write_text('check("wanda.score", wanda_score)\n')
    with pytest.raises(ValueError, match=r"04_wanda.py has no check of wanda.accumulate, "):
        engine.plan("04", root=tmp_path)
    (tmp_path / "solutions" / "77_unwritten.py").write_text("")
    with pytest.raises(ValueError, match="got lesson '77_unwritten', which has no exercises to grade"):
        engine.plan("77", root=tmp_path)


def test_the_key_follows_whatever_decides_about_points(plan, monkeypatch):
    assert engine.plan("04", seed=4).key != plan.key
    assert engine.plan("03", seed=3).key != plan.key
    monkeypatch.setattr(engine, "VERSION", 99)
    assert engine.plan("04", seed=3).key != plan.key


def test_the_key_follows_the_texts_of_the_named_mistakes(plan, tmp_path):
    """They are feedback, so a corrected text reaches students with `--resume`."""
    shutil.copytree(Path(exercises.__file__).parent, tmp_path / "exercises")
    copy = SimpleNamespace(__file__=str(tmp_path / "exercises" / "__init__.py"))
    assert engine._key(copy, plan.functions, plan.seed, plan.limits) == plan.key
    text = tmp_path / "exercises" / "score.md"
    text.write_text(text.read_text(encoding="utf-8").replace("wrong axis", "other axis", 1), encoding="utf-8")
    assert engine._key(copy, plan.functions, plan.seed, plan.limits) != plan.key


def test_everyone_gets_other_inputs_and_the_same_ones_again():
    def numbers(student, seed=0):
        return engine.draw(SCORE, student, seed)[0][1].arguments[0]

    assert torch.equal(numbers("ada"), numbers("ada"))
    assert not torch.equal(numbers("ada"), numbers("alan"))
    assert not torch.equal(numbers("ada"), numbers("ada", seed=1))
    assert len({seed_of(0, student, exercise) for student in ("a", "b") for exercise in ("x", "y")}) == 4


def test_hidden_cases_are_asked_too(plan, answered):
    asked = {}
    answered(plan, lambda task: asked.setdefault(task.exercise, task) and reference(task))
    generator = torch.Generator().manual_seed(seed_of(3, "ada", "wanda.score"))
    n_visible, n_hidden = len(SCORE.cases(generator)), len(hidden_cases.hidden_cases(SCORE, generator))
    assert n_hidden >= 1
    assert (len(asked["wanda.score"].arguments), len(asked["wanda.score"].hidden)) == (n_visible, n_hidden)
    assert asked["wanda.score"].function == "wanda_score"
    assert list(asked) == [each.id for each in (SCORE, *map(find, list(asked)[1:]))]


def test_all_right_earns_everything(plan, answered):
    result = answered(plan, reference)
    assert [each.state for each in result.exercises] == ["right"] * len(EXERCISES)
    assert result.points == result.of == sum(find(each.exercise).points for each in result.exercises)
    assert not any(each.hint or each.reason or each.mistake for each in result.exercises)
    assert (result.student, result.lesson, result.seed) == ("ada", "04 Wanda", 3)


def test_every_case_counts_the_same_and_a_mistake_has_its_name(plan, answered):
    mistake = next(each for each in SCORE.mistakes if each.name == "sum of absolute values")
    result = row(answered(plan, lambda task: ran(task, mistake.function)), "wanda.score")
    n_right = sum(case.difference is None for case in result.cases)
    assert 0 < n_right < len(result.cases)
    assert result.points == round(2 * n_right / len(result.cases), 2)  # the name changes nothing
    assert (result.state, result.mistake) == ("partly", "sum of absolute values")
    assert result.explanation == mistake.explanation
    assert result.hint == SCORE.hints[0]
    assert result.reason.startswith(next(case for case in result.cases if case.difference).name)


def test_a_wrong_case_of_the_notebook_says_what_it_was_given_and_a_hidden_one_does_not(plan, answered):
    cases = row(answered(plan, lambda task: ran(task, lambda *arguments: arguments[0] * 0)), "wanda.score").cases
    assert any(case.given.startswith("weight = [[") for case in cases if not case.hidden)
    assert not any(case.given for case in cases if case.hidden or case.difference is None)


def test_what_was_expected_of_a_hidden_case_stays_hidden(plan, answered):
    def right_where_shown(task):
        visible = len(engine.draw(find(task.exercise), "ada", 3)[0])
        outcomes = reference(task).outcomes
        return Answer(task.exercise, "ran", outcomes[:visible] + (Outcome(value=123.0),) * (len(outcomes) - visible))

    result = row(answered(plan, right_where_shown), "wanda.interval")
    assert {case.difference for case in result.cases if case.hidden} == {"wrong"}
    assert {case.difference for case in result.cases if not case.hidden} == {None}
    assert result.reason.startswith("wrong on a hidden case: ")
    assert "expected" not in json.dumps(dataclasses.asdict(result) | {"explanation": ""})


@pytest.mark.parametrize(("status", "state"), [("not found", "not found"), ("not loaded", "failed")])
def test_what_is_not_there_has_the_reason(status, state, plan, answered):
    result = answered(plan, lambda task: Answer(task.exercise, status, reason="cell 3 does not parse"))
    assert {(each.state, each.points, each.reason) for each in result.exercises} == {
        (state, 0.0, "cell 3 does not parse")
    }


def test_a_stub_is_not_attempted(plan, answered):
    stub = Outcome(error="it raised NotImplementedError: replace this line", unattempted=True)
    result = answered(plan, lambda task: Answer(task.exercise, "ran", (stub,)))
    assert {(each.state, each.points, each.hint) for each in result.exercises} == {("not attempted", 0.0, "")}


def test_who_refuses_one_case_has_attempted_the_others(plan, answered):
    refused = Outcome(error="it raised NotImplementedError: no such kernel", unattempted=True)
    result = answered(plan, lambda task: Answer(task.exercise, "ran", (refused, *reference(task).outcomes[1:])))
    score = row(result, "wanda.score")
    assert (score.state, score.points) == ("partly", round(2 * (1 - 1 / len(score.cases)), 2))
    assert [bool(case.difference) for case in score.cases] == [True] + [False] * (len(score.cases) - 1)


def test_cases_finished_before_the_end_count(plan, answered):
    reason = "It was stopped after 60 seconds."
    result = answered(plan, lambda task: Answer(task.exercise, "killed", reference(task).outcomes[:2], reason))
    score = row(result, "wanda.score")
    assert (score.state, score.reason) == ("partly", reason)
    assert score.points == round(2 * 2 / len(score.cases), 2)
    assert [case.difference for case in score.cases][:2] == [None, None]
    assert score.cases[2].difference == reason
    assert score.cases[-1].difference == "wrong"
    nothing = answered(plan, lambda task: Answer(task.exercise, "killed", (), reason))
    assert {(each.state, each.points) for each in nothing.exercises} == {("failed", 0.0)}


def test_what_was_ended_from_outside_is_the_graders_failure_and_keeps_its_rows(plan, answered):
    def lost(task):
        if task.exercise == "wanda.score":
            return Answer(task.exercise, "killed", reason="The sandbox ended.", lost=True)
        return reference(task)

    result = answered(plan, lost)
    assert engine.was_lost(result)
    assert result.problem.startswith(engine.FAILED)
    assert "wanda.score" in result.problem
    assert (row(result, "wanda.score").state, row(result, "wanda.score").reason) == ("failed", "The sandbox ended.")
    assert result.points == result.of - SCORE.points
    assert not engine.was_lost(answered(plan, reference))


def test_seconds_are_those_of_a_submission_and_part_of_the_key(plan):
    longer = engine.plan("wanda", seed=3, seconds=600.0)
    assert (longer.limits.submission_seconds, longer.limits.seconds) == (600.0, 300.0)
    assert (longer.limits.call_seconds, longer.limits.calls_seconds) == (call_limits.LIMIT, call_limits.TOGETHER)
    assert longer.key != plan.key
    assert (plan.limits.submission_seconds, plan.limits.seconds) == (240.0, 120.0)


def test_comparing_has_seconds_for_all_exercises_together(plan, answered, monkeypatch):
    """Each of them takes a second; the inner limit, of one exercise, comes after each outer one."""
    given = []

    @contextlib.contextmanager
    def limited(seconds):
        given.append(seconds)
        yield

    now = iter(range(100))
    monkeypatch.setattr(engine, "limited", limited)
    monkeypatch.setattr(engine, "COMPARISON_SECONDS", 5.0)
    monkeypatch.setattr(engine.time, "thread_time", lambda: float(next(now)))
    answered(plan, reference)
    assert given[::2] == [max(5.0 - number, 1.0) for number in range(len(EXERCISES))]


def test_more_outcomes_than_cases_earn_no_more(plan, answered):
    result = answered(plan, lambda task: dataclasses.replace(reference(task), outcomes=reference(task).outcomes * 3))
    assert result.points == result.of


@pytest.mark.parametrize("error", [RuntimeError("odd"), engine.DidNotFinish()])
def test_a_comparison_that_breaks_costs_one_exercise(error, plan, answered, monkeypatch):
    verdict = judge.verdict

    def breaks(exercise, *rest):
        if exercise.id == "wanda.score":
            raise error
        return verdict(exercise, *rest)

    monkeypatch.setattr(engine.judge, "verdict", breaks)
    result = answered(plan, reference)
    assert row(result, "wanda.score").state == "failed"
    assert "could not be compared" in row(result, "wanda.score").reason
    assert result.points == result.of - SCORE.points


def test_time_that_is_over_after_a_comparison_costs_one_exercise(plan, answered, monkeypatch):
    """The alarm of all comparisons together may ring when that of one is no longer there to be caught."""
    rows = engine._case_results

    def rings(exercise, *rest):
        if exercise.id == "wanda.score":
            raise engine.DidNotFinish
        return rows(exercise, *rest)

    monkeypatch.setattr(engine, "_case_results", rings)
    result = answered(plan, reference)
    assert row(result, "wanda.score").state == "failed"
    assert "could not be compared: DidNotFinish" in row(result, "wanda.score").reason
    assert (result.points, result.problem, result.grader_failed) == (result.of - SCORE.points, "", False)


def test_warnings_of_references_and_mistakes_stay_off_the_terminal(plan, answered, monkeypatch):
    verdict = judge.verdict

    def warns(*arguments):
        torch.ones(1).std()  # "degrees of freedom is <= 0"
        return verdict(*arguments)

    monkeypatch.setattr(engine.judge, "verdict", warns)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        answered(plan, reference)
    assert [str(each.message) for each in seen] == []


def test_an_answer_that_is_right_has_no_reason_why_it_is_not(plan, answered):
    """Its process may have ended after the last case in a way of its own."""
    reason = "It ended its process (exit code 0) before every case was run."
    result = answered(plan, lambda task: dataclasses.replace(reference(task), status="killed", reason=reason))
    assert {(each.state, each.reason) for each in result.exercises} == {("right", "")}


def test_a_file_may_be_called_like_a_failure_of_the_grader(plan, tmp_path):
    (tmp_path / "mallory").mkdir()
    (tmp_path / "mallory" / f"{engine.FAILED}.ipynb").symlink_to(tmp_path / "nowhere")
    (handed_in,) = newest(find_submissions(tmp_path), plan.stem)
    assert handed_in.problem.startswith(engine.FAILED)
    result = engine.grade(handed_in, plan)
    assert (result.problem, result.grader_failed, engine.was_lost(result)) == (handed_in.problem, False, False)
    assert engine.failed(handed_in, plan, KeyError("x")).grader_failed


def test_what_a_submission_says_is_kept_short(plan, answered):
    long = "x" * 100_000
    said = {"notes": (long,) * 100, "touched": (long,) * 100, "uses": (long,) * 100, "code": long}
    broken = Outcome(error=long, trace=long)

    def talks(task):
        return Answer(task.exercise, "ran", (broken,) * len(task.arguments), **said)

    kept = json.dumps(store.to_json(answered(plan, talks)))
    assert len(kept) < len(EXERCISES) * 150_000


@pytest.mark.parametrize("trouble", ["missing", "huge", "nothing"])
def test_what_cannot_be_read_has_rows_with_the_reason(trouble, plan, tmp_path):
    path = tmp_path / "04_wanda.ipynb"
    if trouble == "huge":
        with path.open("wb") as file:
            file.truncate(NOTEBOOK_BYTES + 1)
    submission = Submission("ada", "ada", None if trouble == "nothing" else path, problem="She handed in a poem.")
    result = engine.grade(submission, plan)
    said = {"missing": "No such file", "huge": "more than 32 MiB", "nothing": "She handed in a poem."}[trouble]
    assert said in result.problem
    assert [(each.state, each.points) for each in result.exercises] == [("no submission", 0.0)] * len(EXERCISES)
    assert all(said in each.reason for each in result.exercises)
    assert result.of == sum(each.of for each in result.exercises) > 0
