"""The second set of hostile submissions: each earns the points that it deserves, from the notebook to the row.

The first set is in tests/grading/sandbox/attacks, and looks at what comes out of the sandbox. Here all answers stand in
one notebook and are run in one sandbox, and what is looked at are points, and what the student is told.
"""

import re
from functools import cache
from itertools import chain

import pytest
from hostile_answer import HostileAnswer
from hostile_tables import dressed, ending, remembering
from submitting import SMALL, needs_sandbox, notebook

from course_lib.grading import engine
from course_lib.grading.records import Result, Task
from course_lib.grading.report import feedback
from course_lib.grading.sandbox import session
from course_lib.workbook.catalogue import find

TABLES = (dressed, ending, remembering)
ALL = {name: answer for table in TABLES for name, answer in table.ANSWERS.items()}
HONEST = """
def honest(weight, inputs):
    return weight.abs() * inputs.norm(dim=0)
"""


@cache
def rows():
    """What each answer earns, and what an honest one does after all of them."""
    cells = [re.sub(r"\battack\b", name, ALL[name].cell) + f'\ncheck("wanda.{name}", {name})\n' for name in ALL]
    exercises = {name: find(answer.exercise) for name, answer in ALL.items()} | {"honest": find("wanda.score")}
    drawn = {name: engine.draw(exercise, f"{name} of mallory", 0) for name, exercise in exercises.items()}
    tasks = [Task(f"wanda.{name}", name, tuple(c.arguments for c in chain(*drawn[name]))) for name in exercises]
    answers = session.run(notebook(*cells, HONEST), tasks, SMALL)
    return {
        name: engine.exercise_result(exercise, *drawn[name], answer)
        for (name, exercise), answer in zip(exercises.items(), answers, strict=True)
    }


@needs_sandbox
@pytest.mark.parametrize("name", ALL)
def test_an_answer_earns_what_it_deserves(name):
    answer, row = ALL[name], rows()[name]
    told = f"{row.state}, {row.points} of {row.of}: {row.reason} {row.lowered} {row.notes} {row.cases}"
    assert row.points == pytest.approx(answer.earns * row.of, abs=0.01), told
    assert re.search(answer.reason or "", told), told
    assert not re.search(answer.never or r"(?!)", told), told
    assert (row.state == "right") == (answer.earns == 1.0), told
    page = feedback.html(Result("mallory", "04 Wanda", "mallory.ipynb", 0, (row,)))
    assert row.title in page


@needs_sandbox
def test_who_comes_after_them_is_graded():
    assert (rows()["honest"].state, rows()["honest"].points) == ("right", 2.0)


def test_each_has_a_name_of_its_own():
    assert len(ALL) == sum(len(table.ANSWERS) for table in TABLES) >= 25


@pytest.mark.parametrize(
    "mistaken",
    [
        {"earnes": 0.0},
        {"resaon": "no"},
        {"earns": 2.0},
        {"earns": None},
        {"exercise": "wanda.scores"},
        {"reason": "crashed ("},
        {"cell": "def atack(x): pass"},
    ],
    ids=str,
)
def test_a_field_that_is_misspelt_or_says_nothing_is_refused(mistaken):
    right = {"says": "Does something.", "cell": "def attack(x):\n    return 0.0\n", "earns": 0.0}
    HostileAnswer(**right)
    if mistaken.get("earns", 0.0) is None:
        del right["earns"], mistaken["earns"]
    with pytest.raises((TypeError, ValueError, re.error)):
        HostileAnswer(**right | mistaken)
