"""The sandbox answers for every task whatever the notebook holds, and leaves nothing behind however it ends."""

import contextlib
import dataclasses
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from submitting import RIGHT, SMALL, ask, left_over, missing, n_right, needs_sandbox, notebook

from course_lib.grading.intake.submission import NOTEBOOK_BYTES
from course_lib.grading.records import Limits, Task
from course_lib.grading.sandbox import bubblewrap, frames, session, started

HELPERS = Path(__file__).parents[2] / "helpers"


def eventually(happens, seconds: float = 60.0) -> bool:
    """Wait for something on a machine that may be busy."""
    for _ in range(int(seconds * 20)):
        if happens():
            return True
        time.sleep(0.05)
    return False


HONEST = """
import sys, warnings, os
import torch, numpy
from course_lib.pruning.methods.wanda import Wanda

def loud(x):
    print("thinking")
    print("hard", file=sys.stderr)
    warnings.warn("careful")
    os.write(1, b"written")
    display(x)
    return x * 2

def library(x):
    return x * 2 if Wanda else x

def layout(matrix):
    return matrix.stride(), matrix.is_contiguous()

def missing(x):
    return x * UNDEFINED

def half(x):
    return x * 2 if len(x) > 1 else x

def unwritten(x):
    raise NotImplementedError("Exercise x.unwritten: replace this line")

def in_place(x):
    return x.mul_(2)

def numbers(x):
    return torch.rand(1).item(), numpy.random.rand(), hash("a"), torch.get_num_threads()

def core(x):
    return __import__("resource").getrlimit(4)

def oom(x):
    return int(open("/proc/self/oom_score_adj").read())

scratch = lambda x: [open("/tmp/a", "w").write("x") and x * 2, os.remove("/tmp/a")][0]
FACTOR = undefined_name
factor = 2

@undefined_decorator
def decorated(x):
    return x * 2

@torch.compile
def compiled(x):
    return x * 2

not_a_function = 3
"""


@needs_sandbox
def test_every_task_has_its_answer_in_its_place():
    names = ["loud", "library", "missing", "half", "unwritten", "in_place", "scratch", "decorated", "nowhere"]
    names += ["numbers", "oom", "compiled", "core"]
    turned = (torch.ones(2, 3).T,)
    tasks = [*(ask(f"x.{name}", name) for name in names), Task("x.layout", "layout", (turned,))]
    broken = "def right(x:\n    return x * 2"
    answers = session.run(notebook(HONEST, broken), [*tasks, ask("x.right", "right")], SMALL)
    assert [answer.exercise for answer in answers] == [f"x.{name}" for name in [*names, "layout", "right"]]
    got = {answer.exercise[2:]: answer for answer in answers}
    assert {name: (got[name].status, n_right(got[name])) for name in names[:9]} == {
        "loud": ("ran", 2),
        "library": ("ran", 2),
        "missing": ("ran", 0),
        "half": ("ran", 1),
        "unwritten": ("ran", 0),
        "in_place": ("ran", 2),
        "scratch": ("ran", 2),
        "decorated": ("not loaded", 0),
        "nowhere": ("not found", 0),
    }
    assert n_right(got["compiled"]) == 2, "no compiler is let in"
    assert "UNDEFINED" in got["missing"].outcomes[0].error
    assert "cell 1" in got["missing"].outcomes[0].trace
    assert [outcome.unattempted for outcome in got["unwritten"].outcomes] == [True, True]
    assert "undefined_decorator" in got["decorated"].reason
    assert "nowhere" in got["nowhere"].reason
    assert got["right"].status == "not loaded"
    assert "cell 2" in got["right"].reason
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert got["core"].outcomes[0].value == (min(1, most % 2**64),) * 2, "crashes are not collected outside"
    assert got["layout"].outcomes[0].value == ((1, 3), False)
    assert got["oom"].outcomes[0].value == 1000  # the kernel's memory killer takes it first
    assert got["numbers"].outcomes[0].value[3] == 1
    (again,) = session.run(notebook(HONEST), [ask("x.numbers", "numbers")], SMALL)
    assert again.outcomes == got["numbers"].outcomes  # a regrade finds the same


@needs_sandbox
def test_cells_that_no_parser_likes_do_not_take_the_others_with_them():
    cells = [
        "x = 1\0",
        "(" * 100_000,
        "y = " + "1 + " * 50_000 + "1",
        "z = '\ud800'",
        "# " + "x" * 10**6,
        "-" * 10**5 + "1",
    ]
    cells += ["a" + ".b" * 50_000, "f" * 200 + "'{x}'", "%%bash\nrm -rf /", "!ls", "def f(:", "\x0c\t\ufeff"]
    tasks = [ask(f"x.{index}", name) for index, name in enumerate(["right", "x", "y", "z"])]
    answers = session.run(notebook(*cells, RIGHT), tasks, SMALL)
    assert (answers[0].status, n_right(answers[0])) == ("ran", 2), answers[0].reason
    assert all(answer.status in ("not found", "not loaded") and answer.reason for answer in answers[1:])


@needs_sandbox
@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04\x95\xff", b"[" * 200_000, b'{"cells": [' + b"1," * 10**6 + b"1]}"],
    ids=["empty", "a pickle", "nested", "numbers"],
)
def test_what_is_no_notebook_is_not_loaded(content):
    (answer,) = session.run(content, [ask("x.right", "right")], SMALL)
    assert answer.status in ("not loaded", "not found")
    assert len(answer.reason) > 20


def test_a_notebook_beyond_all_measure_is_not_even_handed_in(monkeypatch):
    monkeypatch.setattr(session, "unavailable", lambda: None)
    monkeypatch.setattr(started, "job", lambda *_: pytest.fail("started"))
    (answer,) = session.run(bytes(NOTEBOOK_BYTES + 1), [ask("x.right", "right")], SMALL)
    assert answer.status == "not loaded"
    assert "32 MiB" in answer.reason


def test_no_task_needs_no_sandbox():
    assert session.run(b"", [], SMALL, "none") == []


WAITING = f"""
import ctypes
import os
import time

{RIGHT}

def waits(x):
    ctypes.CDLL(None).prctl(15, b"waiting-inside")  # a name to be found by
    time.sleep(1000)
"""


def waiting(process: psutil.Process) -> psutil.Process | None:
    """The process of an exercise that waits."""
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "waiting-inside":
                return child
    return None


@needs_sandbox
def test_when_the_warden_is_gone_another_one_runs_the_rest():
    tasks, answers = [ask("x.1", "right"), ask("x.waits", "waits"), ask("x.2", "right")], []
    limits = dataclasses.replace(SMALL, seconds=600.0)
    thread = threading.Thread(target=lambda: answers.extend(session.run(notebook(WAITING), tasks, limits)))
    thread.start()
    assert eventually(lambda: waiting(psutil.Process()), 300)
    waiting(psutil.Process()).parent().kill()
    thread.join()
    assert [(answer.status, n_right(answer)) for answer in answers] == [("ran", 2), ("killed", 0), ("ran", 2)]
    assert "The sandbox ended" in answers[1].reason
    assert [answer.lost for answer in answers] == [False, True, False]


@needs_sandbox
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_the_grader_is_gone_nothing_of_it_goes_on(tmp_path, ending):
    (tmp_path / "grade.py").write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(HELPERS)!r})
        from submitting import *
        import dataclasses
        session.run(notebook({WAITING!r}), [ask("x.waits", "waits")], dataclasses.replace(SMALL, seconds=600.0))
        """)
    )
    grader = subprocess.Popen([sys.executable, str(tmp_path / "grade.py")], stderr=subprocess.DEVNULL)
    inside = psutil.Process(grader.pid)
    assert eventually(lambda: grader.poll() is not None or waiting(inside), 300)
    assert grader.poll() is None, "the grader ended before its exercise began"
    processes = inside.children(recursive=True)
    mode = bubblewrap.variant()[0]
    assert len(processes) == 3 + (mode == "shared")  # bubblewrap, the server, the warden, the exercise
    grader.send_signal(ending)
    grader.wait()
    assert eventually(lambda: not any(process.is_running() for process in processes))


def right() -> int:
    """Grade an honest submission; the process of the sandbox that then waits, 0 when none does."""
    (answer,) = session.run(notebook(RIGHT), [ask("x.right", "right")], SMALL)
    assert (answer.status, n_right(answer)) == ("ran", 2), answer.reason
    return next((server.process.pid for server in started._waiting), 0)


@pytest.fixture
def shared():
    """Sandboxes that take job after job, none of which has begun to wait."""
    if missing or bubblewrap.variant()[0] != "shared":
        pytest.skip("every submission has a sandbox here")
    started.close()
    yield
    started.close()


@pytest.mark.usefixtures("shared")
def test_one_sandbox_takes_one_submission_after_another_and_is_replaced_when_it_is_gone():
    first = right()
    assert right() == first != 0
    psutil.Process(first).kill()
    assert eventually(lambda: started._waiting[0].process.poll() is not None)
    second = right()
    assert second not in (0, first)
    threads = [threading.Thread(target=right) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # with it ends the sandbox that it started
    assert right()
    assert right()
    (waiting_pid,) = {server.process.pid for server in started._waiting if server.process.poll() is None}
    started.close()
    assert not psutil.pid_exists(waiting_pid)


@pytest.mark.usefixtures("shared")
def test_when_the_server_is_gone_the_exercise_fails_and_another_one_runs_the_rest():
    tasks, answers = [ask("x.1", "right"), ask("x.waits", "waits"), ask("x.2", "right")], []
    limits = dataclasses.replace(SMALL, seconds=600.0)
    thread = threading.Thread(target=lambda: answers.extend(session.run(notebook(WAITING), tasks, limits)))
    thread.start()
    assert eventually(lambda: waiting(psutil.Process()), 300)
    waiting(psutil.Process()).parent().parent().kill()
    thread.join()
    assert [(answer.status, n_right(answer)) for answer in answers] == [("ran", 2), ("killed", 0), ("ran", 2)]
    assert "The sandbox ended" in answers[1].reason
    assert [answer.lost for answer in answers] == [False, True, False]


@pytest.mark.usefixtures("shared")
def test_a_server_that_does_not_say_that_its_job_is_gone_is_not_used_again(monkeypatch):
    first = right()
    monkeypatch.setattr(started, "GONE", b"something else")
    assert right() == 0
    assert not psutil.pid_exists(first)


@needs_sandbox
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("why", ["no namespaces within namespaces", "the project lies under /tmp"])
def test_where_submissions_cannot_share_a_sandbox_each_has_its_own(monkeypatch, why):
    started.close()
    if "namespaces" in why:
        monkeypatch.setattr(bubblewrap, "_NEEDED_TO_SHARE", "sys.exit('no namespaces')")
    else:
        there, complaint = bubblewrap.shown(), bubblewrap._complaint
        monkeypatch.setattr(bubblewrap, "shown", lambda: [*there, "/tmp/project"])
        monkeypatch.setattr(bubblewrap, "_complaint", lambda mode: complaint(mode) if mode == "shared" else "")
    assert bubblewrap.variant() == ("single", "")
    monkeypatch.undo()
    monkeypatch.setattr(bubblewrap, "variant", lambda: ("single", ""))
    assert right() == 0


def test_on_ones_own_machine_it_works_without_a_sandbox():
    cell = WAITING + "\ndef gone(x):\n    os._exit(3)\n"  # which once was the code of memory that ran out
    tasks = [ask("x.1", "right"), ask("x.waits", "waits"), ask("x.gone", "gone"), ask("x.2", "right")]
    answers = session.run(notebook(cell), tasks, dataclasses.replace(SMALL, seconds=2.0), "none")
    assert [answer.status for answer in answers] == ["ran", "killed", "killed", "ran"]
    assert [n_right(answer) for answer in answers] == [2, 0, 0, 2]
    assert [
        "stopped after 4 seconds, most of which it waited" in answers[1].reason,
        "exit code 3" in answers[2].reason,
    ] == [True, True]
    started.close()
    assert left_over() == []


@pytest.fixture
def fresh():
    """Whether bubblewrap works is looked at once; these tests change the answer."""
    variant = bubblewrap.variant
    variant.cache_clear()
    yield
    variant.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_without_bubblewrap_nothing_is_run_and_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(ValueError, match="apt install bubblewrap"):
        session.run(notebook(RIGHT), [ask("x.right", "right")], SMALL)


def pretend(monkeypatch, tmp_path, text: str) -> None:
    """A bwrap that is this shell script."""
    script = tmp_path / "bwrap"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "program", lambda: str(script))


@pytest.mark.usefixtures("fresh")
def test_a_bubblewrap_that_does_not_start_says_why(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    with pytest.raises(ValueError, match="No permissions.*AppArmor"):
        session.run(notebook(RIGHT), [ask("x.right", "right")], SMALL)


@needs_sandbox
@pytest.mark.usefixtures("fresh")
def test_packages_that_the_sandbox_does_not_show_are_named_before_anything_is_graded(monkeypatch):
    monkeypatch.setattr(bubblewrap, "_NEEDED", bubblewrap._NEEDED.replace('"numpy"', '"no_such_package"'))
    assert "does not find no_such_package. Install the course and its packages" in session.unavailable()


@needs_sandbox
@pytest.mark.usefixtures("fresh")
def test_the_library_is_found_however_it_was_installed(monkeypatch):
    """Not through the environment's own paths alone, which an installation in place puts in a .pth file."""
    monkeypatch.setattr(bubblewrap, "python", lambda: [sys.executable, "-s", "-P", "-B", "-S"])
    monkeypatch.setattr(bubblewrap, "_NEEDED", bubblewrap._NEEDED.replace(', "numpy", "safetensors", "torch"', ","))
    assert session.unavailable() is None


@needs_sandbox
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("mode", ["shared", "single, old"])
def test_an_old_bubblewrap_does_too_and_its_tmp_is_measured(monkeypatch, tmp_path, mode):
    if complaint := bubblewrap._complaint(mode):
        pytest.skip(complaint)
    started.close()
    if mode != "shared":
        monkeypatch.setattr(bubblewrap, "_NEEDED_TO_SHARE", "sys.exit('no namespaces')")
    real = bubblewrap.program()
    pretend(
        monkeypatch,
        tmp_path,
        f'case "$*" in *--size*|*--disable-userns*) echo Unknown option >&2; exit 1;; esac\nexec {real} "$@"',
    )
    assert bubblewrap.variant() == (mode, "")
    writes = "def writes(x):\n    for n in range(1000):\n        open(f'/tmp/{n}', 'w').write('x' * 2**20)"
    answers = session.run(notebook(RIGHT, writes), [ask("x.writes", "writes"), ask("x.right", "right")], SMALL)
    assert n_right(answers[1]) == 2
    if mode == "shared":  # the size of a submission's own /tmp is set there
        assert "No space left" in answers[0].outcomes[0].error
    else:
        assert answers[0].status == "killed"
        assert "files" in answers[0].reason
    started.close()


@pytest.mark.parametrize("text", ["exit 1", "sleep 100", "echo nonsense; sleep 100", "head -c 20000000 /dev/zero"])
def test_a_sandbox_that_never_gets_ready_is_the_machines_problem_not_the_students(monkeypatch, text):
    monkeypatch.setattr(bubblewrap, "python", lambda: ["/bin/sh", "-c", f"echo broken >&2; {text}"])
    monkeypatch.setattr(session, "GRACE", 0.1)
    monkeypatch.setattr(started, "GRACE", 0.1)
    with pytest.raises(ValueError, match="the sandbox does not start: broken"):
        session.run(notebook(RIGHT), [ask("x.right", "right")], dataclasses.replace(SMALL, start_seconds=0.5), "none")


def test_a_warden_that_falls_silent_is_given_up(monkeypatch):
    messages = frames.pack(frames.READY) + frames.pack(frames.STARTED)
    octal = "".join(f"\\{byte:03o}" for byte in messages)
    monkeypatch.setattr(bubblewrap, "python", lambda: ["/bin/sh", "-c", f"printf '{octal}'; sleep 100"])
    monkeypatch.setattr(session, "GRACE", 0.1)
    monkeypatch.setattr(started, "GRACE", 0.1)
    (answer,) = session.run(notebook(RIGHT), [ask("x.1", "right")], dataclasses.replace(SMALL, seconds=0.04), "none")
    assert answer.status == "killed"
    assert "did not answer any more" in answer.reason


@pytest.mark.parametrize("mode", ["shared", "single", "single, old"])
def test_what_is_shown_is_python_and_the_library_but_no_answers_and_nobodys_home(mode):
    shown = bubblewrap.shown()
    covered = bubblewrap.hidden(shown)
    library = str(bubblewrap.LIBRARY)
    assert "/" not in shown
    assert not {"/home", "/etc", "/var", "/run", "/tmp", str(Path.home()), str(bubblewrap.ROOT)} & set(shown)
    assert {f"{library}/{name}" for name in ("lessons", "grading/hidden_cases")} <= set(covered)
    assert not any(
        Path(folder).is_relative_to(bubblewrap.ROOT / name) for folder in shown for name in ("tests", "build")
    )
    line = bubblewrap.command(Limits(), mode)
    assert ("--disable-userns" in line) == (mode == "single")
    for option in ("--die-with-parent", "--new-session", "--as-pid-1", "--unshare-net", "--unshare-user"):
        assert option in line
    assert not {"--bind", "--dev-bind", "--share-net", "--cap-add"} & set(line)


def test_a_folder_that_bears_a_packages_name_is_not_shown(monkeypatch, tmp_path):
    (tmp_path / "kernels").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert str(tmp_path / "kernels") not in bubblewrap.shown()


def test_submissions_beside_an_environment_in_the_projects_own_folder_are_not_shown(monkeypatch, tmp_path):
    for name in ("bin", "lib", "submissions"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(bubblewrap, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert {str(tmp_path / "bin"), str(tmp_path / "lib")} <= set(bubblewrap.shown())
    assert not {str(tmp_path), str(tmp_path / "submissions")} & set(bubblewrap.shown())


def test_masters_under_a_folder_that_is_shown_are_covered(monkeypatch, tmp_path):
    (tmp_path / "solutions").mkdir()
    monkeypatch.setattr(bubblewrap, "ROOT", tmp_path)
    assert bubblewrap.hidden([str(tmp_path.parent)]) == [str(tmp_path / "solutions")]
    assert bubblewrap.hidden(["/usr"]) == []
