"""Storage layouts of compressed weights: named tensors, whose bytes are the memory footprint of the weight.

Evaluation uses the decoded weights, so that rounding values and scales to float16 is part of the compression.

Dimension key: O outputs of a layer (rows), I its inputs (columns), Z stored weights.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.quantization.grid import Grid, Quantization
from course_lib.quantization.storage import Packed, pack_codes, stored_grid, unpack_codes
from course_lib.sparsity.bitpacking import unpack
from course_lib.sparsity.formats import Bitmap, NofMPacked
from course_lib.sparsity.patterns import NofM

Tensors = dict[str, Tensor]


class Layout(ABC):
    """One way to store a matrix."""

    @abstractmethod
    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        """Return the stored tensors of a compressed weight. The weight before compression, `dense`, fixes its grids."""

    @abstractmethod
    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        """Return the stored matrix in float32."""


@dataclass(frozen=True)
class Halves(Layout):
    """Every weight in 16 bits."""

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        return {"values": weight.half()}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        return stored["values"].float()


@dataclass(frozen=True)
class NonZeros(Layout):
    """One bit per weight and 16 bits per non-zero: 9 bits per weight at 50 % sparsity."""

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        nonzeros = Bitmap.encode(weight.half())
        return {"values": nonzeros.values, "bitmap": nonzeros.bitmap, "row_start": nonzeros.row_start}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        return Bitmap(**stored, shape=shape).decode().float()


@dataclass(frozen=True)
class Grouped(Layout):
    """n of every m weights in 16 bits, each with its 2-bit position: 2:4 takes 9 bits per weight."""

    n: int = 2
    m: int = 4

    def __post_init__(self) -> None:
        NofM(self.n, self.m)  # raises ValueError for sizes that are no N:M pattern

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        packed = NofMPacked.encode(weight.half(), self.n, self.m)
        return {"values": packed.values, "positions": packed.positions}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        return NofMPacked(**stored, n=self.n, m=self.m, shape=shape).decode().float()


@dataclass(frozen=True)
class Codes(Layout):
    """One code per weight, and for each group of columns a float16 scale and a packed zero point."""

    quantization: Quantization

    def __post_init__(self) -> None:
        if not isinstance(self.quantization, Quantization):
            raise ValueError(f"got quantization {self.quantization!r}; expected one such as Quantization(4).")

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        packed = Packed.encode(weight, self.quantization.grid_of(weight, dense))
        zeros = pack_codes(packed.zero, packed.bits)
        return _named("codes", packed.planes) | _named("zero", zeros) | {"scale": packed.scale}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        bits = self.quantization.bits
        return self._grid(stored, shape).decode(unpack_codes(_planes("codes", stored), bits, shape[1]))

    def _grid(self, stored: Tensors, shape: tuple[int, int]) -> Grid:
        scale, bits = stored["scale"].float(), self.quantization.bits
        zero = unpack_codes(_planes("zero", stored), bits, scale.shape[1])
        return Grid(scale, zero.float(), bits, min(self.quantization.group or shape[1], shape[1]))


@dataclass(frozen=True)
class NonZeroCodes(Codes):
    """One bit per weight, one code per non-zero, and the grids: as many bytes as `sparse_bytes` counts."""

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        grid = stored_grid(self.quantization.grid_of(weight, dense))
        codes = grid.codes(weight)
        nonzeros = Bitmap.encode(grid.decode(codes))  # weights that round to zero are not stored either
        # The codes of the non-zeros in row order, as one row (1, Z).
        planes = pack_codes(codes[unpack(nonzeros.bitmap, 1, weight.shape[1]).bool()][None], grid.bits)
        zeros = pack_codes(grid.zero.clamp(0, 2**grid.bits - 1).to(torch.uint8), grid.bits)
        tables = {"bitmap": nonzeros.bitmap, "row_start": nonzeros.row_start, "scale": grid.scale.half()}
        return _named("codes", planes) | _named("zero", zeros) | tables

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        grid, keep = self._grid(stored, shape), unpack(stored["bitmap"], 1, shape[1]).bool()
        n_stored = int(stored["row_start"][-1])
        # Pruned weights get the code of zero, so that scale · (code − zero) = 0; the stored codes fill the rest.
        codes = grid.zero.repeat_interleave(grid.group, 1)[:, : shape[1]].to(torch.uint8)
        codes[keep] = unpack_codes(_planes("codes", stored), grid.bits, n_stored)[0]
        return grid.decode(codes)


def _named(name: str, planes: tuple[Tensor, ...]) -> Tensors:
    return {f"{name}_{index}": plane for index, plane in enumerate(planes)}


def _planes(name: str, stored: Tensors) -> tuple[Tensor, ...]:
    return tuple(stored[key] for key in sorted(stored) if key.startswith(f"{name}_"))
