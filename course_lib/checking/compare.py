"""Compare a student's result with the expected one, and describe in words where they first differ."""

import math
from itertools import islice
from numbers import Integral, Number, Real
from typing import Any

import numpy
import torch
from torch import Tensor

from course_lib.checking.short import MANY, short

# Relative: float32 sums of a few thousand terms in another order differ by about 1e-5. Absolute: for entries near zero.
RELATIVE, ABSOLUTE = 1e-4, 1e-6
# A count is a whole number: whole numbers must be equal. A floating point number may be off by rounding, but by less
# than a tenth where float32 still counts exactly: one too many is wrong.
TENTH, EXACT_IN_FLOAT32, RELATIVE_OF_COUNTS = 0.1, 2**24, 1e-6


def plain(value: Any) -> Any:
    """Convert a value to data that can be compared and stored: CPU tensors, numbers, strings, and collections of these.

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
    if isinstance(value, set | frozenset):  # it has no order: a comparison in which order counts is given one
        return tuple(plain(item) for item in sorted(value))
    if isinstance(value, dict) and all(key is None or isinstance(key, Number | str) for key in value):
        return {key: plain(item) for key, item in value.items()}
    kind = type(value).__name__
    raise ValueError(f"got a value of type {kind}; expected a tensor, a number, text, or a collection of these.")


def close(got: Any, expected: Any) -> str | None:
    """Return None if two plain values agree up to rounding, otherwise a sentence on where they first differ."""
    if isinstance(expected, Tensor):
        return _close_tensor(got, expected)
    if isinstance(expected, tuple):
        return _close_items(got, expected)
    if isinstance(expected, dict):
        return _close_dict(got, expected)
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()  # a one-element tensor is a number to most people
    if isinstance(expected, bool | str) or expected is None:
        same = not isinstance(got, Tensor) and got == expected
        return None if same else f"got {short(got)}, expected {short(expected)}"
    return _close_number(got, expected)


def up_to_rounding(got: Any, expected: Any, case: object) -> str | None:
    """Compare with `close`, for exercises whose right answer has no freedom; the case is ignored."""
    return close(got, expected)


def _close_dict(got: Any, expected: dict) -> str | None:
    if not isinstance(got, dict):
        what = f"{len(got)} values without names" if isinstance(got, tuple) else short(got)
        return f"got {what}, expected a dictionary with the keys {short(list(expected))}"
    if got.keys() != expected.keys():
        return f"the keys are {short(list(islice(got, MANY)))}, expected {short(list(expected))}"
    return _first((f"under {key!r}", close(got[key], expected[key])) for key in expected)


def _close_number(got: Any, expected: Number) -> str | None:
    if not isinstance(got, Real) or isinstance(got, bool):
        return f"got {short(got)}, expected the number {short(expected)}"
    try:
        if isinstance(expected, int):
            same = _same_count(got, expected)
        else:
            same = math.isclose(got, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (
                got != got and expected != expected
            )
    except OverflowError:  # a whole number that is larger than any float
        same = got == expected
    digits = isinstance(expected, int) and isinstance(got, float) and abs(got) < 2**53  # short would round one off away
    return None if same else f"got {repr(got) if digits else short(got)}, expected {short(expected)}"


def _same_count(got: Real, expected: int) -> bool:
    if isinstance(got, Integral):
        return got == expected
    rounding = RELATIVE_OF_COUNTS * abs(expected)
    most = min(rounding, TENTH) if abs(expected) <= EXACT_IN_FLOAT32 else rounding
    return math.isclose(got, expected, rel_tol=0.0, abs_tol=max(most, ABSOLUTE))


def _close_items(got: Any, expected: tuple) -> str | None:
    if not isinstance(got, tuple) and not (isinstance(got, Tensor) and got.ndim):
        return f"got {short(got)}, expected {len(expected)} values"
    if len(got) != len(expected):  # before anything is taken apart: a tensor may have a billion rows
        problem = f"got {len(got)} values, expected {len(expected)}"
    else:
        problem = _first((f"value {i}", close(g, e)) for i, (g, e) in enumerate(zip(got, expected, strict=True)))
    if problem and isinstance(got, Tensor) and any(isinstance(item, Tensor) for item in expected):
        return f"got one tensor of shape {tuple(got.shape)}, expected {len(expected)} values"  # its rows are no values
    return problem


def _first(named) -> str | None:
    return next((f"{name}: {difference}" for name, difference in named if difference), None)


def _close_tensor(got: Any, expected: Tensor) -> str | None:
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    if got.dtype == expected.dtype and torch.equal(got, expected):  # most that is right is so to the last bit
        return None
    if expected.dtype == torch.bool and not ((got == 0) | (got == 1)).all():
        return f"got {str(got.dtype).removeprefix('torch.')} values, expected True and False"
    a, b = got.to(torch.float64), expected.to(torch.float64)
    finite = b[b.isfinite()]
    scale = finite.abs().max().item() if finite.numel() else 1.0
    relative = RELATIVE if expected.is_floating_point() else 0.0
    wrong = ~torch.isclose(a, b, rtol=relative, atol=ABSOLUTE * max(scale, 1e-30), equal_nan=True)
    if not wrong.any():
        return None
    where = wrong.nonzero()[0].tolist()
    place = f"at {where} " if where else ""
    return (
        f"first different {place}: got {short(got[tuple(where)].item())}, expected "
        f"{short(expected[tuple(where)].item())}; {int(wrong.sum())} of {wrong.numel()} entries differ"
    ).replace(" :", ":")


def tensor_like(got: Any, expected: Tensor) -> tuple[Any, str | None]:
    """Convert a value to a tensor that can be compared with the expected one, or say why this is impossible.

    The value must be an array of exactly this shape, because we broadcast nothing, and hold real numbers. Complex
    numbers are refused. So are True and False where numbers are expected, but 0 and 1 are accepted as False and True.
    """
    if isinstance(got, Number) or (isinstance(got, tuple) and _lengths(got) == expected.shape):
        got = as_tensor(got)
    if not isinstance(got, Tensor):
        return got, f"got {short(got)}, expected a tensor of shape {tuple(expected.shape)}"
    if expected.ndim == 0 and got.numel() == 1:
        got = got.reshape(())  # one number in brackets is a number to most people
    if got.shape != expected.shape:
        return got, f"the shape is {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if got.is_complex():
        return got, "got complex numbers, expected real ones"
    if got.dtype == torch.bool and expected.dtype != torch.bool:
        return got, "got True and False, expected numbers"
    return got, None


def _lengths(value: Any) -> tuple[int, ...]:
    """Return the shape of a nested collection, judged by its first entries; the rest is not checked."""
    lengths = []
    while isinstance(value, tuple):
        lengths.append(len(value))
        value = value[0] if value else None
    return (*lengths, *(value.shape if isinstance(value, Tensor) else ()))


def as_tensor(value: Any) -> Any:
    """Convert numbers and nested lists to a tensor; return anything else unchanged."""
    rows = isinstance(value, tuple) and len(value) > 0 and all(isinstance(row, Tensor) and row.ndim for row in value)
    try:
        return torch.stack(value) if rows else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return value
