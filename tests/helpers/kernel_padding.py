"""Surround tensors with poison, because reading or writing beyond a tensor is silent, interpreted or compiled."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

MARGIN = 4096  # more than any tile reaches beyond its tensor in the tests


def changed(arguments: tuple, change: Callable[[str, Tensor], Tensor]) -> tuple:
    """The arguments with every tensor, those inside a format too, replaced by change(name, tensor)."""
    return tuple(_changed(str(i), argument, change) for i, argument in enumerate(arguments))


def tensors(arguments: tuple) -> dict[str, Tensor]:
    """Every tensor among the arguments, those inside a format too."""
    found: dict[str, Tensor] = {}
    changed(arguments, lambda name, tensor: found.setdefault(name, tensor))
    return found


def poisoned(tensor: Tensor) -> Tensor:
    """The same numbers in the middle of a larger buffer of NaN (floats) or -1 (integers)."""
    around = _buffer(tensor.numel(), tensor.dtype, tensor.device)
    inner = around[MARGIN : MARGIN + tensor.numel()].view(tensor.shape)
    return inner.copy_(tensor)


@contextmanager
def guarded_outputs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, torch.empty gives poisoned memory; on leaving, fails if anything around it was written."""
    buffers = []

    def empty(*size: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        shape = torch.Size(size[0] if size and not isinstance(size[0], int) else size)
        dtype = dtype or torch.get_default_dtype()
        buffers.append((_buffer(shape.numel(), dtype, device), shape.numel()))
        return buffers[-1][0][MARGIN : MARGIN + shape.numel()].view(shape)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", empty)
        yield
    for buffer, size in buffers:
        for margin in (buffer[:MARGIN], buffer[MARGIN + size :]):
            clean = margin.isnan() if margin.is_floating_point() else margin == _poison(margin.dtype)
            assert clean.all(), "the kernel wrote outside its output"


@contextmanager
def watched_loads(arguments: tuple, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, an interpreted kernel may load from these tensors and from what its launcher gets from torch.empty alone,
    also where it would not use what it read.

    A GPU faults on such a load only when it leaves the allocation, which depends on everything allocated before.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    load, empty = InterpreterBuilder.create_masked_load, torch.empty
    known = [*tensors(arguments).values()]

    def watched(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        ranges = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in known]
        address = pointers.data[mask.data.astype(bool)].astype("int64")
        outside = [a for a in address.tolist() if not any(start <= a < end for start, end in ranges)]
        assert not outside, f"the kernel loads {len(outside)} times from outside its arguments"
        return load(self, pointers, mask, *rest)

    def remembered(*size: Any, **settings: Any) -> Tensor:
        known.append(empty(*size, **settings))
        return known[-1]

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", remembered)
        patch.setattr(InterpreterBuilder, "create_masked_load", watched)
        yield


def _changed(name: str, argument: Any, change: Callable[[str, Tensor], Tensor]) -> Any:
    if isinstance(argument, Tensor):
        return change(name, argument)
    if not dataclasses.is_dataclass(argument):
        return argument
    fields = {field.name: getattr(argument, field.name) for field in dataclasses.fields(argument)}
    held = {n: change(f"{name}.{n}", value) for n, value in fields.items() if isinstance(value, Tensor)}
    # Not through __init__: the wrong shapes tried here are refused there already, by the annotations.
    copy = object.__new__(type(argument))
    copy.__dict__.update(fields | held)
    return copy


def _buffer(size: int, dtype: torch.dtype, device: Any) -> Tensor:
    return torch.full((size + 2 * MARGIN,), _poison(dtype), dtype=dtype, device=device)


def _poison(dtype: torch.dtype) -> float | int:
    if dtype.is_floating_point:
        return float("nan")
    return 255 if dtype == torch.uint8 else -1
