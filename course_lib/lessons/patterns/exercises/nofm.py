"""The exercise patterns.nofm, "Compress to 2:4": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_masks


def _compress(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().sort(dim=2, stable=True).indices[:, :, 2:].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _agree_on_compressed(got: Any, expected: tuple, case: Case) -> str | None:
    """Results agree if each group keeps weights of the same size: of two equal ones either may be kept."""
    problem = close(got, expected)
    if problem is None or not isinstance(got, tuple) or len(got) != 2:
        return problem
    (values, wrong_values), (positions, wrong_positions) = map(tensor_like, got, expected)
    if wrong_values or wrong_positions:
        return f"values: {wrong_values}" if wrong_values else f"positions: {wrong_positions}"
    if not (positions == positions.to(torch.uint8)).all():
        return "the positions are not whole numbers from 0 to 3"
    positions = positions.long()  # the difference of two bytes is never negative
    if not (positions < 4).all():
        return f"a position is {int(positions.max())}: expected positions in the group of four, 0 to 3"
    if not (positions.unflatten(1, (-1, 2)).diff(dim=2) > 0).all():
        return "the two positions of a group are not in ascending order"
    stored = case.arguments[0].unflatten(1, (-1, 4)).gather(2, positions.unflatten(1, (-1, 2))).flatten(1)
    if complaint := close(values, stored):
        return f"the values are not the weights at these positions: {complaint}"
    sizes = (kept.double().abs().unflatten(1, (-1, 2)).sort(dim=2).values.flatten(1) for kept in (values, expected[0]))
    return problem if close(*sizes) else None


def _stored(positions: Tensor) -> Tensor:
    """Turn positions (O, I / 2) into a mask (O, I), True where an input is stored."""
    pairs = torch.as_tensor(positions).long().unflatten(1, (-1, 2)) % 4
    return torch.zeros(*pairs.shape[:2], 4, dtype=torch.bool).scatter(2, pairs, True).flatten(1)


def _compress_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[1.0, -4.0, 3.0, 2.0, 8.0, 5.0, -6.0, 7.0], [9.0, 1.0, 2.0, -3.0, 0.5, -0.25, 0.0, 0.125]])
    return [
        Case("2 × 8 worked by hand", (weight,)),
        Case("12 × 48, random", (randn(generator, 12, 48),)),
        Case("a group of zeros", (torch.cat([torch.zeros(3, 4), randn(generator, 3, 4)], dim=1),)),
        Case("a square weight, transposed and not contiguous", (randn(generator, 16, 16).T,)),
        Case("weights of equal size", (torch.tensor([[2.0, -2.0, 2.0, -2.0, 1.0, -3.0, 3.0, 3.0]]),)),
    ]


def _compress_as_columns(weight: Tensor) -> tuple[Tensor, Tensor]:
    values, positions = _compress(weight)
    return values, positions + 4 * (torch.arange(positions.shape[1]) // 2)


def _compress_by_size(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().topk(2, dim=2).indices
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _compress_weakest(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().sort(dim=2, stable=True).indices[:, :, :2].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _compress_interleaved(weight: Tensor) -> tuple[Tensor, Tensor]:
    return _compress(weight.unflatten(1, (4, -1)).transpose(1, 2).flatten(1))


def _library(weight: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.sparsity.patterns import NofM

    keep, half = NofM(2, 4).keep(weight.abs()), (weight.shape[0], weight.shape[1] // 2)
    return weight[keep].reshape(half), (keep.nonzero()[:, 1] % 4).reshape(half)


def _half_of_each_row(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Choose freely in each row, so that a group may keep none or all four."""
    columns = weight.abs().topk(weight.shape[1] // 2, dim=1).indices.sort(dim=1).values
    return weight.gather(1, columns), columns % 4


def _one_of_every_two(weight: Tensor) -> tuple[Tensor, Tensor]:
    pairs = weight.unflatten(1, (-1, 2))
    positions = pairs.abs().argmax(dim=2, keepdim=True)
    return pairs.gather(2, positions).flatten(1), positions.flatten(1)


def _values_by_size(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Values taken before the positions are sorted."""
    return _compress_by_size(weight)[0], _compress(weight)[1]


def _values_in_order_alone(weight: Tensor) -> tuple[Tensor, Tensor]:
    return _compress(weight)[0], _compress_by_size(weight)[1]


def _mask_for_positions(weight: Tensor) -> tuple[Tensor, Tensor]:
    values, positions = _compress(weight)
    pairs = positions.unflatten(1, (-1, 2))
    keep = torch.zeros(*pairs.shape[:2], 4, dtype=torch.bool).scatter(2, pairs, True)
    return values, keep.flatten(1)


def _two_from_each_four_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Groups by reshape(4, -1)."""
    groups = weight.reshape(4, -1)
    positions = groups.abs().topk(2, dim=0).indices.sort(dim=0).values
    half = weight.shape[0], weight.shape[1] // 2
    return groups.gather(0, positions).reshape(half), positions.reshape(half)


def _compress_down(weight: Tensor) -> tuple[Tensor, Tensor]:
    values, positions = _compress(weight.T)
    return values.T, positions.T


NOFM = Exercise(
    id="patterns.nofm",
    title="Compress to 2:4",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_compress,
    cases=_compress_cases,
    agree=_agree_on_compressed,
    picture=lambda case, got, expected: compare_masks(
        _stored(got[1]), _stored(expected[1] if _agree_on_compressed(got, expected, case) else got[1]), 4
    ),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("a mask first", lambda weight: _compress_by_mask(weight)),
        Variant("positions in one byte", lambda w: (_compress(w)[0], _compress(w)[1].to(torch.uint8))),
        Variant("topk, then sort", lambda w: _compress_sorted_topk(w)),
    ),
    hints=(
        "weight.unflatten(1, (-1, 4)) gives each group of four neighbours an axis of its own.",
        "topk(2) of the absolute values gives positions in the order of size; sort them along the same axis.",
        "groups.gather(2, positions) picks the weights; flatten(1) brings both back to (O, I / 2).",
    ),
)


def _compress_signed(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.sort(dim=2, stable=True).indices[:, :, 2:].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _compress_by_mask(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.reshape(-1, 4)
    keep = groups.abs().argsort(1).argsort(1) >= 2
    half = (weight.shape[0], weight.shape[1] // 2)
    return groups[keep].reshape(half), (keep.nonzero()[:, 1]).reshape(half)


def _compress_sorted_topk(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions, _ = groups.abs().topk(2, dim=2).indices.sort(dim=2)
    return torch.take_along_dim(groups, positions, 2).flatten(1), positions.flatten(1)
