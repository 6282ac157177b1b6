"""The exercise capstone.combine, "A mask and a grid": its cases and its named mistakes.

Dimension key: O outputs (rows), I inputs (columns), G groups of columns in a row.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int, int, int], Any]
Ends = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]  # (weight, keep, group) -> both ends of each grid
CLEAR = 1e-4  # of a step, by which no weight of the cases lies nearer to the middle of two values


def _largest(score: Tensor, n: int) -> Tensor:
    order = score.sort(dim=1, descending=True, stable=True).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, order[:, :n], True)


def _mask(weight: Tensor, norm: Tensor, n: int) -> Tensor:
    return _largest(weight.abs() * norm, n)


def _spread(values: Tensor, group: int) -> Tensor:
    """(O, G) to (O, I)."""
    return values.repeat_interleave(group, dim=1)


def _of_kept(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    low = weight.masked_fill(~keep, torch.inf).unflatten(1, (-1, group)).amin(dim=2)
    high = weight.masked_fill(~keep, -torch.inf).unflatten(1, (-1, group)).amax(dim=2)
    return _spread(low, group), _spread(high, group)


def _of_dense(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    return _of_kept(weight, torch.ones_like(keep), group)


def _of_pruned(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """With the zeros."""
    return _of_dense(weight * keep, keep, group)


def _to_zero(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    low, high = _of_kept(weight, keep, group)
    return low.clamp(max=0), high.clamp(min=0)


def _of_row(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    return _of_kept(weight, keep, weight.shape[1])


def _of_layer(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    low, high = _of_kept(weight.reshape(1, -1), keep.reshape(1, -1), weight.numel())
    return low.reshape(weight.shape), high.reshape(weight.shape)


def _both_ways(weight: Tensor, keep: Tensor, group: int) -> tuple[Tensor, Tensor]:
    low, high = _of_kept(weight, keep, group)
    most = torch.maximum(-low, high)
    return -most, most


def _codes(weight: Tensor, ends: tuple[Tensor, Tensor], n_steps: int) -> tuple[Tensor, Tensor]:
    """In steps above the lower end, and the step; nothing is rounded."""
    step = (ends[1] - ends[0]) / n_steps
    return torch.where(step > 0, (weight - ends[0]) / step, 0), step


def _rounded(
    weight: Tensor,
    ends: tuple[Tensor, Tensor],
    bits: int,
    n_steps: Callable[[int], int] = lambda bits: 2**bits - 1,
    by: Callable[[Tensor], Tensor] = torch.round,
    most: int = 0,
) -> Tensor:
    """most: by how much a code may exceed the largest there is."""
    codes, step = _codes(weight, ends, n_steps(bits))
    return ends[0] + by(codes).clamp(0, 2**bits - 1 + most) * step


def _with(ends: Ends = _of_kept, mask: Callable[[Tensor, Tensor, int], Tensor] = _mask, **how: Any) -> Answer:
    def answer(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
        keep = mask(weight, norm, n_kept)
        return torch.where(keep, _rounded(weight, ends(weight, keep, group), bits, **how), 0)

    return answer


def _never_masked(ends: Ends) -> Answer:
    """Pruned first, then everything rounded."""

    def answer(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
        keep = _mask(weight, norm, n_kept)
        return _rounded(weight * keep, ends(weight, keep, group), bits).nan_to_num(0, 0, 0)

    return answer


def _rounded_first(ends: Ends = _of_dense) -> Answer:
    """The mask is that of the rounded weights."""

    def answer(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
        rounded = _rounded(weight, ends(weight, torch.ones_like(weight, dtype=torch.bool), group), bits)
        return torch.where(_mask(rounded, norm, n_kept), rounded, 0)

    return answer


def _rounded_twice(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    """Rounded, pruned by what came out, and rounded once more on what is left."""
    every = torch.ones_like(weight, dtype=torch.bool)
    return _with()(_rounded(weight, _of_dense(weight, every, group), bits), norm, n_kept, bits, group)


def _symmetric(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    keep = _mask(weight, norm, n_kept)
    most = _spread((weight * keep).abs().unflatten(1, (-1, group)).amax(dim=2), group)
    step = most / (2 ** (bits - 1) - 1)
    return torch.where(keep & (step > 0), step * (weight / step).round(), 0)


def _zero_point(of: Ends) -> Answer:
    """A grid that reaches zero and has a code for it, as where no mask says which weights are zero."""

    def answer(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
        keep = _mask(weight, norm, n_kept)
        low, high = of(weight, keep, group)
        low, high = low.clamp(max=0), high.clamp(min=0)
        step = (high - low) / (2**bits - 1)
        zero = (-low / step).round()
        value = step * (((weight / step).round() + zero).clamp(0, 2**bits - 1) - zero)
        return torch.where(keep, value, 0)

    return answer


def _step_of_nothing(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    keep = _mask(weight, norm, n_kept)
    low, high = _of_kept(weight, keep, group)
    step = (high - low) / (2**bits - 1)
    return torch.where(keep, low + ((weight - low) / step).round() * step, 0)


def _as_codes(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    keep = _mask(weight, norm, n_kept)
    return torch.where(keep, _codes(weight, _of_kept(weight, keep, group), 2**bits - 1)[0].round(), 0)


def _of_all(score: Tensor, n: int) -> Tensor:
    return _largest(score.reshape(1, -1), n * len(score)).reshape(score.shape)


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
    keep, score = _mask(weight, norm, n_kept), (weight.abs() * norm).sort(dim=1, descending=True).values
    codes = _codes(weight, _of_kept(weight, keep, group), 2**bits - 1)[0][keep]
    apart = score[:, n_kept - 1] - score[:, min(n_kept, score.shape[1] - 1)]
    is_all = n_kept == score.shape[1]
    return bool(((codes % 1 - 0.5).abs() > CLEAR).all()) and (is_all or bool((apart > CLEAR * score[:, 0]).all()))


def _library(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    from course_lib.lessons.capstone.steps.combined import pruned_and_rounded

    return pruned_and_rounded(weight, norm, n_kept, bits, group)


COMBINE = Exercise(
    id="capstone.combine",
    title="A mask and a grid",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_with(),
    cases=_combine_cases,
    picture=_picture,
    library=_library,
    trivial=(Trivial("pruning without rounding", lambda w, norm, n, bits, group: w * _mask(w, norm, n)),),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("row by row, group by group", lambda *given: _in_loops(*given)),
        Variant("the nearest of all values", lambda *given: _by_distance(*given)),
        Variant("in float64", lambda w, norm, *rest: _with()(w.double(), norm.double(), *rest)),
    ),
    hints=(
        "Three things in this order: a mask by |w| · norm, the two ends of each group among what stays, and the "
        "rounding. The mask is applied last.",
        "For the ends fill what is pruned with +∞ and take the minimum over a group, then with −∞ and the maximum. "
        "unflatten(1, (-1, group)) makes groups of a row.",
        "step = (high − low) / (2**bits − 1), value = low + round((w − low) / step) · step. If step is 0, it is low.",
    ),
)


def _from_zero(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    keep = _mask(weight, norm, n_kept)
    codes, step = _codes(weight, _of_kept(weight, keep, group), 2**bits - 1)
    return torch.where(keep, codes.round() * step, 0)


def _zeros_at_the_end_of_the_grid(weight: Tensor, norm: Tensor, n_kept: int, bits: int, group: int) -> Tensor:
    """Code 0 for what is pruned, which stands for the lower end."""
    keep = _mask(weight, norm, n_kept)
    low = _of_kept(weight, keep, group)[0]
    return torch.where(keep, _with()(weight, norm, n_kept, bits, group), low.nan_to_num(0, 0, 0))


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
    keep = _mask(weight, norm, n_kept)
    low, high = (end.masked_fill(~keep, 0.0) for end in _of_kept(weight, keep, group))
    values = low[..., None] + (high - low)[..., None] * torch.linspace(0, 1, 2**bits, dtype=weight.dtype)
    nearest = (values - weight[..., None]).abs().argmin(dim=2, keepdim=True)
    return values.gather(2, nearest)[..., 0] * keep
