"""Which code runs: the kernel or the method's own."""

import subprocess
import sys

import pytest
import torch
from course_lib.kernels.dispatch import kernel_for, kernels

from course_lib.kernels import dispatch, runtime

NAME = "weights.wanda_mask"
interpreted = pytest.mark.skipif(not runtime.INTERPRETED, reason="a CPU runs kernels under the interpreter only")


@pytest.fixture
def on_cuda(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    monkeypatch.setattr("course_lib.kernels.weights.wanda_mask.runs_kernel", lambda tensor: True)
    return torch.ones(2, 4)


def test_a_cpu_runs_the_methods_own_code():
    assert kernel_for(NAME, torch.ones(2, 4), m=4) is None


def test_a_gpu_runs_the_kernel(on_cuda):
    assert kernel_for(NAME, on_cuda, m=4).__name__ == f"course_lib.kernels.{NAME}"


def test_the_variable_switches_kernels_off(on_cuda, monkeypatch):
    monkeypatch.setenv(dispatch.VARIABLE, "off")
    assert kernel_for(NAME, on_cuda, m=4) is None
    with kernels(True):
        assert kernel_for(NAME, on_cuda, m=4)


def test_another_value_of_the_variable_is_refused(on_cuda, monkeypatch):
    monkeypatch.setenv(dispatch.VARIABLE, "0")
    with pytest.raises(ValueError, match=r"COURSE_KERNELS='0': expected 'on' or 'off'"):
        kernel_for(NAME, on_cuda, m=4)


def test_the_block_switches_kernels_off_and_ends(on_cuda):
    with kernels(False):
        assert kernel_for(NAME, on_cuda, m=4) is None
    assert kernel_for(NAME, on_cuda, m=4)


def test_other_types_and_shapes_and_gradients_run_the_methods_own_code(on_cuda):
    assert kernel_for(NAME, on_cuda.double(), m=4) is None
    assert kernel_for(NAME, on_cuda, m=3) is None
    assert kernel_for(NAME, on_cuda.clone().requires_grad_(), m=4) is None
    with torch.no_grad():
        assert kernel_for(NAME, on_cuda.clone().requires_grad_(), m=4)


@interpreted
def test_the_interpreter_runs_kernels_inside_the_block_only():
    assert kernel_for(NAME, torch.ones(2, 4), m=4) is None
    with kernels(True):
        assert kernel_for(NAME, torch.ones(2, 4), m=4)


def test_asking_on_a_cpu_does_not_import_triton():
    code = "import sys, torch; from course_lib.kernels.dispatch import kernel_for; "
    code += f"kernel_for({NAME!r}, torch.ones(2, 4), m=4); sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
