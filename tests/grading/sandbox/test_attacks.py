"""Every attack earns nothing, harms nobody, and ends with a reason; only ever run inside the sandbox.

Attacks that cannot disturb each other share a notebook. After each, the same sandbox is given an honest function.
"""

import dataclasses
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil
import pytest
from submitting import RIGHT, SMALL, ask, attacks, missing, n_right, needs_sandbox, notebook

from course_lib.checking.compare import close, short
from course_lib.grading.records import Answer
from course_lib.grading.sandbox import session

ALL = attacks()
LIMITS = {"quick": SMALL, "endless": dataclasses.replace(SMALL, seconds=3.0)}


PORT = 45123  # in attacks/reaches_the_network.py
TOGETHER = 16  # attacks in one notebook


def group(name: str) -> tuple[str, int]:
    """The limits under which an attack is run, and the notebook it is in."""
    kind = getattr(ALL[name], "GROUP", "quick")
    return kind, [other for other in ALL if getattr(ALL[other], "GROUP", "quick") == kind].index(name) // TOGETHER


@contextmanager
def listening() -> Iterator[None]:
    """Servers on this machine that nobody in a sandbox may reach."""
    with socket.socket() as internet, socket.socket(socket.AF_UNIX) as local:
        for server, address in ((internet, ("127.0.0.1", PORT)), (local, "\0canary")):
            with suppress(OSError):  # somebody else listens there, which does as well
                server.bind(address)
                server.listen()
            with socket.socket(server.family) as client:
                client.connect(address)
        yield


@cache
def answers(chosen: tuple[str, int]) -> dict[str, Answer]:
    """Every attack of a group in one notebook, and the honest function after each."""
    names = [name for name in ALL if group(name) == chosen]
    # The check says which helpers of the same name are meant, as in a student's notebook.
    cells = [re.sub(r"\battack\b", name, ALL[name].CELL) + f'\ncheck("attack.{name}", {name})\n' for name in names]
    tasks = [task for name in names for task in (ask(f"attack.{name}", name), ask(f"after.{name}", "right"))]
    with listening():
        found = session.run(notebook(*cells, RIGHT), tasks, LIMITS[chosen[0]])
    return {answer.exercise: answer for answer in found}


def test_where_everything_is_checked_the_sandbox_is_there():
    assert missing is None or not os.environ.get("CI"), missing


def test_there_are_attacks():
    assert len(ALL) > 60


@needs_sandbox
@pytest.mark.parametrize("name", ALL)
def test_an_attack_earns_nothing_and_the_next_exercise_is_graded(name):
    attack, answer = ALL[name], answers(group(name))[f"attack.{name}"]
    said = f"{answer.status}: {answer.reason} {[o.error or short(o.value) for o in answer.outcomes]} {answer.notes}"
    assert n_right(answer) == getattr(attack, "RIGHT", 0), said
    assert answer.status == (getattr(attack, "STATUS", "ran") or answer.status), said
    assert re.search(getattr(attack, "REASON", ""), answer.reason), said
    assert re.search(getattr(attack, "OUTCOME", ""), said), said
    if answer.status != "ran":
        assert re.fullmatch(r"[A-Z].{20,}[.?]", answer.reason, re.DOTALL), "a sentence for the student"
    if hasattr(attack, "ERROR"):
        assert re.search(attack.ERROR, answer.outcomes[0].error or ""), said
    if hasattr(attack, "VALUE"):
        assert [close(o.value, attack.VALUE) for o in answer.outcomes] == [None, None], said
    if hasattr(attack, "MOST"):
        assert all(float(outcome.value) <= attack.MOST for outcome in answer.outcomes), said
    if hasattr(attack, "TOUCHED"):
        assert any(attack.TOUCHED in name for name in answer.touched), answer.touched
    if hasattr(attack, "N_OUTCOMES"):
        assert len(answer.outcomes) == attack.N_OUTCOMES
    assert getattr(attack, "NOT_NOTED", "nothing") not in answer.notes
    after = answers(group(name))[f"after.{name}"]
    assert (after.status, n_right(after)) == ("ran", 2), f"{after.status}: {after.reason}"


@needs_sandbox
def test_the_machine_and_the_next_submission_are_unharmed():
    before = {path: path.stat().st_mtime_ns for path in Path(session.__file__).parents[1].rglob("*.py")}
    for name in ALL:
        answers(group(name))
    assert psutil.Process().children(recursive=True) == []
    assert {path: path.stat().st_mtime_ns for path in before if path.exists()} == before
    (after,) = session.run(notebook(RIGHT), [ask("x.right", "right")], SMALL)
    assert (after.status, n_right(after), after.notes) == ("ran", 2, ())
