"""Multiply one vector by a matrix stored as a bitmap and its non-zeros: sparsity without any structure.

Dimension key: O outputs (rows), I inputs (columns), Z values stored, P = I / 8 (rounded up) bytes of bitmap in a row,
S = O + 1 row starts.

At density d in bfloat16 this moves d + 1/16 of the dense bytes: at half density, 4096 x 14336 take an H200 15.5 us, and
the dense product takes 41 us. That bound is hard to reach. The address of a value is known only after counting the bits
before it, neighbouring threads read values that are not adjacent, inputs come from any address, and a tile takes as
long as its fullest word. So the work falls with the density, and two other bounds are above the bytes:

- Instructions: a step, which takes one set bit from each of 32 words, needs 17 of them (counted in compiled code). A
  tile of 32 words takes 24 steps at half density, 20 at 0.4. 132 multiprocessors with 4 schedulers each issue them in
  28 us at 0.5, 25 us at 0.4.
- Gathers: in a step, about 3 of the 32 values and 5 of the 32 inputs are in the same bank of the first-level cache,
  which serves one per cycle: 42 us at 0.5, 32 us at 0.4 (simulated with random bits, as everything here at 1.75 GHz).

Measured: 54 us at 0.5, 45 us at 0.4, 30 us at 0.2, 18.5 us at 0.05. So it is as fast as dense at a density of about
0.35 and faster below. Both bounds are proportional to the number of weights, as is the dense product, so the break-even
density is the same for larger matrices. Processing all bits with predicates, 8 neighbours per thread, avoids the
gathers of inputs and takes 50 us or more at every density.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, tuned
from jaxtyping import Float
from torch import Tensor

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
    """Compute y = W x, summed in float32."""
    return (weight.decode().float() @ inputs.float()).to(inputs.dtype)


def bytes_moved(inputs: Float[Tensor, "I"], weight: Bitmap) -> int:
    """Count the bytes to move at least: values, bitmap, row starts, inputs are read once, outputs written once."""
    return weight.n_bytes + (len(inputs) + weight.shape[0]) * inputs.element_size()


@jit
def load_words(bits_at, start, P: tl.constexpr, W: tl.constexpr):
    """W words of 32 bits of a row, from its byte `start` on: four bytes side by side, as a row may begin anywhere."""
    p = start + tl.arange(0, 4 * W)
    byte = tl.reshape(tl.load(bits_at + p, mask=p < P, other=0), (W, 4)).to(tl.int32)
    return tl.sum(byte << (8 * tl.arange(0, 4))[None, :], 1)


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


@jit
def walk(inputs, values, word, n_word, first, start, total, STEPS: tl.constexpr):
    """A thread owns words and goes from set bit to set bit, so the work falls with the density."""
    value_at = values + first
    x_at = inputs + start + 32 * tl.arange(0, word.shape[0])
    left = tl.max(n_word, 0)  # the fullest word decides how long the tile takes
    while left > 0:
        for _ in tl.static_range(STEPS):  # so many loads are under way at a time
            low, bit = lowest_bit(word)
            value = tl.load(value_at, mask=word != 0, other=0.0).to(tl.float32)
            total += value * tl.load(x_at + bit, mask=word != 0, other=0.0).to(tl.float32)
            value_at += 1
            word = word ^ low
        left -= STEPS
    return total


@tuned(
    ["O", "I"],
    {"BLOCK_I": 1024, "STEPS": 2, "num_warps": 1},
    {"BLOCK_I": 1024, "STEPS": 4, "num_warps": 1},
)
@jit
def matvec_kernel(
    inputs, values, bitmap, row_start, outputs, O,
    I: tl.constexpr, P: tl.constexpr, BLOCK_I: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """One row. STEPS: how many set bits a thread goes on at a time."""
    W: tl.constexpr = BLOCK_I // 32
    row = tl.program_id(0)
    bits_at = bitmap + row.to(tl.int64) * P
    values += tl.load(row_start + row).to(tl.int64)
    total = tl.zeros([W], tl.float32)
    word = load_words(bits_at, 0, P, W)
    for start in range(0, I, BLOCK_I):
        following = load_words(bits_at, (start + BLOCK_I) // 8, P, W)  # comes while this tile is multiplied
        n_word = count_bits(word)
        total = walk(inputs, values, word, n_word, tl.cumsum(n_word, 0) - n_word, start, total, STEPS)
        values += tl.sum(n_word, 0)
        word = following
    tl.store(outputs + row, tl.sum(total, 0).to(outputs.dtype.element_ty))


def takes(inputs: Tensor) -> bool:
    """Return whether the kernel can multiply these inputs, of one token, by a bitmap. `launch` takes a vector."""
    return inputs.ndim > 0 and inputs.numel() == inputs.shape[-1] and inputs.is_contiguous()


def launch(inputs: Float[Tensor, "I"], weight: Bitmap) -> Float[Tensor, "O"]:
    """Compute y = W x."""
    _check(inputs, weight)
    if not runs_kernel(inputs):
        return reference(inputs, weight)
    n_rows, n_columns = weight.shape
    outputs = torch.empty(n_rows, dtype=inputs.dtype, device=inputs.device)
    pointers = (inputs, weight.values, weight.bitmap, weight.row_start, outputs)
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        matvec_kernel[(n_rows,)](*pointers, O=n_rows, I=n_columns, P=weight.bitmap.shape[1])
    return outputs


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int], density: float = 0.3
) -> tuple[Tensor, Bitmap]:
    """Draw random arguments for `launch`: inputs (I,) and a weight (O, I) of about that density."""
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
    if not inputs.is_cuda and int(weight.row_start[-1]) != len(weight.values):  # this would wait for a GPU
        raise ValueError(
            f"weight.values holds {len(weight.values)} values: expected the {int(weight.row_start[-1])} that the last "
            "row start says; encode the weight again"
        )
