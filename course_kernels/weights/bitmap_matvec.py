"""Multiply one vector by a matrix stored as a bitmap and its non-zeros: sparsity without any structure.

Dimension key: O outputs (rows), I inputs (columns), Z values stored, P = I / 8 (rounded up) bytes of bitmap in a row,
S = O + 1 row starts.

At density d in bfloat16 this moves d + 1/16 of the dense bytes. That bound is hard to reach: where a value lies is
known only after counting the bits before it, so each position of the matrix, stored or not, costs several
instructions, and at half density these take longer than the bytes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from course_kernels.checks import FLOATS, check_device, check_tensor
from course_kernels.runtime import jit, runs_kernel, tl, triton, tuned
from course_lib.sparsity.bitpacking import packed_width
from course_lib.sparsity.formats import Bitmap

# For the tests: ragged tiles, tiny and whole ones; nothing stored; everything stored.
CASES = (
    {"shape": (5, 1061), "density": 0.1},
    {"shape": (4, 1024), "density": 0.3},
    {"shape": (3, 7), "density": 0.0},
    {"shape": (2, 70), "density": 1.0},
)


def reference(inputs: Float[Tensor, "I"], weight: Bitmap) -> Float[Tensor, "O"]:
    """y = W x, summed in float32."""
    return (weight.decode().float() @ inputs.float()).to(inputs.dtype)


def bytes_moved(inputs: Float[Tensor, "I"], weight: Bitmap) -> int:
    """Values, bitmap, row starts and inputs read once, the outputs written once."""
    return weight.n_bytes + (len(inputs) + weight.shape[0]) * inputs.element_size()


@jit
def count_bits(word):
    """Set bits of each int32: sums of neighbours, in pairs, fours and bytes; the product adds the four bytes up."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return (word * 0x01010101 >> 24) & 0xFF


@jit
def lowest_bit(word):
    """The lowest set bit of each int32, alone, and its index: the exponent that it has as a float."""
    low = word & -word
    return low, ((low.to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127


@tuned(
    ["O", "I"],
    {"BLOCK_O": 4, "BLOCK_I": 1024, "num_warps": 4},
    {"BLOCK_O": 1, "BLOCK_I": 1024, "num_warps": 1},
    {"BLOCK_O": 1, "BLOCK_I": 2048, "num_warps": 1},
    {"BLOCK_O": 2, "BLOCK_I": 512, "num_warps": 1},
    {"BLOCK_O": 4, "BLOCK_I": 256, "num_warps": 1},
)
@jit
def matvec_kernel(
    inputs, values, bitmap, row_start, outputs, O,
    I: tl.constexpr, P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Each thread owns words of 32 bits and walks their set bits, so the work falls with the density."""
    W: tl.constexpr = BLOCK_I // 32
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    inside = (row < O)[:, None]
    begin = tl.load(row_start + row, mask=row < O, other=0).to(tl.int64)
    total = tl.zeros([BLOCK_O, W], tl.float32)
    for start in range(0, I, BLOCK_I):
        p = (start // 8 + tl.arange(0, 4 * W))[None, :]
        byte = tl.load(bitmap + row.to(tl.int64)[:, None] * P + p, mask=inside & (p < P), other=0)
        byte = tl.reshape(byte, (BLOCK_O, W, 4)).to(tl.int32)
        word = tl.sum(byte << (8 * tl.arange(0, 4))[None, None, :], 2)  # four bytes side by side
        n_stored = count_bits(word)
        value_at = values + (begin[:, None] + tl.cumsum(n_stored, 1) - n_stored)
        x_at = inputs + start + 32 * tl.arange(0, W)[None, :]
        left = tl.max(tl.max(n_stored, 1), 0)  # the fullest word decides how long the tile takes
        while left > 0:
            low, bit = lowest_bit(word)
            value = tl.load(value_at, mask=word != 0, other=0.0).to(tl.float32)
            total += value * tl.load(x_at + bit, mask=word != 0, other=0.0).to(tl.float32)
            value_at += 1
            word = word ^ low
            left -= 1
        begin += tl.sum(n_stored, 1)
    tl.store(outputs + row, tl.sum(total, 1).to(outputs.dtype.element_ty), mask=row < O)


def launch(inputs: Float[Tensor, "I"], weight: Bitmap) -> Float[Tensor, "O"]:
    """y = W x."""
    _check(inputs, weight)
    if not runs_kernel(inputs):
        return reference(inputs, weight)
    n_rows, n_columns = weight.shape
    outputs = torch.empty(n_rows, dtype=inputs.dtype, device=inputs.device)
    pointers = (inputs, weight.values, weight.bitmap, weight.row_start, outputs)
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        matvec_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]),)](
            *pointers, O=n_rows, I=n_columns, P=weight.bitmap.shape[1]
        )
    return outputs


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int], density: float = 0.3
) -> tuple[Tensor, Bitmap]:
    """Random arguments for `launch`: inputs (I,) and a weight (O, I) of about that density."""
    where = {"generator": generator, "device": generator.device}
    weight = torch.randn(shape, **where) / shape[1] ** 0.5
    weight = weight * (torch.rand(shape, **where) < density)
    return torch.randn(shape[1], **where).to(device, dtype), Bitmap.encode(weight.to(device, dtype))


def _check(inputs: Tensor, weight: Bitmap) -> None:
    n_rows, n_columns = weight.shape
    check_tensor("inputs", inputs, (n_columns,), FLOATS)
    check_tensor("weight.values", weight.values, (weight.values.numel(),), (inputs.dtype,))
    check_tensor("weight.bitmap", weight.bitmap, (n_rows, packed_width(n_columns, bits=1)), (torch.uint8,))
    check_tensor("weight.row_start", weight.row_start, (n_rows + 1,), (torch.int32,))
    check_device(inputs=inputs, values=weight.values, bitmap=weight.bitmap, row_start=weight.row_start)
    if not inputs.is_cuda and int(weight.row_start[-1]) != len(weight.values):  # on a GPU this would wait for it
        raise ValueError(
            f"weight.values holds {len(weight.values)} values: expected the {int(weight.row_start[-1])} that the last "
            "row start says; encode the weight again"
        )
