"""How a compressed weight is stored: tensors by name, whose bytes are what the weight takes.

What is measured is what comes back from them, so that scales and values in half precision are part of the compression.

Dimension key: O outputs of a layer (rows), I its inputs (columns), Z weights that are stored.
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
        """What is stored of a compressed weight; `dense` is the weight before, from which grids are fixed."""

    @abstractmethod
    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        """The float32 matrix that was stored."""


@dataclass(frozen=True)
class Halves(Layout):
    """Every weight in 16 bits."""

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        return {"values": weight.half()}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        return stored["values"].float()


@dataclass(frozen=True)
class NonZeros(Layout):
    """A bit for every weight, 16 bits for each that is not zero: at half of the weights 9 bits each."""

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        kept = Bitmap.encode(weight.half())
        return {"values": kept.values, "bitmap": kept.bitmap, "row_start": kept.row_start}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        return Bitmap(**stored, shape=shape).decode().float()


@dataclass(frozen=True)
class Grouped(Layout):
    """n of every m weights in 16 bits, each with its 2-bit place: 2:4 takes 9 bits a weight."""

    n: int = 2
    m: int = 4

    def __post_init__(self) -> None:
        NofM(self.n, self.m)  # refuses what is no such pattern

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        kept = NofMPacked.encode(weight.half(), self.n, self.m)
        return {"values": kept.values, "positions": kept.positions}

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        return NofMPacked(**stored, n=self.n, m=self.m, shape=shape).decode().float()


@dataclass(frozen=True)
class Codes(Layout):
    """A code for every weight; of each group a scale in 16 bits and a packed zero."""

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
    """A bit for every weight, a code for each that is not zero, and the grids: the bytes of `sparse_bytes`."""

    def encode(self, weight: Float[Tensor, "O I"], dense: Float[Tensor, "O I"]) -> Tensors:
        grid = stored_grid(self.quantization.grid_of(weight, dense))
        codes = grid.codes(weight)
        kept = Bitmap.encode(grid.decode(codes))  # a weight whose code is that of zero is not stored
        planes = pack_codes(codes[unpack(kept.bitmap, 1, weight.shape[1]).bool()][None], grid.bits)
        zeros = pack_codes(grid.zero.clamp(0, 2**grid.bits - 1).to(torch.uint8), grid.bits)
        where = {"bitmap": kept.bitmap, "row_start": kept.row_start, "scale": grid.scale.half()}
        return _named("codes", planes) | _named("zero", zeros) | where

    def decode(self, stored: Tensors, shape: tuple[int, int]) -> Float[Tensor, "O I"]:
        grid, keep = self._grid(stored, shape), unpack(stored["bitmap"], 1, shape[1]).bool()
        n_stored = int(stored["row_start"][-1])
        codes = grid.zero.repeat_interleave(grid.group, 1)[:, : shape[1]].to(torch.uint8)
        codes[keep] = unpack_codes(_planes("codes", stored), grid.bits, n_stored)[0]
        return grid.decode(codes)


def _named(name: str, planes: tuple[Tensor, ...]) -> Tensors:
    return {f"{name}_{index}": plane for index, plane in enumerate(planes)}


def _planes(name: str, stored: Tensors) -> tuple[Tensor, ...]:
    return tuple(stored[key] for key in sorted(stored) if key.startswith(f"{name}_"))
