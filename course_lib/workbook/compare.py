"""Compare what a student's function returned with what was expected, and say in words where they first differ."""

import math
from numbers import Number
from typing import Any

import numpy
import torch
from torch import Tensor

# Relative: float32 sums of a few thousand terms in another order differ by about 1e-5. Absolute: for entries near zero.
RELATIVE, ABSOLUTE = 1e-4, 1e-6


def plain(value: Any) -> Any:
    """A value as data that can be compared and stored: CPU tensors, numbers, strings, and collections of these.

    Raises:
        ValueError: for anything else, such as an object or a function.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return value.clone() if value.layout == torch.strided else value.to_dense()
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, numpy.generic):
        return value.item()
    if value is None or isinstance(value, Number | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    raise ValueError(f"got a {type(value).__name__}; expected a tensor, a number, text, or a collection of these.")


def short(value: Any) -> str:
    """A value in a few words, for a message."""
    if isinstance(value, Tensor):
        head = f"tensor {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        return (
            f"{head} {value.tolist()}"
            if value.numel() <= 12 and not value.is_floating_point()
            else _floats(head, value)
        )
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value) if not isinstance(value, tuple) else f"({', '.join(short(item) for item in value)})"
    return text if len(text) <= 200 else f"{text[:197]}..."


def _floats(head: str, value: Tensor) -> str:
    if value.numel() > 12 or not value.is_floating_point():
        return head
    return f"{head} [{', '.join(f'{x:.4g}' for x in value.flatten().tolist())}]"


def close(got: Any, expected: Any) -> str | None:
    """None when two plain values agree up to rounding, else a sentence on where they first differ."""
    if isinstance(expected, Tensor):
        return _close_tensor(got, expected)
    if isinstance(expected, tuple):
        return _close_items(got, expected)
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return (
                f"the keys are {short(list(got) if isinstance(got, dict) else got)}, expected {short(list(expected))}"
            )
        return _first((f"under {key!r}", close(got[key], expected[key])) for key in expected)
    if isinstance(expected, bool | str) or expected is None:
        return None if got == expected else f"got {short(got)}, expected {short(expected)}"
    return _close_number(got, expected)


def _close_number(got: Any, expected: Number) -> str | None:
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()  # a one-element tensor is a number to most people
    if not isinstance(got, Number):
        return f"got {short(got)}, expected the number {short(expected)}"
    same = math.isclose(got, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (got != got and expected != expected)
    return None if same else f"got {short(got)}, expected {short(expected)}"


def _close_items(got: Any, expected: tuple) -> str | None:
    if isinstance(got, Tensor) and got.ndim:
        got = tuple(got)
    if not isinstance(got, tuple):
        return f"got {short(got)}, expected {len(expected)} values"
    if len(got) != len(expected):
        return f"got {len(got)} values, expected {len(expected)}"
    return _first((f"value {i}", close(g, e)) for i, (g, e) in enumerate(zip(got, expected, strict=True)))


def _first(named) -> str | None:
    return next((f"{name}: {difference}" for name, difference in named if difference), None)


def _close_tensor(got: Any, expected: Tensor) -> str | None:
    if isinstance(got, tuple | Number):
        got = as_tensor(got)
    if not isinstance(got, Tensor):
        return f"got {short(got)}, expected a tensor of shape {tuple(expected.shape)}"
    if expected.ndim == 0 and got.numel() == 1:
        got = got.reshape(())  # one number in brackets is a number to most people
    if got.shape != expected.shape:
        return f"the shape is {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if expected.dtype == torch.bool and got.dtype != torch.bool and not ((got == 0) | (got == 1)).all():
        return f"got {str(got.dtype).removeprefix('torch.')} values, expected True and False"
    a, b = got.to(torch.float64), expected.to(torch.float64)
    scale = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 1.0
    wrong = ~torch.isclose(a, b, rtol=RELATIVE, atol=ABSOLUTE * max(scale, 1e-30), equal_nan=True)
    if not wrong.any():
        return None
    where = wrong.nonzero()[0].tolist()
    place = f"at {where} " if where else ""
    return (
        f"first different {place}: got {short(got[tuple(where)].item())}, expected "
        f"{short(expected[tuple(where)].item())}; {int(wrong.sum())} of {wrong.numel()} entries differ"
    ).replace(" :", ":")


def as_tensor(value: Any) -> Any:
    """Numbers and nested lists as a tensor; anything else as it is."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError):
        return value
