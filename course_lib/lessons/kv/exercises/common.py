"""Shared by the exercises of lesson 07: cases, and how masks are chosen, compared and drawn."""

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import tensor_like
from course_lib.checking.exercise import Case
from course_lib.lessons.common.masks import compare_masks


def shuffled(generator: torch.Generator, values: Tensor, *shape: int) -> Tensor:
    """Return the values in a random order for each of `shape` heads."""
    rows = [values[torch.randperm(len(values), generator=generator)] for _ in range(math.prod(shape))]
    return torch.stack(rows).reshape(*shape, len(values))


def keep_newest(position: Tensor, n: int) -> Tensor:
    """Return True for the n highest of the last axis."""
    return torch.zeros_like(position, dtype=torch.bool).scatter(-1, position.topk(n, dim=-1).indices, True)


def softmax_rows(generator: torch.Generator, *shape: int, spread: float = 1.5) -> Tensor:
    return (spread * torch.randn(*shape, generator=generator)).softmax(dim=-1)


def as_mask(got: Any, expected: Tensor) -> tuple[Any, str | None]:
    """Return the answer as a mask, or the reason why it is not one."""
    got, problem = tensor_like(got, expected)
    if problem:
        return got, problem
    if not ((got == 0) | (got == 1)).all():
        return got, "the mask holds values other than True and False: return which slots are kept"
    return got.bool(), None


def mask_picture(case: Case, got: Any, expected: Tensor, right: bool = False) -> "matplotlib.figure.Figure":
    """Draw a mask of slots, one row per head. In a right answer, ties that were broken differently are not marked."""
    got, expected = (torch.as_tensor(x).reshape(-1, x.shape[-1]) for x in (got, expected))
    fig = compare_masks(got, expected, marked=not right)
    fig.axes[0].set_ylabel("head")
    for axes in fig.axes:
        axes.set_xlabel("slot")
    return fig


def recent_ones(position: Tensor, recent: int) -> Tensor:
    """Return True for the `recent` newest tokens of each head."""
    return position.argsort(dim=-1).argsort(dim=-1) >= position.shape[-1] - recent
