"""Sparse formats, which do not store zeros. Each holds plain tensors, and `n_bytes` is their size.

Dimension key: O outputs (rows), I inputs (columns), Z values stored, P packed bytes in a row, K = I * n / m values
kept in a row, R x C one block, S = O + 1 starts (O / R + 1 for blocks). `row_start[o]` is where row o begins in
`values`; its last entry is Z.

`X.encode(weight)` and `encoded.decode()` are exact inverses (except that -0.0 becomes 0.0). The kernels read the same
layouts. `linear` multiplies with torch where torch supports the format; bitmap and N:M need a kernel.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Float, Int32, UInt8
from torch import Tensor
from torch.nn import functional

from course_lib.sparsity.bitpacking import pack, unpack
from course_lib.sparsity.patterns import NofM
from course_lib.sparsity.ranking import check_matrix, check_positive


class Encoded(ABC):
    """A matrix of `shape` in some format."""

    shape: tuple[int, int]

    @abstractmethod
    def decode(self) -> Float[Tensor, "O I"]:
        """Return the dense matrix, including zeros."""

    @property
    def n_bytes(self) -> int:
        """Bytes of all stored tensors, both indices and values."""
        held = (getattr(self, field.name) for field in fields(self))
        return sum(tensor.numel() * tensor.element_size() for tensor in held if isinstance(tensor, Tensor))


@dataclass(frozen=True, eq=False)
class Dense(Encoded):
    """Every entry including zeros: O * I values."""

    values: Float[Tensor, "O I"]
    shape: tuple[int, int]

    @classmethod
    def encode(cls, weight: Float[Tensor, "O I"]) -> "Dense":
        shape = _shape(weight)
        return cls(weight.contiguous().clone(), shape)

    def decode(self) -> Float[Tensor, "O I"]:
        return self.values.clone()

    def linear(self, inputs: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        return functional.linear(inputs, self.values)


@dataclass(frozen=True, eq=False)
class CSR(Encoded):
    """Compressed sparse rows: each non-zero with its column. An index takes 4 bytes, even for narrow values."""

    values: Float[Tensor, "Z"]
    columns: Int32[Tensor, "Z"]
    row_start: Int32[Tensor, "S"]
    shape: tuple[int, int]

    @classmethod
    def encode(cls, weight: Float[Tensor, "O I"]) -> "CSR":
        shape, stored = _shape(weight), weight != 0
        return cls(weight[stored], stored.nonzero()[:, 1].to(torch.int32), _row_start(stored.sum(1)), shape)

    def decode(self) -> Float[Tensor, "O I"]:
        weight = self.values.new_zeros(self.shape)
        weight[_row_of_each(self.row_start), self.columns] = self.values
        return weight

    @cached_property
    def torch_tensor(self) -> Tensor:
        """The same memory as torch's own sparse tensor, which multiplies through MKL on x86."""
        return _as_torch(torch.sparse_csr, self)

    def linear(self, inputs: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        return _sparse_linear(self.torch_tensor, inputs)


@dataclass(frozen=True, eq=False)
class Bitmap(Encoded):
    """A bitmap with one bit per entry, which is 1 if the entry is stored, followed by the non-zeros in row order.

    Bit i mod 8 of bitmap[o, i // 8] belongs to entry (o, i).
    """

    values: Float[Tensor, "Z"]
    bitmap: UInt8[Tensor, "O P"]
    row_start: Int32[Tensor, "S"]
    shape: tuple[int, int]

    @classmethod
    def encode(cls, weight: Float[Tensor, "O I"]) -> "Bitmap":
        shape, stored = _shape(weight), weight != 0
        return cls(weight[stored], pack(stored.to(torch.uint8), bits=1), _row_start(stored.sum(1)), shape)

    def decode(self) -> Float[Tensor, "O I"]:
        weight = self.values.new_zeros(self.shape)
        weight[unpack(self.bitmap, bits=1, n=self.shape[1]).bool()] = self.values
        return weight


@dataclass(frozen=True, eq=False)
class NofMPacked(Encoded):
    """n values of every m consecutive inputs, each with its 2-bit index in the group, ascending; four indices per byte.

    A group with fewer than n non-zeros also stores zeros, so every row has the same length and no row_start is
    necessary.
    """

    values: Float[Tensor, "O K"]
    positions: UInt8[Tensor, "O P"]
    n: int
    m: int
    shape: tuple[int, int]

    @classmethod
    def encode(cls, weight: Float[Tensor, "O I"], n: int = 2, m: int = 4) -> "NofMPacked":
        if m > 4:
            raise ValueError(f"{n}:{m} needs more than 2-bit positions: expected m of at most 4; use Bitmap instead")
        shape, keep = _shape(weight), NofM(n, m).keep(weight.abs())
        lost = int(((weight != 0) & ~keep).sum())
        if lost:
            raise ValueError(
                f"{lost} non-zeros do not fit {n}:{m}: expected at most {n} in every {m} inputs; "
                f"prune with NofM({n}, {m}) before encoding"
            )
        n_kept = weight.shape[1] // m * n
        positions = (keep.nonzero()[:, 1] % m).to(torch.uint8).reshape(weight.shape[0], n_kept)
        return cls(weight[keep].reshape(-1, n_kept), pack(positions, bits=2), n, m, shape)

    @property
    def columns(self) -> Tensor:
        """The input that each stored value multiplies, (O, K) int64."""
        n_kept = self.values.shape[1]
        group = torch.arange(n_kept, device=self.values.device) // self.n
        return group * self.m + unpack(self.positions, bits=2, n=n_kept)

    def decode(self) -> Float[Tensor, "O I"]:
        return self.values.new_zeros(self.shape).scatter_(1, self.columns, self.values)


@dataclass(frozen=True, eq=False)
class BlockSparse(Encoded):
    """Block compressed sparse rows: each R x C tile with any non-zero is stored dense, with one column index.

    For example, blocks of (1, I) are whole rows, and blocks of (O, 1) are whole columns.
    """

    values: Float[Tensor, "Z R C"]
    columns: Int32[Tensor, "Z"]
    row_start: Int32[Tensor, "S"]
    shape: tuple[int, int]

    @classmethod
    def encode(cls, weight: Float[Tensor, "O I"], rows: int = 16, columns: int = 16) -> "BlockSparse":
        check_positive("rows", rows)
        check_positive("columns", columns)
        shape = _shape(weight)
        if weight.shape[0] % rows or weight.shape[1] % columns:
            raise ValueError(
                f"a {tuple(weight.shape)} matrix does not divide into {rows} x {columns} blocks; expected block sizes "
                "that divide it: choose divisors of its rows and columns"
            )
        # (O, I) -> (O/R, R, I/C, C) -> (O/R, I/C, R, C): a tile becomes the last two dimensions
        tiles = weight.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).transpose(1, 2)
        stored = (tiles != 0).any(3).any(2)
        return cls(tiles[stored], stored.nonzero()[:, 1].to(torch.int32), _row_start(stored.sum(1)), shape)

    def decode(self) -> Float[Tensor, "O I"]:
        _, rows, columns = self.values.shape
        tiles = self.values.new_zeros(self.shape[0] // rows, self.shape[1] // columns, rows, columns)
        tiles[_row_of_each(self.row_start), self.columns] = self.values
        return tiles.transpose(1, 2).reshape(self.shape)

    @cached_property
    def torch_tensor(self) -> Tensor:
        """The same memory as torch's own block-sparse tensor."""
        return _as_torch(torch.sparse_bsr, self)

    def linear(self, inputs: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
        _, rows, columns = self.values.shape
        if inputs.device.type == "cpu" and rows != columns:
            raise ValueError(f"MKL multiplies square blocks only, got {rows} x {columns}: encode with rows == columns")
        return _sparse_linear(self.torch_tensor, inputs)


def _shape(weight: object) -> tuple[int, int]:
    check_matrix("weight", weight)
    return (weight.shape[0], weight.shape[1])


def _row_start(counts: Tensor) -> Int32[Tensor, "S"]:
    """[0, followed by the cumulative counts]; int32 takes half the memory of int64, and MKL requires it."""
    total = int(counts.sum())
    if total >= 2**31:
        raise ValueError(f"{total} stored values overflow 32-bit row starts: expected under 2**31; split the matrix")
    return functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)


def _row_of_each(row_start: Int32[Tensor, "S"]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(row_start) - 1, device=row_start.device), row_start.diff())


def _as_torch(layout: torch.layout, encoded: CSR | BlockSparse) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*support is in beta state")
        return torch.sparse_compressed_tensor(
            encoded.row_start, encoded.columns, encoded.values, encoded.shape, layout=layout, check_invariants=False
        )


def _sparse_linear(weight: Tensor, inputs: Float[Tensor, "*T I"]) -> Float[Tensor, "*T O"]:
    if inputs.device.type == "cpu" and inputs.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"no sparse product in {inputs.dtype} on CPU: expected float32 or float64; use .float()")
    if inputs.ndim == 1:
        return weight @ inputs
    return (weight @ inputs.flatten(0, -2).T).T.unflatten(0, inputs.shape[:-1])
