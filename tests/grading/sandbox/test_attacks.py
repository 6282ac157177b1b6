"""Every attack earns nothing, harms nobody, and ends with a reason; only ever run inside the sandbox.

Attacks that cannot disturb each other share a notebook. After each, the same sandbox is given an honest function.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import groupby
from pathlib import Path

import psutil
import pytest
from attack import Attack
from attacks import doors, escapes, forging, leftovers, loops, memory, returned
from submitting import RIGHT, SMALL, ask, left_over, missing, n_right, needs_sandbox, notebook

from course_lib.checking.compare import close, short
from course_lib.grading.records import Answer
from course_lib.grading.sandbox import bubblewrap, session, started

TABLES = (doors, escapes, forging, leftovers, loops, memory, returned)
EVERY = {name: attack for table in TABLES for name, attack in table.ATTACKS.items()}
ALL = {
    name: EVERY[name] for name in sorted(EVERY) if os.uname().machine in (EVERY[name].machines or os.uname().machine)
}
MODES = {mode for mode in ("shared", "single") if not missing and not bubblewrap._complaint(mode)}
# What forges, loops or returns something strange meets the same code in both kinds of sandbox; the walls differ.
ALWAYS, AT_WALLS = (
    "shared" if "shared" in MODES else "single",
    {*doors.ATTACKS, *escapes.ATTACKS, *leftovers.ATTACKS, *memory.ATTACKS},
)
RUN = [(mode, name) for name in ALL for mode in ALL[name].modes if mode == ALWAYS or name in AT_WALLS]

PORT = 45123  # in reaches_the_network
TOGETHER = 16  # attacks in one notebook


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


@contextmanager
def sandboxes(mode: bubblewrap.Mode) -> Iterator[None]:
    """All sandboxes that are started meanwhile are of this kind."""
    if mode not in MODES:
        pytest.skip(f"no {mode} sandbox starts here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bubblewrap, "variant", lambda: (mode, ""))
        yield


@cache
def notebooks(mode: str) -> list[list[str]]:
    """The attacks of each notebook: some of the same limits."""
    names = sorted((name for how, name in RUN if how == mode), key=lambda name: (ALL[name].limits.seconds, name))
    together = [list(group) for _, group in groupby(names, key=lambda name: ALL[name].limits)]
    return [group[at : at + TOGETHER] for group in together for at in range(0, len(group), TOGETHER)]


@cache
def answers(mode: bubblewrap.Mode, at: int) -> dict[str, Answer]:
    """Every attack of a notebook, and the honest function after each."""
    names = notebooks(mode)[at]
    # The check says which helpers of the same name are meant, as in a student's notebook.
    cells = [re.sub(r"\battack\b", name, ALL[name].cell) + f'\ncheck("attack.{name}", {name})\n' for name in names]
    tasks = [task for name in names for task in (ask(f"attack.{name}", name), ask(f"after.{name}", "right"))]
    with listening(), sandboxes(mode):
        every = session.run(notebook(*cells, RIGHT), tasks, ALL[names[0]].limits)
    return {answer.exercise: answer for answer in every}


def test_where_everything_is_checked_the_sandbox_is_there():
    assert missing is None or not os.environ.get("CI"), missing


def test_there_are_attacks_and_each_has_a_name_of_its_own():
    assert len(EVERY) == sum(len(table.ATTACKS) for table in TABLES) > 75


@pytest.mark.parametrize(
    "mistaken",
    [
        {"resaon": "crashed"},
        {},
        {"status": None, "reason": None},
        {"status": "kiled"},
        {"reason": "crashed ("},
        {"value": 0.0, "modes": ("twice",)},
        {"value": 0.0, "modes": ()},
        {"value": 0.0, "machines": "x86_64"},
        {"value": 0.0, "later": "def later(x): pass"},
        {"value": 0.0, "cell": "def atack(x): pass"},
    ],
    ids=str,
)
def test_a_field_that_does_not_exist_or_an_attack_that_asserts_nothing_is_refused(mistaken):
    right = {"says": "Does something.", "cell": "def attack(x):\n    return 0.0\n", "value": 0.0}
    Attack(**right)
    del right["value"]
    with pytest.raises((TypeError, ValueError, re.error)):
        Attack(**right | mistaken)


@needs_sandbox
@pytest.mark.parametrize(("mode", "name"), RUN)
def test_an_attack_earns_nothing_and_the_next_exercise_is_graded(mode, name):
    at = next(at for at, names in enumerate(notebooks(mode)) if name in names)
    assert_fails(ALL[name], answers(mode, at)[f"attack.{name}"])
    after = answers(mode, at)[f"after.{name}"]
    assert (after.status, n_right(after)) == ("ran", 2), f"{after.status}: {after.reason}"


def assert_fails(attack: Attack, answer: Answer) -> None:
    """An answer is as its attack says."""
    told = f"{answer.status}: {answer.reason} {[o.error or short(o.value) for o in answer.outcomes]} {answer.notes}"
    assert n_right(answer) == (attack.n_right or 0), told
    assert answer.status == (attack.status or answer.status), told
    assert not answer.lost, "the grader would say that it failed"
    assert re.search(attack.reason or "", answer.reason), told
    assert re.search(attack.outcome or "", told), told
    if answer.status != "ran":
        assert re.fullmatch(r"[A-Z].{20,}[.?]", answer.reason, re.DOTALL), "a sentence for the student"
    if attack.error is not None:
        assert re.search(attack.error, answer.outcomes[0].error or ""), told
    if attack.value is not None:
        assert [close(o.value, attack.value) for o in answer.outcomes] == [None, None], told
    if attack.most is not None:
        assert answer.outcomes, told
        assert all(float(outcome.value) <= attack.most for outcome in answer.outcomes), told
    if attack.touched is not None:
        assert any(attack.touched in name for name in answer.touched), answer.touched
    if attack.n_outcomes is not None:
        assert len(answer.outcomes) == attack.n_outcomes
    assert attack.not_noted is None or attack.not_noted not in answer.notes


@needs_sandbox
@pytest.mark.parametrize(("mode", "name"), [(mode, name) for mode, name in RUN if ALL[name].later])
def test_the_next_submission_finds_nothing_of_it(mode, name):
    attack = ALL[name]
    with sandboxes(mode):
        (answer,) = session.run(notebook(attack.cell), [ask("x.attack", "attack")], attack.limits)
        assert_fails(attack, answer)
        servers = [server.process.pid for server in started._waiting]
        (later,) = session.run(notebook(attack.later), [ask("x.later", "later")], SMALL)
        assert [server.process.pid for server in started._waiting] == servers, "the next one had another sandbox"
    assert servers or mode == "single"
    told = f"{later.status}: {later.reason} {[o.error or short(o.value) for o in later.outcomes]} {later.notes}"
    assert [close(o.value, attack.later_value) for o in later.outcomes] == [None, None], told


@needs_sandbox
def test_what_is_left_in_memory_would_be_found():
    """In its own notebook, that is."""
    attack = ALL["leaves_itself_in_memory"]
    (answer,) = session.run(notebook(attack.cell, attack.later), [ask("x.later", "later")], SMALL)
    assert "left-behind-in-the-notebook" in answer.outcomes[0].value


@needs_sandbox
@pytest.mark.parametrize("mode", ["shared", "single"])
def test_the_machine_and_the_next_submission_are_unharmed(mode):
    before = {path: path.stat().st_mtime_ns for path in Path(session.__file__).parents[2].rglob("*.py")}
    devices = {path: os.stat(path)[:7] for path in ("/dev/null", "/dev/full", "/dev/zero", "/dev/tty")}
    for at in range(len(notebooks(mode))):
        answers(mode, at)
    for server in started._waiting:
        assert len(psutil.Process(server.process.pid).children(recursive=True)) == 1, "itself, and nothing that it ran"
    with sandboxes(mode):
        (after,) = session.run(notebook(RIGHT), [ask("x.right", "right")], SMALL)
    assert (after.status, n_right(after), after.notes) == ("ran", 2, ())
    started.close()
    assert left_over() == []
    assert {path: path.stat().st_mtime_ns for path in before if path.exists()} == before
    assert {path: os.stat(path)[:7] for path in devices} == devices
