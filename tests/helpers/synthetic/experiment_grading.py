"""The grader graded: a made-up class of which the right grades are known, how many it gets, and how fast."""

import io
import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from synthetic import classroom
from synthetic.classroom import Truth

from course_lib.grading import engine, run, store
from course_lib.grading.intake.submission import Submission
from course_lib.grading.intake.submissions import find, newest
from course_lib.grading.records import Result, Task
from course_lib.grading.sandbox import session
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """`n_phases` submissions are graded once more, one after the other, to see where the time goes."""

    lesson: str = "04"
    n_students: int = 200
    jobs: int = 2
    n_phases: int = 20


QUICK = Sizes("00", 4, 2, 2)


def steps(sizes: Sizes) -> list[Step]:
    return [Step("class", partial(whole_class, sizes)), Step("phases", partial(phases, sizes))]


def whole_class(sizes: Sizes, seed: int) -> Tables:
    """Make the class, grade it as an instructor would, and compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truths = classroom.make(folder, sizes.lesson, sizes.n_students, seed, grading_seed=seed)
        request = run.Request(folder / classroom.SUBMISSIONS, folder / "out", sizes.lesson, jobs=sizes.jobs, seed=seed)
        start = time.perf_counter()
        code = run.run(request, Console(file=io.StringIO()))
        seconds = time.perf_counter() - start
        if code:
            raise KeyboardInterrupt
        stored = json.loads((folder / "out" / "grades.json").read_text(encoding="utf-8"))
    results = [store.from_json(record) for record in stored["results"]]
    speed = {"submissions": len(truths), "jobs": sizes.jobs, "seconds": round(seconds, 1)}
    return {
        "speed": [speed | {"a_minute": round(60 * len(truths) / seconds, 1)}],
        "agreement": agreement(truths, results),
        "differences": [{"said": difference} for difference in classroom.differences(truths, results)],
    }


def agreement(truths: list[Truth], results: list[Result]) -> list[dict[str, str | int]]:
    """How many submissions got exactly what they deserve, points, states and mistakes; by kind, and all of them."""
    by_student = {result.student: result for result in results}
    kinds: dict[str, list[bool]] = {"all": []}
    for truth in truths:
        mine = [by_student[truth.student]] if truth.student in by_student else []
        right = not classroom.differences([truth], mine)
        kinds["all"].append(right)
        kinds.setdefault(truth.kind, []).append(right)
    return [{"kind": kind, "submissions": len(outcomes), "equal": sum(outcomes)} for kind, outcomes in kinds.items()]


def phases(sizes: Sizes, seed: int) -> Tables:
    """Seconds of the parts of grading one submission, without others in parallel."""
    plan = engine.plan(sizes.lesson, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truths = classroom.make(folder, sizes.lesson, sizes.n_phases, seed, grading_seed=seed)
        kinds = {truth.student: truth.kind for truth in truths}
        submissions = newest(find(folder / classroom.SUBMISSIONS), plan.stem)
        return {
            "phases": [
                {"kind": kinds[submission.student]} | phases_of(submission, plan)
                for submission in submissions
                if submission.path
            ]
        }


def phases_of(submission: Submission, plan: engine.Plan) -> dict[str, float]:
    """As engine.grade, with the time taken in between."""
    times, content = [time.perf_counter()], submission.read()
    exercises = engine.exercises_of(plan)
    inputs = [engine.draw(exercise, submission.student, plan.seed) for exercise in exercises]
    tasks = [
        Task(exercise.id, plan.functions[exercise.id], *(tuple(case.arguments for case in cases) for cases in drawn))
        for exercise, drawn in zip(exercises, inputs, strict=True)
    ]
    times.append(time.perf_counter())
    answers = session.run(content, tasks, plan.limits, plan.kind)
    times.append(time.perf_counter())
    for exercise, cases, answer in zip(exercises, inputs, answers, strict=True):
        engine.exercise_result(exercise, *cases, answer)
    times.append(time.perf_counter())
    functions = sum(answer.seconds for answer in answers)
    spent = {
        "inputs": times[1] - times[0],
        "sandbox": times[2] - times[1] - functions,
        "functions": functions,
        "comparison": times[3] - times[2],
    }
    return {name: round(seconds, 3) for name, seconds in spent.items()}


EXPERIMENT = Experiment("The grader on a class of which the right grades are known", Sizes(), QUICK, steps)
