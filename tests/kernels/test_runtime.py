"""Which way kernels run, and that importing them needs neither triton nor a GPU."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from course_lib.kernels import runtime


def test_the_mode_and_its_reason_agree_here():
    expected = "interpreted" if runtime.INTERPRETED else "compiled" if torch.cuda.is_available() else "reference"
    assert runtime.mode() == (expected if runtime.triton else "reference")
    assert runtime.reason().endswith(".")


@pytest.mark.parametrize(
    ("has_triton", "interpreted", "has_gpu", "mode", "word"),
    [
        (True, True, False, "interpreted", "TRITON_INTERPRET"),
        (True, True, True, "interpreted", "TRITON_INTERPRET"),
        (True, False, True, "compiled", "compiles kernels for A GPU"),
        (True, False, False, "reference", "no GPU"),
        (False, False, True, "reference", "not installed"),
        (False, False, False, "reference", "not installed"),
    ],
)
def test_every_combination(has_triton, interpreted, has_gpu, mode, word, monkeypatch):
    class Triton:
        __version__ = "3.7.1"

    monkeypatch.setattr(runtime, "triton", Triton if has_triton else None)
    monkeypatch.setattr(runtime, "INTERPRETED", interpreted)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert runtime.mode() == mode
    assert word in runtime.reason()
    assert runtime.runs_kernel(torch.ones(1)) == (mode == "interpreted")


def test_without_triton_kernels_import_and_run_as_references():
    code = """
import sys
sys.modules["triton"] = None  # importing it now raises ImportError
import torch
from course_lib import discover, kernels
from course_lib.kernels import runtime
assert runtime.mode() == "reference", runtime.mode()
found = [module for module in discover.nested(kernels, kernels.FOLDERS) if hasattr(module, "launch")]
for module in found:
    module.launch(*module.example(torch.Generator().manual_seed(0), torch.float32, "cpu", **module.CASES[0]))
print(len(found), runtime.reason())
"""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}  # which must not matter
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[0]) >= 3
    assert "triton is not installed" in run.stdout


def test_a_gpu_is_filled_by_its_multiprocessors_and_elsewhere_a_number_is_enough(monkeypatch):
    card = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert runtime.programs_to_fill(torch.device("cuda"), 4, elsewhere=8) == 528
    assert runtime.programs_to_fill(torch.device("cpu"), 4, elsewhere=8) == 8
