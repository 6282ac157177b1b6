"""The exercise capstone.combine, "A mask and a grid": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns), G groups of columns in a row.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

CLEAR = 1e-4  # of a step, by which no weight of the cases lies nearer to the middle of two values


def _combine(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    score = weight.abs() * norm
    keep = _largest(score, n_kept)
    low, high = _ends(weight, keep, group)
    step = (high - low) / (2**bits - 1)
    codes = torch.where(step > 0, (weight - low) / step, 0)
    rounded = codes.round().clamp(0, 2**bits - 1)
    return torch.where(keep, low + rounded * step, 0)


def _largest(score: Tensor, n: int) -> Tensor:
    order = score.sort(dim=1, descending=True, stable=True).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, order[:, :n], True)


def _ends(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest kept weight of each group, (O, I) each."""
    low = weight.masked_fill(~keep, torch.inf).unflatten(1, (-1, group)).amin(dim=2)
    high = weight.masked_fill(~keep, -torch.inf).unflatten(1, (-1, group)).amax(dim=2)
    return low.repeat_interleave(group, dim=1), high.repeat_interleave(group, dim=1)


def _to_zero(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    return low.clamp(max=0), high.clamp(min=0)


def _both_ways(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    most = torch.maximum(-low, high)
    return -most, most


def _pruned(weight: Tensor, norm: Tensor, n_kept: int) -> Tensor:
    return torch.where(_largest(weight.abs() * norm, n_kept), weight, 0)


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got), expected, "output", "input; the middle colour is 0")


def _combine_cases(generator: torch.Generator) -> list[Case]:
    def drawn(
        rows: int,
        n_kept: int,
        bits: int,
        group: int,
        factors: tuple[float, ...],
        shift: float = 0.0,
        zeros: bool = False,
    ) -> tuple[Any, ...]:
        """Large weights where the norm is small, so that some of the largest are pruned; a factor a group."""
        while True:
            norm = (0.8 * randn(generator, len(factors) * group)).exp()
            weight = randn(generator, rows, len(norm)) * norm ** (-0.5) + shift
            weight[::2, 1] *= 1 - zeros
            given = weight, norm * torch.tensor(factors).repeat_interleave(group), n_kept, bits, group
            if is_clear(*given):
                return given

    by_hand = torch.tensor([[1.0, 7.0, 4.5, -2.0], [-4.0, 5.0, 1.0, 4.0]]), torch.tensor([1.0, 1.0, 1.0, 0.125])
    turned = drawn(9, 13, 3, 8, (1.0,) * 4, 0.3)
    return [
        Case("2 × 4 by hand, 3 a row, 2 bits: grids from 1 to 7 and from −4 to 5", (*by_hand, 3, 2, 4)),
        Case("half of 6 × 32, 4 bits, groups of 16", drawn(6, 16, 4, 16, (1.0,) * 2)),
        Case("a third of 7 × 48, 2 bits, groups of 8", drawn(7, 16, 2, 8, (1.0,) * 6)),
        Case("16 × 16 weights above zero, 3 bits, groups of 8", drawn(16, 10, 3, 8, (1.0,) * 2, 6.0)),
        Case("groups of which little or nothing stays", drawn(5, 9, 3, 8, (30.0, 1.0, 0.001))),
        Case("one weight a row", drawn(4, 1, 4, 8, (1.0,) * 2)),
        Case("all stay, a 0 among them too, 2 bits, a group a row", drawn(8, 12, 2, 12, (1.0,), 9.0, zeros=True)),
        Case("not contiguous", (turned[0].T.contiguous().T, *turned[1:])),
    ]


def is_clear(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> bool:
    """Whether rounding another way round cannot change a code, nor a mask: no weight is halfway between two values."""
    keep, score = _largest(weight.abs() * norm, n_kept), (weight.abs() * norm).sort(dim=1, descending=True).values
    low, high = _ends(weight, keep, group)
    step = (high - low) / (2**bits - 1)
    codes = torch.where(step > 0, (weight - low) / step, 0)[keep]
    apart = score[:, n_kept - 1] - score[:, min(n_kept, score.shape[1] - 1)]
    is_all = n_kept == score.shape[1]
    return bool(((codes % 1 - 0.5).abs() > CLEAR).all()) and (is_all or bool((apart > CLEAR * score[:, 0]).all()))


def _library(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    from course_lib.lessons.capstone.methods import pruned_and_rounded

    return pruned_and_rounded(weight, norm, n_kept, bits, group)


COMBINE = Exercise(
    id="capstone.combine",
    title="A mask and a grid",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_combine,
    cases=_combine_cases,
    picture=_picture,
    library=_library,
    trivial=(Trivial("pruning without rounding", lambda w, norm, n, bits, group: w * _largest(w.abs() * norm, n)),),
    mistakes=read_mistakes(globals(), steps_of=_combine),
    also_right=(
        Variant("row by row, group by group", lambda *given: _in_loops(*given)),
        Variant("the nearest of all values", lambda *given: _by_distance(*given)),
        Variant("in float64", lambda w, norm, *rest: _combine(w.double(), norm.double(), *rest)),
    ),
    hints=(
        "Three things in this order: a mask by |w| · norm, the two ends of each group among the kept weights, and the "
        "rounding. Apply the mask last.",
        "For the ends, fill pruned weights with +∞ and take the minimum over a group, then with −∞ and the maximum. "
        "unflatten(1, (-1, group)) makes groups of a row.",
        "step = (high − low) / (2**bits − 1), value = low + round((w − low) / step) · step. If step is 0, it is low.",
    ),
)


def _in_loops(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> list[list[float]]:
    rows = []
    for row in weight.tolist():
        scores = [abs(w) * f for w, f in zip(row, norm.tolist(), strict=True)]
        stays = set(sorted(range(len(row)), key=lambda i: -scores[i])[:n_kept])
        out = [0.0] * len(row)
        for start in range(0, len(row), group):
            here = [i for i in range(start, start + group) if i in stays]
            low, high = min((row[i] for i in here), default=0), max((row[i] for i in here), default=0)
            step = (high - low) / (2**bits - 1) or 1.0
            for i in here:
                out[i] = low + round((row[i] - low) / step) * step
        rows.append(out)
    return rows


def _by_distance(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    keep = _largest(weight.abs() * norm, n_kept)
    low, high = (end.masked_fill(~keep, 0.0) for end in _ends(weight, keep, group))
    values = low[..., None] + (high - low)[..., None] * torch.linspace(0, 1, 2**bits, dtype=weight.dtype)
    nearest = (values - weight[..., None]).abs().argmin(dim=2, keepdim=True)
    return values.gather(2, nearest)[..., 0] * keep
