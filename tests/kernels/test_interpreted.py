"""Runs this folder again under Triton's interpreter, where launchers run the kernels themselves on the CPU.

The switch is read when triton is first imported and would change every other test, so this happens in a process of
its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import runtime

FOLDER = Path(__file__).parent


@pytest.mark.skipif(runtime.triton is None, reason="there is no triton here")
@pytest.mark.skipif(runtime.INTERPRETED, reason="this is the interpreted run")
def test_kernels_are_right_under_the_interpreter():
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(FOLDER), "-p", "no:cacheprovider"],
        env=inherited | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout
    assert int(passed[1]) > 100, "most tests of this folder should run under the interpreter too"
