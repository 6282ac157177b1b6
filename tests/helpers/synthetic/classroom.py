"""A made-up class of which the right grades are known, so that the grader itself can be graded.

The truth does not come from the grader: each student's functions are called here, as functions of the exercises'
own file, and judged. No notebook is read and no sandbox is started for it.
"""

import json
import random
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from synthetic.answers import known
from synthetic.kinds import KINDS, Desk, Does, Kind, Work, mistaken
from synthetic.layouts import LAYOUTS

from course_lib.checking.call import call
from course_lib.checking.exercise import Exercise
from course_lib.checking.judge import verdict
from course_lib.grading import engine
from course_lib.grading.records import Result
from course_lib.workbook.masters import masters

SUBMISSIONS, TRUTH = "submissions", "truth.json"
_GIVEN = ("ada", "alan", "barbara", "claude", "donald", "edsger", "frances", "grace", "hedy", "john", "radia")
_FAMILY = ("adeyemi", "bianchi", "costa", "dubois", "fischer", "garcia", "haddad", "ito", "jansen", "kaya", "novak")


@dataclass(frozen=True)
class Deserved:
    """What one exercise of one student is worth."""

    exercise: str
    state: str
    points: float
    mistake: str = ""


@dataclass(frozen=True)
class Truth:
    """The grades that one student should get. `kind` says what was handed in."""

    student: str
    kind: str
    exercises: tuple[Deserved, ...]

    @property
    def points(self) -> float:
        return round(sum(exercise.points for exercise in self.exercises), 2)


def make(
    folder: Path, lesson: str, n_students: int, seed: int, layout: str = "folders", grading_seed: int = 0
) -> list[Truth]:
    """Write a class into folder/submissions, and what it deserves into folder/truth.json.

    Args:
        lesson: "04", "wanda" or "04_wanda".
        n_students: every kind of student is there once before any comes twice; then every named mistake.
        layout: as which system exports submissions; see LAYOUTS.
        grading_seed: the seed that the class will be graded with, on which its inputs depend.

    Raises:
        ValueError: for a lesson or a layout that does not exist.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"got layout {layout!r}; expected one of {', '.join(LAYOUTS)}.")
    desk = _desk(lesson)
    students = {}
    for number, (kind, hand_in) in enumerate(_plan(desk, n_students)):
        rng = random.Random(f"{seed}/{number}")
        students[_name(number, rng)] = (kind, hand_in(desk, rng))
    LAYOUTS[layout](folder / SUBMISSIONS, {student: work for student, (_, work) in students.items()}, desk.stem)
    truths = [truth(desk.exercises, student, kind, work, grading_seed) for student, (kind, work) in students.items()]
    text = json.dumps([asdict(grades) for grades in truths], indent=1, ensure_ascii=False)
    (folder / TRUTH).write_text(text + "\n", encoding="utf-8")
    return truths


def _desk(lesson: str) -> Desk:
    """The lesson, and another one of which no function has the name of one of its own."""
    desk = _alone(masters([lesson])[0])
    others = (_alone(master) for master in masters() if master.stem != desk.stem)
    names = set(desk.functions.values())
    another = next((other for other in others if names.isdisjoint(other.functions.values())), None)
    return replace(desk, another=another)


def _alone(master: Path) -> Desk:
    plan = engine.plan(master.stem)
    ways = known(engine.module_of(plan.functions), plan.functions)
    return Desk(plan.stem, plan.functions, engine.exercises_of(plan), ways)


def _plan(desk: Desk, n_students: int) -> list[tuple[str, Kind]]:
    """Who is in the class: every kind, then every mistake, then people of all sorts."""
    n_mistakes = max(len([way for way in ways if way.mistake]) for ways in desk.known.values())
    people = list(KINDS.items())
    people += [("mistakes", partial(mistaken, number=number)) for number in range(n_mistakes)]
    while len(people) < n_students:
        people += [(kind, KINDS[kind]) for kind in ("mixture", "right, in many styles", "mixture", "half done")]
    return people[:n_students]


def _name(number: int, rng: random.Random) -> str:
    return f"{rng.choice(_FAMILY)}{rng.choice(_GIVEN)}_{1000 + number}"


def truth(exercises: tuple[Exercise, ...], student: str, kind: str, work: Work, seed: int) -> Truth:
    """What a student deserves."""
    return Truth(
        student, kind, tuple(deserved(exercise, student, work.does[exercise.id], seed) for exercise in exercises)
    )


def deserved(exercise: Exercise, student: str, does: Does, seed: int) -> Deserved:
    """Points and state of one exercise: every case counts the same, whatever the mistake is called."""
    if isinstance(does, str):
        return Deserved(exercise.id, does, 0.0)
    visible, unseen = engine.draw(exercise, student, seed)
    cases, outcomes = visible + unseen, []
    for case in cases:
        outcomes.append(call(does, case.arguments))
        if outcomes[-1].endless:
            break
    judged = verdict(exercise, cases, outcomes)
    state = "partly" if judged.state == "wrong" and judged.n_right else judged.state
    points = round(exercise.points * judged.share, 2)
    return Deserved(exercise.id, state, points, judged.mistake.name if judged.mistake else "")


def differences(truths: list[Truth], results: list[Result]) -> list[str]:
    """Where grades are not what was deserved, in words; rows that are missing or too many included."""
    graded = [result.student for result in results]
    deviations = [f"{name} has {graded.count(name)} results" for name in sorted(set(graded)) if graded.count(name) > 1]
    deviations += [
        f"{name} is not in the class" for name in sorted(set(graded) - {member.student for member in truths})
    ]
    by_student = {result.student: result for result in results}
    for due in truths:
        result = by_student.get(due.student)
        deviations += [f"{due.student} ({due.kind}): {difference}" for difference in _differences(due, result)]
    return deviations


def _differences(truth: Truth, result: Result | None) -> list[str]:
    if result is None:
        return ["no rows"]
    graded = tuple(Deserved(e.exercise, e.state, e.points, e.mistake) for e in result.exercises)
    if [row.exercise for row in graded] != [row.exercise for row in truth.exercises]:
        return [f"rows for {', '.join(row.exercise for row in graded)}"]
    pairs = zip(graded, truth.exercises, strict=True)
    return [f"got {got}, deserved {due}" for got, due in pairs if got != due]
