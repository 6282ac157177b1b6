"""Sun, Liu, Bair, Kolter 2023, "A Simple and Effective Pruning Approach for Large Language Models" (Wanda),
https://arxiv.org/abs/2306.11695: score and N:M choice in one pass over the weight.

Dimension key: O outputs (rows), I inputs (columns), M inputs a group, N of them kept. In a tile: G groups.

The score |W_ij| * ||x_j|| (equation 1) needs no other weight, and an N:M choice needs a group of M, so a weight is read
once and written once. PyTorch code writes the score, sorts it, scatters a mask and multiplies, with one pass for each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton, tuned
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.sparsity.patterns import NofM

GROUPS = (2, 4, 8, 16)  # M: groups must fill powers of two, and ranking a group takes M * M comparisons
# For the tests: ragged tiles, tiny and whole ones, each group size, n that is no power of two.
CASES = (
    {"shape": (9, 264)},
    {"shape": (8, 256), "n": 4, "m": 8},
    {"shape": (1, 2), "n": 1, "m": 2},
    {"shape": (3, 48), "n": 5, "m": 16},
    {"shape": (5, 40), "n": 1, "m": 4, "is_score": True},
)
WRITES = ("weight", "keep", "both")
HAS_NAN = "the score has NaN: expected comparable numbers; look for NaN in the weight and in the norm"


class Pruned(NamedTuple):
    """The requested outputs; an output that was not requested is None."""

    weight: Float[Tensor, "O I"] | None
    keep: Bool[Tensor, "O I"] | None


def reference(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"] | None, n: int = 2, m: int = 4, write: str = "both"
) -> Pruned:
    """Compute score, rank and mask in float32. Without norms, the weight is the score."""
    keep = NofM(n, m).keep(weight.float() if norm is None else weight.abs().float() * norm)
    return Pruned(None if write == "keep" else weight.masked_fill(~keep, 0), None if write == "weight" else keep)


def bytes_moved(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"] | None, n: int = 2, m: int = 4, write: str = "both"
) -> int:
    """Count the bytes to move at least: weight and norms are read once, the requested outputs are written once.

    A mask has one byte per entry.
    """
    width = weight.element_size()
    written = {"weight": width, "keep": 1, "both": width + 1}[write]
    return weight.numel() * (width + written) + (0 if norm is None else norm.nbytes)


@tuned(
    ["M"],  # one choice for all matrices of a model: tuning for a shape takes longer than pruning such matrices
    {"BLOCK_O": 8, "BLOCK_I": 256, "num_warps": 4},
    {"BLOCK_O": 1, "BLOCK_I": 1024, "num_warps": 4},
    {"BLOCK_O": 2, "BLOCK_I": 1024, "num_warps": 4},
)
@jit
def mask_kernel(
    weight, norm, pruned, keep, has_nan, O, I: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
    BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Keeps the N of each group that fewer than N others beat; equal scores leave by lower index."""
    G: tl.constexpr = BLOCK_I // M
    OWN: tl.constexpr = 8  # neighbours that a thread has: 16 bytes of bfloat16
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    column = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    inside = (row < O)[:, None] & (column < I)[None, :]
    offset = row.to(tl.int64)[:, None] * I + column[None, :]
    w = tl.load(weight + offset, mask=inside, other=0.0).to(tl.float32)
    score = w
    if norm is not None:
        # Loaded once per row, so that each thread gets the norms of its own weights: of one row, they would move.
        score = tl.abs(w) * tl.load(norm + column[None, :] + tl.zeros([BLOCK_O, 1], tl.int32), mask=inside, other=0.0)
    mine = tl.reshape(score, (BLOCK_O, G, M, 1))
    other = tl.reshape(score, (BLOCK_O, G, 1, M))
    later = tl.arange(0, M)[None, None, None, :] > tl.arange(0, M)[None, None, :, None]
    # Counted in float32: a GPU compares into 1.0 and 0.0 in one instruction, and into integers in several.
    n_better = tl.sum(tl.where((other > mine) | ((other == mine) & later), 1.0, 0.0), 3)
    kept = tl.reshape(n_better, (BLOCK_O, BLOCK_I)) < N
    if pruned is not None:
        tl.store(pruned + offset, tl.where(kept, w, 0.0).to(pruned.dtype.element_ty), mask=inside)
    if keep is not None:
        tl.store(keep + offset, kept.to(tl.uint8), mask=inside)
    # Each thread says so for its weights: one answer of the whole program would hold its warps up.
    nan = tl.max(tl.reshape((score != score).to(tl.int32), (BLOCK_O, BLOCK_I // OWN, OWN)), 2)
    tl.store(has_nan + tl.zeros([BLOCK_O, BLOCK_I // OWN], tl.int32), 1, mask=nan > 0)


def takes(weight: Tensor, m: int) -> bool:
    """Return whether the kernel can choose N of M weights in this matrix."""
    return m in GROUPS and weight.ndim == 2 and weight.shape[1] % m == 0 and weight.is_contiguous()


def launch(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"] | None, n: int = 2, m: int = 4, write: str = "both"
) -> Pruned:
    """Return the pruned weight, its keep mask, or both, from the norm of each input over the calibration tokens.

    Without norms, the weight is the score of any method, negative numbers included: the n highest of m are kept.
    """
    _check(weight, norm, n, m, write)
    if not runs_kernel(weight):
        return reference(weight, norm, n, m, write)
    pruned, has_nan = enqueue(weight, norm, n, m, write)
    if has_nan.item():  # the one wait for the GPU
        raise ValueError(HAS_NAN)
    return pruned


def enqueue(weight: Tensor, norm: Tensor | None, n: int, m: int, write: str) -> tuple[Pruned, Tensor]:
    """Start the kernel and return without waiting: the results, and a flag that says whether a score was NaN."""
    pruned = None if write == "keep" else torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    keep = None if write == "weight" else torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
    has_nan = torch.zeros(1, dtype=torch.int32, device=weight.device)
    n_rows, n_columns = weight.shape
    with torch.cuda.device_of(weight):  # triton launches on the current GPU, which may be another one
        mask_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]), triton.cdiv(n_columns, meta["BLOCK_I"]))](
            weight, norm, pruned, keep, has_nan, O=n_rows, I=n_columns, N=n, M=m
        )
    return Pruned(pruned, None if keep is None else keep.view(torch.bool)), has_nan


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    n: int = 2,
    m: int = 4,
    is_score: bool = False,
) -> tuple[Tensor, Tensor | None, int, int]:
    """Draw random arguments for `launch`, with ties: weight (O, I) and norm (I,), or a score (O, I) also below zero."""
    where = {"generator": generator, "device": generator.device}
    weight = torch.randn(shape, **where).to(device, dtype)
    weight[:, 1::m] = weight[:, 0::m] if is_score else -weight[:, 0::m]
    if is_score:
        return weight, None, n, m
    norm = torch.rand(shape[1], **where).to(device) + 0.5
    norm[1::m] = norm[0::m]
    return weight, norm, n, m


def _check(weight: Tensor, norm: Tensor | None, n: int, m: int, write: str) -> None:
    NofM(n, m)
    if m not in GROUPS:
        raise ValueError(f"n:m = {n}:{m}: expected m in {GROUPS}; call reference() for other groups")
    if write not in WRITES:
        raise ValueError(f"write={write!r}: expected one of {WRITES}; choose what to write")
    if weight.ndim != 2 or weight.shape[1] % m:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}: expected (outputs, inputs) with inputs a multiple of {m}; "
            "choose an m that divides them"
        )
    check_tensor("weight", weight, tuple(weight.shape), FLOATS)
    if norm is not None:
        check_tensor("norm", norm, (weight.shape[1],), (torch.float32,))
        check_device(weight=weight, norm=norm)
