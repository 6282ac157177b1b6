"""Grading as root: a submission has no more rights than under any other user.

Where the tests run as root, as in a container, that is tried as it is; everywhere as the root of a user namespace,
which is what grading in a container without rights comes to.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from submitting import SMALL, needs_sandbox, notebook

from course_lib.grading.records import Task
from course_lib.grading.sandbox import bubblewrap, session, started
from course_lib.grading.sandbox.bubblewrap import shown

HELPERS = Path(__file__).parents[2] / "helpers"
ASKED = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid")
HOME = Path.home()  # Python itself may lie in it
SHOWN = {Path(folder).relative_to(HOME).parts[0] for folder in shown() if Path(folder).is_relative_to(HOME)}
PROBE = f"""
import os
import pathlib
import socket

def rights(x):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    said = dict(line.split(":", 1) for line in lines)
    return {{name: " ".join(said[name].split()) for name in {ASKED!r}}}

def succeeded(x):
    attempts = {{
        "reads a password": lambda: open("/etc/shadow").read(),
        "sees what lies in a home": lambda: 1 / len(set(os.listdir({str(HOME)!r})) - {SHOWN!r}),
        "reads the kernel's memory": lambda: open("/proc/kcore", "rb").read(1),
        "writes a program": lambda: open("/usr/bin/course-was-here", "w"),
        "takes a device away": lambda: os.chmod("/dev/null", 0),
        "touches a device": lambda: os.utime("/dev/null"),
        "makes a device": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)),
        "becomes root": lambda: os.setuid(0),
        "gives a file away": lambda: os.chown("/tmp", 0, 0),
        "renames the machine": lambda: socket.sethostname("mine"),
        "turns the kernel's knobs": lambda: open("/proc/sys/kernel/hostname", "w").write("mine"),
        "changes its root": lambda: os.chroot("/tmp"),
        "goes before all others": lambda: os.nice(-5),
        "can do something at all": lambda: open("/tmp/own", "w").write("mine"),
    }}
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
            done.append(name)
        except Exception:
            pass
    return tuple(done)
"""


def probed() -> list:
    """What a submission can say of its rights."""
    cases = ((torch.ones(1),),)
    tasks = [Task(f"root.{name}", name, cases) for name in ("rights", "succeeded")]
    answers = session.run(notebook(PROBE), tasks, SMALL)
    assert [answer.status for answer in answers] == ["ran", "ran"], answers
    return [answer.outcomes[0].value for answer in answers]


def without_rights(rights: dict, succeeded: list) -> None:
    assert rights.pop("NoNewPrivs") == "1"
    assert rights.pop("Seccomp") == "2"
    assert {rights.pop("Uid"), rights.pop("Gid")} == {"65534 65534 65534 65534"}
    assert len(rights) == 5
    assert set(rights.values()) == {"0" * 16}
    assert list(succeeded) == ["can do something at all"]


@pytest.fixture
def in_a_sandbox(monkeypatch):
    """Sandboxes of that mode from here on."""

    def choose(mode: str) -> None:
        if complaint := bubblewrap._complaint(mode):
            pytest.skip(complaint)
        started.close()
        monkeypatch.setattr(bubblewrap, "variant", lambda: (mode, ""))

    yield choose
    started.close()


@needs_sandbox
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("mode", ["shared", "single", "single, old"])
def test_a_submission_graded_by_root_has_no_rights(in_a_sandbox, mode):
    in_a_sandbox(mode)
    without_rights(*probed())
    assert stat.S_IMODE(os.stat(os.devnull).st_mode) == 0o666


@needs_sandbox
def test_a_submission_graded_by_the_root_of_a_namespace_has_no_rights():
    line = [shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--"]
    if shutil.which("unshare") is None or subprocess.run([*line, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a user may not make namespaces here")
    code = "import json, os, test_as_root\nassert os.geteuid() == 0\nprint(json.dumps(test_as_root.probed()))"
    paths = [str(Path(__file__).parent), str(HELPERS), str(Path(session.__file__).parents[3])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*line, sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    without_rights(*json.loads(done.stdout))
