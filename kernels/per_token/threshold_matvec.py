"""Multiply a matrix by a vector whose small entries count as zero; the columns of these entries are not read.

Liu and others, 2024, TEAL, https://arxiv.org/abs/2408.14690 (s_t(x) = x where |x| > t, else 0).

Dimension key: O outputs, I inputs, S parts that the inputs are split into.
The weight is stored by column: input i is multiplied by row i of `columns` (I, O), so a zero skips O adjacent numbers.
In rows (O, I), it would skip single numbers, but memory always transfers 32 bytes or more.

One vector is bound by memory: (1 - s) O I numbers at a sparsity s. A program handles some outputs and a part of the
inputs. It first lists the inputs that count and then reads their columns: if the others were masked instead, their
threads would wait for the rest. A second kernel adds the parts, of 4 O bytes each, in float32 and in a fixed order.
Deviation: TEAL's code masks, and adds atomically in half precision, so its results differ from run to run.

On an H200, 14336 by 4096 numbers in bfloat16 take 45 µs with no input at zero, 38 with a quarter, 29 with half; the
dense product takes 41. Without zeros there is nothing to gain: both read the same 117 MB, whose bound is 27.5 µs. The
dense product reaches 67 % of it, this one 62 %, because it also makes its lists, and writes and adds the parts.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, overlap_of, programs_to_fill, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import join_blocks, join_kernel
from jaxtyping import Float, Int
from torch import Tensor

COLUMNS = 512  # outputs of a program
ROOM, FEWEST = 256, 32  # maximum and minimum inputs per program: for fewer, the sum costs more than the product
PROGRAMS_A_PROCESSOR = 4  # all on the GPU at once
PROGRAMS = 8  # without a GPU
# For the tests: some parts, ragged tiles; whole ones; every input below the threshold; none below; a single number.
CASES = (
    {"shape": (131, 277)},
    {"shape": (1024, 256), "threshold": 1.0},
    {"shape": (9, 40), "threshold": 50.0},
    {"shape": (40, 33), "threshold": 0.0},
    {"shape": (1, 1), "threshold": 0.0},
)


def reference(
    inputs: Float[Tensor, "I"], columns: Float[Tensor, "I O"], threshold: float, counted: Int[Tensor, "1"] | None = None
) -> Float[Tensor, "O"]:
    """Compute y = W (x ⊙ 1[|x| > t]), summed in float32."""
    kept = kept_inputs(inputs, threshold)
    if counted is not None:
        counted += kept.sum()
    return (inputs[kept].float() @ columns[kept].float()).to(inputs.dtype)


def kept_inputs(inputs: Float[Tensor, "I"], threshold: float) -> Tensor:
    """Return a mask (I,) of the inputs that count. NaN counts, so that it is visible in the outputs."""
    return ~(inputs.float().abs() <= threshold)


def bytes_moved(
    inputs: Float[Tensor, "I"], columns: Float[Tensor, "I O"], threshold: float, counted: Int[Tensor, "1"] | None = None
) -> int:
    """Count the columns of the inputs that count, all inputs, and the outputs."""
    a_column = columns.shape[1] * columns.element_size()
    return int(kept_inputs(inputs, threshold).sum()) * a_column + inputs.nbytes + a_column


@tuned(["O", "I"], {"TILE": 8, "STAGES": 4, "num_warps": 4})
@jit(lengths=("PART",))
def part_kernel(
    inputs, columns, parts, counted, threshold, PART, I: tl.constexpr, O: tl.constexpr, OVERLAP: tl.constexpr,
    ROOM: tl.constexpr, HALVINGS: tl.constexpr, BLOCK_O: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Outputs of one part of the inputs. Every row of a tile is a column that counts, so no thread idles for a zero."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    part, o, every = tl.program_id(1), tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O), tl.arange(0, ROOM)
    start = part * PART
    end = tl.minimum(start + PART, I)
    x = tl.load(inputs + start + every, mask=start + every < end, other=0.0).to(tl.float32)
    counts = ((start + every < end) & ((tl.abs(x) <= threshold) == 0)).to(tl.int32)
    n_up_to, n = tl.cumsum(counts, 0), tl.sum(counts, 0)
    if counted is not None:
        tl.atomic_add(counted, n.to(tl.int64), mask=tl.program_id(0) == 0)
    # The place of the r-th input that counts is the number of inputs with at most r up to them; halving finds it.
    place = tl.zeros([ROOM], tl.int32)
    for halving in tl.static_range(HALVINGS):
        further = place + (ROOM >> (halving + 1))
        place = tl.where(tl.gather(n_up_to, further - 1, 0) <= every, further, place)
    factors = tl.where(every < n, tl.gather(x, place, 0), 0.0)
    listed = tl.where(every < n, start + place, 0)
    total = tl.zeros([TILE, BLOCK_O], tl.float32)
    for first in tl.range(0, n, TILE, num_stages=STAGES):
        # Loads run ahead of the end, and their indices with them: those must not leave the list.
        r = first + tl.arange(0, TILE)
        at = tl.minimum(r, ROOM - 1)
        i, factor = tl.gather(listed, at, 0), tl.gather(factors, at, 0)
        column = columns + i.to(tl.int64)[:, None] * O + o[None, :]
        weight = tl.load(column, mask=(r < n)[:, None] & (o < O)[None, :], other=0.0).to(tl.float32)
        total += weight * factor[:, None]
    tl.store(parts + part.to(tl.int64) * O + o, tl.sum(total, 0), mask=o < O)


def takes(inputs: Tensor, columns: Tensor, threshold: float) -> bool:
    """Return whether the kernel multiplies this vector with these columns."""
    fits = inputs.dtype == columns.dtype and inputs.shape == columns.shape[:1]
    return fits and inputs.is_contiguous() and columns.is_contiguous() and threshold >= 0


def launch(
    inputs: Float[Tensor, "I"], columns: Float[Tensor, "I O"], threshold: float, counted: Int[Tensor, "1"] | None = None
) -> Float[Tensor, "O"]:
    """Compute y = W (x ⊙ 1[|x| > t]), where `columns` is Wᵀ, contiguous.

    Args:
        counted: an int64, to which the number of inputs that count is added.
    """
    _check(inputs, columns, threshold)
    if counted is not None:
        check_tensor("counted", counted, (1,), (torch.int64,))
        check_device(inputs=inputs, counted=counted)
    if not runs_kernel(inputs) or not columns.numel():
        return reference(inputs, columns, threshold, counted)
    n_inputs, n_outputs = columns.shape
    per_part = _inputs_of_a_part(n_inputs, n_outputs, inputs.device)
    n_parts = triton.cdiv(n_inputs, per_part)
    parts = torch.empty((n_parts, n_outputs), dtype=torch.float32, device=inputs.device)
    outputs = torch.empty(n_outputs, dtype=inputs.dtype, device=inputs.device)
    blocks, overlap = join_blocks(n_parts, n_outputs), overlap_of(inputs.device)
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        part_kernel[triton.cdiv(n_outputs, COLUMNS), n_parts](
            inputs, columns, parts, counted, float(threshold), per_part, I=n_inputs, O=n_outputs, OVERLAP=bool(overlap),
            ROOM=ROOM, HALVINGS=ROOM.bit_length() - 1, BLOCK_O=COLUMNS,
        )  # fmt: skip
        join_kernel[triton.cdiv(n_outputs, blocks["BLOCK_N"]),](
            parts, outputs, P=n_parts, N=n_outputs, OVERLAP=bool(overlap), **blocks, **overlap
        )
    return outputs


def _inputs_of_a_part(n_inputs: int, n_outputs: int, device: torch.device) -> int:
    """Return so many inputs that the programs fill a GPU once, or as few times as possible."""
    at_once = max(1, programs_to_fill(device, PROGRAMS_A_PROCESSOR, PROGRAMS) // triton.cdiv(n_outputs, COLUMNS))
    n_parts = at_once * triton.cdiv(n_inputs, at_once * ROOM)
    return max(FEWEST, triton.cdiv(n_inputs, n_parts))


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int], threshold: float = 0.6
) -> tuple[Tensor, Tensor, float]:
    """Draw random arguments for `launch`, of a shape (O, I). For normal inputs, a threshold of 0.6 skips 45 %."""
    where = {"generator": generator, "device": generator.device}
    inputs = torch.randn(shape[1], **where).to(device, dtype)
    return inputs, (torch.randn(shape[1], shape[0], **where) / shape[1] ** 0.5).to(device, dtype), threshold


def _check(inputs: Tensor, columns: Tensor, threshold: float) -> None:
    if not threshold >= 0:
        raise ValueError(f"threshold={threshold}: expected a number from 0 up; 0 leaves out zeros alone")
    if inputs.ndim != 1 or columns.ndim != 2:
        raise ValueError(
            f"inputs have shape {tuple(inputs.shape)} and columns {tuple(columns.shape)}: expected (inputs,) and "
            "(inputs, outputs); each token leaves out columns of its own, so pass one"
        )
    check_tensor("inputs", inputs, (len(columns),), FLOATS)
    check_tensor("columns", columns, tuple(columns.shape), (inputs.dtype,))
    check_device(inputs=inputs, columns=columns)
