"""The exercise patterns.nofm, "Compress to 2:4": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns).
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.short import short
from course_lib.lessons.patterns.exercises.common import randn


def _compress(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, 4))
    positions = groups.abs().sort(dim=2, stable=True).indices[:, :, 2:].sort(dim=2).values
    return groups.gather(2, positions).flatten(1), positions.flatten(1)


def _scattered(values: Tensor, positions: Tensor) -> Tensor:
    pairs = positions.long().unflatten(1, (-1, 2))
    dense = torch.zeros(*pairs.shape[:2], 4, dtype=torch.float64)
    return dense.scatter(2, pairs, values.double().unflatten(1, (-1, 2))).flatten(1)


def _agree_on_compressed(got: Any, expected: tuple, case: Case) -> str | None:
    """Pairs agree when they stand for the same matrix: the place of a stored zero is free."""
    if close(got, expected) is None:
        return None
    if not isinstance(got, tuple) or len(got) != 2:
        return f"got {short(got)}, expected two tensors: values and positions"
    (values, wrong_values), (positions, wrong_positions) = map(tensor_like, got, expected)
    if wrong_values or wrong_positions:
        return f"values: {wrong_values}" if wrong_values else f"positions: {wrong_positions}"
    if not (positions == positions.to(torch.uint8)).all():
        return "the positions are no whole numbers from 0 to 3"
    positions = positions.long()  # the difference of two bytes is never negative
    if not (positions < 4).all():
        return f"a position is {int(positions.max())}: expected places in the group of four, 0 to 3"
    if not (positions.unflatten(1, (-1, 2)).diff(dim=2) > 0).all():
        return "the two positions of a group are not in ascending order"
    return close(_scattered(values, positions), _scattered(*expected))


def _compress_cases(generator: torch.Generator) -> list[Case]:
    weight = torch.tensor([[1.0, -4.0, 3.0, 2.0, 8.0, 5.0, -6.0, 7.0], [9.0, 1.0, 2.0, -3.0, 0.5, 0.0, 0.0, 0.0]])
    return [
        Case("2 × 8 worked by hand", (weight,)),
        Case("12 × 48, drawn", (randn(generator, 12, 48),)),
        Case("a group of zeros", (torch.cat([torch.zeros(3, 4), randn(generator, 3, 4)], dim=1),)),
        Case("a transposed, non-contiguous weight", (randn(generator, 16, 8).T,)),
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
    mistakes=(
        Mistake(
            "columns instead of places",
            "These are column numbers. A place in a group of four is 0 to 3 and fits two bits; a column does not.",
            _compress_as_columns,
        ),
        Mistake(
            "larger one first",
            "The two of a group come in order of size. Hardware expects them in order of their place.",
            _compress_by_size,
        ),
        Mistake(
            "absolute values stored",
            "The signs are lost. Rank by absolute value, then store the weights themselves.",
            lambda weight: _compress(weight.abs()),
        ),
        Mistake("weakest kept", "The two smallest of each group stayed.", _compress_weakest),
        Mistake(
            "rank keeps the sign",
            "The two largest signed values stayed: a weight of −4 lost against 2. Rank by absolute value.",
            lambda weight: _compress_signed(weight),
        ),
        Mistake(
            "interleaved groups",
            "A group is four neighbouring inputs. Here it is every (I/4)-th: unflatten as (−1, 4), not (4, −1).",
            _compress_interleaved,
        ),
        Mistake(
            "groups down the outputs",
            "The groups run down a column. A dot product runs along the inputs, and there the zeros must be regular.",
            _compress_down,
        ),
    ),
    also_right=(
        Variant("a mask first", lambda weight: _compress_by_mask(weight)),
        Variant("positions in one byte", lambda w: (_compress(w)[0], _compress(w)[1].to(torch.uint8))),
        Variant("topk, then sort", lambda w: _compress_sorted_topk(w)),
    ),
    hints=(
        "weight.unflatten(1, (-1, 4)) gives every group of four neighbours an axis of its own.",
        "topk(2) of the absolute values gives places in order of size; sort them along the same axis.",
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
