"""Storage of quantized weights: packed codes, their grids, and a bitmap if many weights are zero.

Dimension key: O outputs (rows), I inputs (columns), G groups of columns in a row, _ bytes of a row in one plane.

Codes of 2 or 4 bits are packed as in sparsity/bitpacking.py; codes of 3 bits are stored in two planes, of the low two
bits and of the high bit.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from course_lib.quantization.grid import Grid
from course_lib.sparsity.bitpacking import pack, packed_width, unpack

PLANES = {2: (2,), 3: (2, 1), 4: (4,), 8: (8,)}  # widths, the lowest bits first
SCALE_BYTES = 2  # scales are stored as float16


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A dense matrix of codes with its grid. Scales are float16 and zeros are codes, which decoding uses."""

    planes: tuple[UInt8[Tensor, "O _"], ...]
    scale: Float[Tensor, "O G"]
    zero: UInt8[Tensor, "O G"]
    bits: int
    group: int
    shape: tuple[int, int]

    @classmethod
    def encode(cls, weight: Float[Tensor, "O I"], grid: Grid) -> "Packed":
        """Round to the grid as it is stored, with scales in half precision."""
        stored = stored_grid(grid)
        planes = pack_codes(stored.codes(weight), grid.bits)
        zero = grid.zero.clamp(0, 2**grid.bits - 1).to(torch.uint8)
        return cls(
            planes=planes,
            scale=stored.scale.half(),
            zero=zero,
            bits=grid.bits,
            group=grid.group,
            shape=tuple(weight.shape),
        )

    def decode(self) -> Float[Tensor, "O I"]:
        """Return the float32 matrix of the codes."""
        codes = unpack_codes(self.planes, self.bits, self.shape[1])
        return Grid(self.scale.float(), self.zero.float(), self.bits, self.group).decode(codes)

    @property
    def n_bytes(self) -> int:
        """Bytes of codes, scales and zeros; zeros are packed like codes in a file."""
        return dense_bytes(*self.shape, self.bits, self.group)


def stored_grid(grid: Grid) -> Grid:
    """Return the grid after storing and loading: with scales rounded to float16."""
    smallest = torch.finfo(torch.float16).smallest_normal
    scale = grid.scale.clamp(smallest, torch.finfo(torch.float16).max).half().float()
    return Grid(scale, grid.zero, grid.bits, grid.group)


def pack_codes(codes: UInt8[Tensor, "O I"], bits: int) -> tuple[UInt8[Tensor, "O _"], ...]:
    """Pack codes of 2, 3, 4 or 8 bits, row by row; return one tensor per plane."""
    _check_bits(bits)
    if codes.numel() and int(codes.max()) >= 2**bits:
        raise ValueError(f"a code of {int(codes.max())} needs more than {bits} bits: expected codes below {2**bits}")
    planes, shift = [], 0
    for width in PLANES[bits]:
        part = (codes >> shift) & (2**width - 1)
        planes.append(part if width == 8 else pack(part, width))
        shift += width
    return tuple(planes)


def unpack_codes(planes: tuple[UInt8[Tensor, "O _"], ...], bits: int, n_columns: int) -> UInt8[Tensor, "O I"]:
    """Return the packed codes."""
    _check_bits(bits)
    codes, shift = torch.zeros(len(planes[0]), n_columns, dtype=torch.uint8, device=planes[0].device), 0
    for width, plane in zip(PLANES[bits], planes, strict=True):
        codes |= (plane if width == 8 else unpack(plane, width, n_columns)) << shift
        shift += width
    return codes


def code_bytes(n_codes: int, bits: int) -> int:
    """Compute the bytes of a row of codes; each plane is rounded up to whole bytes."""
    _check_bits(bits)
    return sum(n_codes if width == 8 else packed_width(n_codes, width) for width in PLANES[bits])


def grid_bytes(rows: int, columns: int, bits: int, group: int) -> int:
    """Compute the bytes of a float16 scale and a packed zero per group."""
    n_groups = -(-columns // group)
    return rows * (n_groups * SCALE_BYTES + code_bytes(n_groups, bits))


def dense_bytes(rows: int, columns: int, bits: int, group: int | None = None) -> int:
    """Compute the bytes of one code per weight, and the grids; the whole row is one group when None."""
    return rows * code_bytes(columns, bits) + grid_bytes(rows, columns, bits, group or columns)


def sparse_bytes(rows: int, columns: int, n_stored: int, bits: int, group: int | None = None) -> int:
    """Compute the bytes of one code per non-zero weight, a bitmap of their positions, int32 row offsets, and the grids.

    For example, 4 bits and half of the weights take 0.5 · 4 + 1 = 3 bits per weight, as many as 3 bits without
    sparsity.
    """
    bitmap = rows * packed_width(columns, 1) + 4 * (rows + 1)
    return code_bytes(n_stored, bits) + bitmap + grid_bytes(rows, columns, bits, group or columns)


def _check_bits(bits: int) -> None:
    if bits not in PLANES:
        raise ValueError(f"bits={bits}: expected one of {', '.join(map(str, PLANES))}")
