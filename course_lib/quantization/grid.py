"""Uniform quantization grids: the few values that the weights of a row, or of a group of its columns, may take.

Dimension key: O outputs (rows), I inputs (columns), G groups of columns in a row, W columns of one group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from course_lib.settings import check_flag
from course_lib.sparsity.ranking import check_matrix, check_positive


@dataclass(frozen=True)
class Grid:
    """The values scale · (code − zero) for code = 0 … 2^bits − 1. The grid contains 0, so pruned weights stay zero.

    Rounding is w → scale · (clamp(round(w / scale) + zero) − zero): round to nearest.
    """

    scale: Float[Tensor, "O G"]
    zero: Float[Tensor, "O G"]  # the code of the value 0: a whole number
    bits: int
    group: int  # columns that share a scale

    def round(self, weight: Float[Tensor, "O I"]) -> Float[Tensor, "O I"]:
        """Round each weight to the nearest value of its grid."""
        return self.decode(self.codes(weight)).to(weight.dtype)

    def codes(self, weight: Float[Tensor, "O I"]) -> UInt8[Tensor, "O I"]:
        """Return the code of the nearest value for each weight."""
        scale, zero = self._by_column(weight.shape[1])
        return _codes(weight.float(), scale, zero, self.bits).to(torch.uint8)

    def decode(self, codes: UInt8[Tensor, "O I"]) -> Float[Tensor, "O I"]:
        """Return the values of the codes."""
        scale, zero = self._by_column(codes.shape[1])
        return scale * (codes - zero)

    def round_column(self, column: Float[Tensor, "O"], index: int) -> Float[Tensor, "O"]:
        """Round the weights of input `index`."""
        scale, zero = self.scale[:, index // self.group], self.zero[:, index // self.group]
        return scale * (_codes(column, scale, zero, self.bits) - zero)

    def _by_column(self, n_columns: int) -> tuple[Float[Tensor, "O I"], Float[Tensor, "O I"]]:
        if not (self.scale.shape[1] - 1) * self.group < n_columns <= self.scale.shape[1] * self.group:
            raise ValueError(
                f"got {n_columns} columns for a grid of {self.scale.shape[1]} groups of {self.group}; expected the "
                "width that the grid was fixed for. Make a grid from this weight."
            )
        return tuple(x.repeat_interleave(self.group, 1)[:, :n_columns] for x in (self.scale, self.zero))


def _codes(weight: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    return (torch.round(weight / scale) + zero).clamp(0, 2**bits - 1)


@dataclass(frozen=True)
class Quantization:
    """The settings of a grid, which spans the range from the smallest to the largest weight and always includes 0.

    Attributes:
        bits: bits per code; 2 to 8.
        group: columns of a row that share a scale; the whole row when None. The last group may be narrower.
        symmetric: the range is symmetric around 0, up to the largest magnitude; there is one more code below 0 than
            above.
    """

    bits: int = 4
    group: int | None = None
    symmetric: bool = False

    def __post_init__(self) -> None:
        check_positive("bits", self.bits)
        if not 2 <= self.bits <= 8:
            raise ValueError(f"bits={self.bits}: expected 2 to 8; one bit has no value between the extremes")
        if self.group is not None:
            check_positive("group", self.group)
        check_flag("symmetric", self.symmetric)

    def grid(self, weight: Float[Tensor, "O I"]) -> Grid:
        """Compute the grid of a weight, in float32.

        Raises:
            ValueError: weights that are not finite, or so large that a value of the grid would not be finite; a matrix
                without columns.
        """
        check_matrix("weight", weight)
        if weight.is_meta:
            raise ValueError("got a weight on the meta device, without data; load the model's weights first.")
        if weight.shape[1] == 0 or not bool(weight.isfinite().all()):
            raise ValueError(
                f"got a weight of shape {tuple(weight.shape)}, {int((~weight.isfinite()).sum())} entries of it not "
                "finite; expected finite weights and at least one column. Load another checkpoint."
            )
        group = min(self.group or weight.shape[1], weight.shape[1])
        padded = torch.nn.functional.pad(weight.float(), (0, -weight.shape[1] % group))  # zeros widen no range
        low, high = (x.float() for x in padded.unflatten(1, (-1, group)).aminmax(dim=2))
        low, high = low.clamp(max=0), high.clamp(min=0)
        if self.symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scale = (high - low) / (2**self.bits - 1)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # a row of zeros: any scale has its one value
        zero = torch.full_like(scale, 2 ** (self.bits - 1)) if self.symmetric else torch.round(-low / scale)
        ends = torch.stack([scale * -zero, scale * (2**self.bits - 1 - zero)])  # up to half a step beyond the weights
        if not bool(ends.to(weight.dtype).isfinite().all()):
            raise ValueError(
                f"got weights from {float(weight.min()):g} to {float(weight.max()):g}; expected a range whose grid of "
                f"{self.bits} bits {weight.dtype} holds. Scale the weights down, or load another checkpoint."
            )
        return Grid(scale, zero, self.bits, group)

    def grid_of(self, rounded: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Grid:
        """Return the grid of `rounded`, given the dense weight from which it was made.

        GPTQ ignores inputs that are zero in all calibration tokens when it fixes the range of a group, and sets their
        weights to zero. We do not know here which inputs these were, and pruning can also set a whole column to zero.
        So we try, for each group: the grid of the dense weight; the grid without all columns that became zero; and
        grids without some of them. A group that fits none of these was not rounded before; it gets the second grid, and
        storing it rounds it.
        """
        grid = self.grid(dense)
        if self.group is None or not bool((misses := _misses(grid, rounded)).any()):
            return grid
        other = self.grid(dense.masked_fill((rounded == 0).all(0), 0))
        scale, zero = torch.where(misses, other.scale, grid.scale), torch.where(misses, other.zero, grid.zero)
        misses = _misses(Grid(scale, zero, self.bits, grid.group), rounded)
        for index in misses.any(0).nonzero().flatten().tolist():
            rows, columns = misses[:, index].nonzero().flatten(), slice(index * grid.group, (index + 1) * grid.group)
            gone = ((rounded == 0).all(0) & (dense != 0).any(0))[columns]
            for fits, found in self._without_some(rounded[rows, columns], dense[rows, columns], gone):
                scale[rows[fits], index], zero[rows[fits], index] = found.scale[fits, 0], found.zero[fits, 0]
        return Grid(scale, zero, self.bits, grid.group)

    def _without_some(
        self, rounded: Float[Tensor, "O W"], dense: Float[Tensor, "O W"], gone: Bool[Tensor, "W"]
    ) -> Iterator[tuple[Bool[Tensor, "O"], Grid]]:
        """Yield grids of a group without some of the columns `gone`, and the rows that fit each; a row occurs once.

        Only the ends of the range matter: each end comes from the columns that were kept, or from one of those `gone`.
        """
        stayed, left = dense.masked_fill(gone, 0), torch.ones(len(dense), dtype=torch.bool, device=dense.device)
        if not bool(gone.any()):
            return
        others = [torch.zeros_like(stayed[:, 0]), *dense[:, gone].unbind(1)]  # a range reaches zero in any case
        lows = [torch.minimum(stayed.amin(1), other) for other in others]
        highs = [torch.maximum(stayed.amax(1), other) for other in others]
        for low, high in product(lows, highs):
            ends = self.grid(torch.stack([low, high], dim=1))
            found = Grid(ends.scale, ends.zero, self.bits, dense.shape[1])
            fits = left & ~_misses(found, rounded)[:, 0]
            left &= ~fits
            yield fits, found
            if not bool(left.any()):
                return


def _misses(grid: Grid, weight: Float[Tensor, "O I"]) -> Bool[Tensor, "O G"]:
    """Return which groups contain a weight that is not a value of the grid."""
    off = (grid.round(weight) != weight).float()
    return torch.nn.functional.pad(off, (0, -off.shape[1] % grid.group)).unflatten(1, (-1, grid.group)).any(2)


def most_values(weight: Float[Tensor, "O I"], group: int) -> int:
    """Count the distinct values in each group of neighbours in a row; return the largest count.

    It is at most 2^bits if the weights were rounded to a grid.

    Raises:
        ValueError: the number of columns is not a multiple of `group`.
    """
    check_matrix("weight", weight)
    check_positive("group", group)
    if weight.numel() == 0 or weight.shape[1] % group:
        raise ValueError(f"got a weight of shape {tuple(weight.shape)}; expected columns in groups of {group}.")
    ordered = weight.reshape(-1, group).sort(dim=1).values
    return 1 + int((ordered.diff(dim=1) != 0).sum(dim=1).max())


def before_rounding(
    weight: Float[Tensor, "O I"], group: int, bits: int, generator: torch.Generator
) -> Float[Tensor, "O I"]:
    """Return weights that could have been rounded to these, with grids that span the values of each group.

    Each weight moves by up to half a step at random. This does not recover the original weights, but errors of their
    size.
    """
    check_matrix("weight", weight)
    groups = weight.reshape(-1, group)
    step = (groups.amax(dim=1) - groups.amin(dim=1)) / (2**bits - 1)
    moves = torch.rand(groups.shape, generator=generator) - 0.5
    return (groups + moves * step[:, None]).reshape(weight.shape)


def check_quantization(quantization: object) -> None:
    """Raise ValueError for anything but a Quantization, such as a number of bits."""
    if not isinstance(quantization, Quantization):
        raise ValueError(f"got quantization {quantization!r}; expected an instance such as Quantization(4).")
