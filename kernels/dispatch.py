"""Decide whether a method runs its Triton kernel or its PyTorch code.

A method calls `kernel_for("weights.wanda_mask", weight, m=4)` and gets the kernel's module, or None if it has to run
its own code. Kernels run on CUDA tensors of the supported float types, and on masks, without gradients, unless they
are switched off: for a whole process by the environment variable COURSE_KERNELS=off, for a block of code by
`with kernels(False):`.
On a CPU the answer is None, so nothing changes there, and triton is not even imported. The tests run the kernels on a
CPU as well: under TRITON_INTERPRET=1, `with kernels(True):` switches them on.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType

import torch
from course_lib.kernels.checks import FLOATS
from torch import Tensor

VARIABLE = "COURSE_KERNELS"
_switch: ContextVar[bool | None] = ContextVar("kernels switched on or off by `with kernels(...)`", default=None)


@contextmanager
def kernels(on: bool) -> Iterator[None]:
    """Switch the library's kernels on or off inside the block, whatever the value of COURSE_KERNELS."""
    token = _switch.set(on)
    try:
        yield
    finally:
        _switch.reset(token)


def kernel_for(name: str, *tensors: Tensor, **settings: object) -> ModuleType | None:
    """Return the module of a kernel if it should run on these tensors, or None if the method's own code should.

    Args:
        name: file of the kernel below kernels/, such as "cache.decode_attention".
        tensors: device and type of the first one decide; none may need a gradient.
        settings: passed, after the tensors, to the kernel's `takes`, which refuses unsupported shapes.

    Raises:
        ValueError: COURSE_KERNELS is neither "on" nor "off".
    """
    if not _wanted(tensors[0].is_cuda) or tensors[0].dtype not in (*FLOATS, torch.bool):
        return None
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return None
    name = f"course_lib.kernels.{name}"
    module = sys.modules.get(name) or import_module(name)  # the first in a microsecond less, and per layer and token
    if not module.runs_kernel(tensors[0]):
        return None
    return module if module.takes(*tensors, **settings) else None


def _wanted(is_cuda: bool) -> bool:
    """Return whether kernels are wanted: on a GPU unless switched off, on a CPU only inside `with kernels(True)`."""
    switch = _switch.get()
    if switch is not None or not is_cuda:
        return bool(switch)
    value = os.environ.get(VARIABLE, "on")
    if value not in ("on", "off"):
        raise ValueError(f"{VARIABLE}={value!r}: expected 'on' or 'off'; unset it to use the kernels on a GPU")
    return value == "on"
