"""The exercise kv.quantize, "Four bits on top": its cases and its named mistakes."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _quantize(
    row: Tensor,
    n_bits: int,
    group_size: int,
    n_steps: int | None = None,
    rounded: Any = torch.round,
    least: float = 1e-30,
) -> Tensor:
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (n_steps or 2**n_bits - 1)
    return (low + rounded((groups - low) / step.clamp(min=least)) * step.clamp(min=least)).reshape(row.shape)


def _quantize_cases(generator: torch.Generator) -> list[Case]:
    # Groups 0 … 3 and −6 … 6 in two bits: steps 1 and 4; 0.4 falls to 0, and −1 to −2
    by_hand = torch.tensor([0.0, 0.4, 2.2, 3.0, -6.0, -1.0, 3.5, 6.0])
    large = torch.randn(64, generator=generator)
    large[17] *= 40
    large[32:48] *= 2e-3
    same = torch.randn(24, generator=generator)
    same[8:16] = 0.7
    same[16:] *= 1e-3
    # A group of usual size, a constant one, and one with steps of 8e-6: 1, 3, 0 and 2 steps above the lowest, −8e-6
    mixed = torch.tensor([1.0, 0.1, -1.0, 0.3, 0.4, 0.4, 0.4, 0.4, 0.0, 1.6e-5, -8e-6, 8e-6])
    return [
        Case("a usual, a constant and a tiny group, two bits, by hand", (mixed, 2, 4)),
        Case("two groups of four, two bits, by hand", (by_hand, 2, 4)),
        Case("64 numbers, one of them large, 16 small, 4 bits", (large, 4, 16)),
        Case("a constant group, and a small one", (same, 4, 8)),
        Case("far from zero, 3 bits", (9 + torch.randn(40, generator=generator), 3, 10)),
    ]


def _agree_on_grid(got: Any, expected: Tensor, case: Case) -> str | None:
    """Compare with the nearest level of each grid; of two equally near levels, either is right.

    The tolerance of a millionth per level allows for a step to which 1e-6 was added.
    """
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    row, n_bits, group_size = case.arguments
    exact, mine, right = (x.double().reshape(-1, group_size) for x in (row, got, expected))
    step = (exact.amax(dim=1, keepdim=True) - exact.amin(dim=1, keepdim=True)) / (2**n_bits - 1)
    free = 1e-5 * exact.abs() + 1.1e-6 * (2**n_bits - 1)
    same = (mine - right).abs() <= free
    next_level = ((mine - right).abs() - step).abs() <= free
    as_near = ((mine - exact).abs() - (right - exact).abs()).abs() <= torch.minimum(2 * free, step / 4)
    return close(torch.where(same | (next_level & as_near), right, mine).reshape(row.shape), expected.double())


def _both_grids(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.masks import compare_rounding

    row, _, group_size = case.arguments
    return compare_rounding(row, got, expected, group_size)


def _library(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    from course_lib.lessons.kv.steps import quantize_row

    return quantize_row(row, n_bits, group_size)


QUANTIZE = Exercise(
    id="kv.quantize",
    title="Four bits on top",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_quantize,
    cases=_quantize_cases,
    agree=_agree_on_grid,
    library=_library,
    picture=_both_grids,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("number by number", lambda x, b, g: _quantize_by_number(x, b, g)),
        Variant("a millionth added to the step", lambda x, b, g: _quantize_with_guard(x, b, g)),
        Variant("ties upwards", lambda x, b, g: _quantize(x, b, g, rounded=lambda code: (code + 0.5).floor())),
        Variant("float64", lambda x, b, g: _quantize(x.double(), b, g)),
    ),
    hints=(
        "For each group: lowest, highest, and a step of (highest − lowest) / (2^bits − 1).",
        "The code is round((x − lowest) / step), the value lowest + code · step.",
        "Where the step is 0, use any other step: the codes are 0 anyway.",
    ),
)


def _quantize_with_guard(row: Tensor, n_bits: int, group_size: int, guard: float = 1e-6) -> Tensor:
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (2**n_bits - 1) + guard
    return (low + ((groups - low) / step).round() * step).reshape(row.shape)


def _quantize_symmetric(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    groups = row.reshape(-1, group_size)
    step = groups.abs().amax(dim=1, keepdim=True) / (2 ** (n_bits - 1) - 1)
    return ((groups / step).round() * step).reshape(row.shape)


def _codes(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (2**n_bits - 1)
    return ((groups - low) / step.clamp(min=1e-30)).round().reshape(row.shape)


def _quantize_dividing_by_zero(row: Tensor, n_bits: int, group_size: int) -> Tensor:
    groups = row.reshape(-1, group_size)
    low = groups.amin(dim=1, keepdim=True)
    step = (groups.amax(dim=1, keepdim=True) - low) / (2**n_bits - 1)
    return (low + ((groups - low) / step).round() * step).reshape(row.shape)


def _quantize_by_number(row: Tensor, n_bits: int, group_size: int) -> list[float]:
    rounded = []
    for group in row.split(group_size):
        low, high = float(group.min()), float(group.max())
        grid = [low + (high - low) * level / (2**n_bits - 1) for level in range(2**n_bits)]
        rounded += [min(grid, key=lambda level, x=float(x): abs(level - x)) for x in group]
    return rounded
