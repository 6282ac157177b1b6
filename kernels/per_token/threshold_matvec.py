"""Multiply a matrix by a vector of which what is small counts as zero, and whose columns are then not read.

Liu and others, 2024, TEAL, https://arxiv.org/abs/2408.14690 (s_t(x) = x where |x| > t, else 0).

Dimension key: O outputs, I inputs, S parts that the inputs are split into.
The weight lies column by column: row i of `columns` (I, O) is what input i is multiplied with, so a zero skips O
neighbouring numbers. In rows (O, I), it would skip single numbers, of which memory always gives 32 bytes or more.

One vector is bound by memory: (1 - s) O I numbers at a sparsity s. A first kernel lists the inputs that count, part by
part: were the others masked instead, their threads would wait for the rest. In a second each program has some outputs
and a part of the inputs; a third adds the parts, of 4 O bytes each, in float32 and in one order. Deviation: TEAL's code
masks, and adds atomically in half precision, so its results differ from run to run.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import join_blocks, join_kernel
from jaxtyping import Float
from torch import Tensor

PART = 256  # inputs of a program: of half as many there are twice the sums to add up
# For the tests: two parts, ragged tiles; whole ones; every input below the threshold; none below; a single number.
CASES = (
    {"shape": (131, 277)},
    {"shape": (1024, 256), "threshold": 1.0},
    {"shape": (9, 40), "threshold": 50.0},
    {"shape": (40, 33), "threshold": 0.0},
    {"shape": (1, 1), "threshold": 0.0},
)


def reference(inputs: Float[Tensor, "I"], columns: Float[Tensor, "I O"], threshold: float) -> Float[Tensor, "O"]:
    """y = W (x ⊙ 1[|x| > t]), summed in float32."""
    kept = kept_inputs(inputs, threshold)
    return (inputs[kept].float() @ columns[kept].float()).to(inputs.dtype)


def kept_inputs(inputs: Float[Tensor, "I"], threshold: float) -> Tensor:
    """Which inputs count, (I,). NaN counts, so that it is seen in the outputs."""
    return ~(inputs.float().abs() <= threshold)


def bytes_moved(inputs: Float[Tensor, "I"], columns: Float[Tensor, "I O"], threshold: float) -> int:
    """The columns of the inputs that count, all inputs, the outputs."""
    a_column = columns.shape[1] * columns.element_size()
    return int(kept_inputs(inputs, threshold).sum()) * a_column + inputs.nbytes + a_column


@jit
def list_kernel(inputs, kept, n_kept, threshold, I: tl.constexpr, PART: tl.constexpr):
    """Which inputs of a part count, in their order, and how many they are."""
    part = tl.program_id(0)
    i = part * PART + tl.arange(0, PART)
    x = tl.load(inputs + i, mask=i < I, other=0.0).to(tl.float32)
    counts = (i < I) & ((tl.abs(x) <= threshold) == 0)
    n_up_to = tl.cumsum(counts.to(tl.int32), 0)
    tl.store(kept + part.to(tl.int64) * PART + n_up_to - 1, i, mask=counts)
    tl.store(n_kept + part, tl.sum(counts.to(tl.int32), 0))


@tuned(
    ["O"],
    {"BLOCK_O": 512, "TILE": 8, "STAGES": 4, "num_warps": 4},
    {"BLOCK_O": 512, "TILE": 16, "STAGES": 1, "num_warps": 4},
    {"BLOCK_O": 1024, "TILE": 8, "STAGES": 4, "num_warps": 8},
)
@jit
def part_kernel(
    inputs, columns, kept, n_kept, parts, O: tl.constexpr, PART: tl.constexpr, TILE: tl.constexpr,
    BLOCK_O: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Outputs of one part of the inputs. Every row of a tile is a column that counts, so no thread idles for a zero."""
    part = tl.program_id(1).to(tl.int64)
    o, every, n = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O), tl.arange(0, PART), tl.load(n_kept + part)
    # Once, for a row that waits in the loop for its index to come from memory would be asked for too late.
    listed = tl.load(kept + part * PART + every, mask=every < n, other=0)
    total = tl.zeros([TILE, BLOCK_O], tl.float32)
    for first in tl.range(0, n, TILE, num_stages=STAGES):
        r = first + tl.arange(0, TILE)
        # Loads run ahead of the end, and their indices with them: those must not leave the list.
        i = tl.gather(listed, tl.minimum(r, PART - 1), 0)
        factor = tl.load(inputs + i, mask=r < n, other=0.0).to(tl.float32)
        at = columns + i.to(tl.int64)[:, None] * O + o[None, :]
        weight = tl.load(at, mask=(r < n)[:, None] & (o < O)[None, :], other=0.0).to(tl.float32)
        total += weight * factor[:, None]
    tl.store(parts + part * O + o, tl.sum(total, 0), mask=o < O)


def launch(inputs: Float[Tensor, "I"], columns: Float[Tensor, "I O"], threshold: float) -> Float[Tensor, "O"]:
    """y = W (x ⊙ 1[|x| > t]), where `columns` is Wᵀ, contiguous."""
    _check(inputs, columns, threshold)
    if not runs_kernel(inputs) or not columns.numel():
        return reference(inputs, columns, threshold)
    n_inputs, n_outputs = columns.shape
    n_parts = triton.cdiv(n_inputs, PART)
    kept, n_kept = (torch.empty(n, dtype=torch.int32, device=inputs.device) for n in (n_parts * PART, n_parts))
    parts = torch.empty((n_parts, n_outputs), dtype=torch.float32, device=inputs.device)
    outputs = torch.empty(n_outputs, dtype=inputs.dtype, device=inputs.device)
    blocks = join_blocks(n_parts, n_outputs)
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        list_kernel[n_parts,](inputs, kept, n_kept, float(threshold), I=n_inputs, PART=PART)
        part_kernel[lambda meta: (triton.cdiv(n_outputs, meta["BLOCK_O"]), n_parts)](
            inputs, columns, kept, n_kept, parts, O=n_outputs, PART=PART
        )
        join_kernel[triton.cdiv(n_outputs, blocks["BLOCK_N"]),](parts, outputs, P=n_parts, N=n_outputs, **blocks)
    return outputs


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int], threshold: float = 0.6
) -> tuple[Tensor, Tensor, float]:
    """Random arguments for `launch`, of a shape (O, I). Of normal inputs, 0.6 leaves out 45 %."""
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
