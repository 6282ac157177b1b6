"""Compare several named results, each with the rounding that an exercise knows of it, such as a loss and a gradient."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import RELATIVE, close, short, tensor_like


def all_near(got: Any, expected: Any, roundings: Mapping[str, float]) -> str | None:
    """None when every result agrees, else a sentence that names the first one that does not.

    `roundings` holds, by name and in their order, by how much each result may be off whatever its size: what was added
    up on the way, or cancels, is known to the exercise and not seen in the result. Where anything else than such a
    tuple is expected, it is `close`.
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
    """`close` of one tensor with an absolute tolerance of its own; entries within it are not told as different."""
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
