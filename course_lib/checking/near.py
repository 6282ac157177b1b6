"""Compare several named results, such as a loss and a gradient, each with its own rounding error."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import RELATIVE, close, short, tensor_like


def all_near(got: Any, expected: Any, roundings: Mapping[str, float]) -> str | None:
    """Return None if every result agrees, otherwise a sentence that names the first one that does not.

    `roundings` holds the absolute tolerance of each result by name, in order. The exercise must provide it if a result
    is a sum of numbers that cancel, because we cannot see these numbers in the result. If the expected value is not a
    tuple of these results, the comparison is `close`.
    """
    if not isinstance(expected, tuple):
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != len(expected):
        return f"got {short(got)}, expected {len(expected)} values: the {' and the '.join(roundings)}"
    for (name, rounding), mine, right in zip(roundings.items(), got, expected, strict=True):
        problem = near(mine, right, rounding)
        if problem:
            return f"{name}: {problem}"
    return None


def near(got: Any, expected: Tensor, rounding: float) -> str | None:
    """Compare one tensor with `close` and an extra absolute tolerance; entries within it do not count as different."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    mine, right = got.double(), expected.double()
    same = torch.isclose(mine, right, rtol=RELATIVE, atol=rounding, equal_nan=True)
    if same.all():
        return None
    if right.ndim == 0:
        return f"got {short(mine.item())}, expected {short(right.item())}"
    return close(torch.where(same, right, mine), right)
