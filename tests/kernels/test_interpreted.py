"""This folder runs twice: plainly, and under Triton's interpreter, where launchers run the kernels on the CPU.

The switch is read when triton is first imported and would change every other test, so `make test` gives the second run
processes of its own: `TRITON_INTERPRET=1 pytest tests/kernels`. What is tested here is that it is such a run.
"""

import re
from pathlib import Path

import pytest
import torch

from course_lib.kernels import runtime

interpreted = pytest.mark.skipif(
    not runtime.INTERPRETED, reason="`make test` runs this folder again with TRITON_INTERPRET=1"
)


def test_the_second_run_is_part_of_make_test():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^test:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "\tTRITON_INTERPRET=1 $(PYTEST) tests/kernels\n" in recipe


@interpreted
def test_launchers_take_the_kernels():
    assert runtime.mode() == "interpreted"
    assert runtime.runs_kernel(torch.ones(1))


@interpreted
def test_most_tests_of_this_folder_run_under_the_interpreter_too(request):
    here = [item for item in request.session.items if item.path.parent == request.path.parent]
    if {item.path for item in here} != set(request.path.parent.glob("test_*.py")):
        pytest.skip("a part of the folder was asked for")
    skipped = [item for item in here if any(mark.args and mark.args[0] for mark in item.iter_markers("skipif"))]
    assert len(here) - len(skipped) > 100
