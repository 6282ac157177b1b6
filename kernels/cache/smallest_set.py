"""The smallest set of entries that contains a fraction of their sum, without sorting: FlexPrefill's choice of blocks.

Dimension key: R rows of N entries.

A map of 256 by 256 blocks for each of 32 heads has 2 million entries, which torch sorts row by row and then adds up in
that order. But the smallest entry of the set determines the set, so we search for it: a candidate is too small as long
as the entries that are at least as large have more than the fraction. A program handles one row and bisects the range
of candidates, in at most 31 steps, one for each bit of a non-negative float32, since the bits of these numbers have the
same order as the numbers. Sums are in float64.
"""

from __future__ import annotations

import numpy
import torch
from course_lib.kernels.checks import check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton
from jaxtyping import Bool, Float
from torch import Tensor

FORCED = 0x7F800000  # the bits of infinity: such entries come before all others
MOST_AT_ONCE = 8192  # entries that a program holds in registers; 16,384 do not fit
# For the tests: random rows with forced entries; a budget larger than the share needs; equal entries.
CASES = (
    {"shape": (3, 70), "share": 0.6, "at_least": 1, "n_forced": 5},
    {"shape": (2, 33), "share": 0.1, "at_least": 20, "n_forced": 2},
    {"shape": (2, 40), "share": 0.5, "at_least": 0, "n_forced": 0, "levels": 3},
)


def reference(
    mass: Float[Tensor, "R N"], always: Bool[Tensor, "R N"], share: float, at_least: int
) -> Bool[Tensor, "R N"]:
    """Compute the same by sorting; in ties, the first entries come first."""
    order = mass.masked_fill(always, torch.inf).argsort(dim=1, descending=True, stable=True)
    reached = mass.double().gather(1, order).cumsum(dim=1)
    needed = (reached - mass.double().gather(1, order) < share * reached[:, -1:]).sum(dim=1, keepdim=True)
    count = needed.clamp(min=min(at_least, mass.shape[1])).maximum(always.sum(dim=1, keepdim=True))
    rank = torch.arange(mass.shape[1], device=mass.device)
    return torch.zeros_like(always).scatter(1, order, rank < count)


def bytes_moved(mass: Float[Tensor, "R N"], always: Bool[Tensor, "R N"], share: float, at_least: int) -> int:
    """Count the bytes to move at least: entries and forced entries are read once, a byte per entry is written once."""
    return mass.nbytes + 2 * always.nbytes


@jit
def _chunk(mass, always, start, N, BLOCK: tl.constexpr):
    """Some entries of a row, and their place in the order; those beyond its end come after all others."""
    n = start + tl.arange(0, BLOCK)
    value = tl.load(mass + n, mask=n < N, other=0.0)
    forced = tl.load(always + n, mask=n < N, other=0) != 0
    return value.to(tl.float64), tl.where(n < N, tl.where(forced, 0x7F800000, value.to(tl.int32, bitcast=True)), -1)


@jit(lengths=("at_least", "N"))
def set_kernel(mass, always, keep, share, share_rest, at_least, N, BLOCK: tl.constexpr):
    """One row. The share is a float32 and what this misses of it."""
    row = tl.program_id(0).to(tl.int64)
    mass += row * N
    always += row * N
    keep += row * N
    total = tl.zeros([BLOCK], tl.float64)
    n_forced = tl.zeros([BLOCK], tl.int32)
    for start in range(0, N, BLOCK):
        value, place = _chunk(mass, always, start, N, BLOCK)
        total += value
        n_forced += (place == 0x7F800000).to(tl.int32)
    wanted = tl.sum(total, 0) * share + tl.sum(total, 0) * share_rest
    fewest = tl.maximum(tl.minimum(at_least, N), tl.sum(n_forced, 0))
    # The entries in places of at least `low` are enough; those of at least `high` are not.
    low = tl.full([], 0, tl.int32)
    high = tl.full([], 0x7F800001, tl.int32)
    n_low = N + tl.full([], 0, tl.int32)
    n_high = tl.full([], 0, tl.int32)
    while (high - low > 1) & (n_low - n_high > 1):  # until one place, or one entry, lies between
        middle = low + (high - low) // 2
        held = tl.zeros([BLOCK], tl.float64)
        count = tl.zeros([BLOCK], tl.int32)
        for start in range(0, N, BLOCK):
            value, place = _chunk(mass, always, start, N, BLOCK)
            held += tl.where(place >= middle, value, 0.0)
            count += (place >= middle).to(tl.int32)
        n_held = tl.sum(count, 0)
        enough = (tl.sum(held, 0) >= wanted) & (n_held >= fewest)
        n_low = tl.where(enough, n_held, n_low)
        n_high = tl.where(enough, n_high, n_held)
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    # All from `high` on are kept, and of those before it, which are equal, as many as it takes.
    held = tl.zeros([BLOCK], tl.float64)
    count = tl.zeros([BLOCK], tl.int32)
    for start in range(0, N, BLOCK):
        value, place = _chunk(mass, always, start, N, BLOCK)
        held += tl.where(place >= high, value, 0.0)
        count += (place >= high).to(tl.int32)
    missing = wanted - tl.sum(held, 0)
    size = low.to(tl.float32, bitcast=True).to(tl.float64)
    by_mass = tl.where(size > 0, tl.ceil(missing / tl.where(size > 0, size, 1.0)), 0.0)
    by_mass = tl.minimum(tl.maximum(by_mass, 0.0), 1e9).to(tl.int32)
    left = tl.maximum(by_mass, fewest - tl.sum(count, 0))
    left = tl.where((high - low > 1) & ((wanted > 0) | (fewest > 0)), 1, left)
    for start in range(0, N, BLOCK):
        value, place = _chunk(mass, always, start, N, BLOCK)
        equal = ((place >= low) & (place < high)).to(tl.int32)
        chosen = (place >= high) | ((equal != 0) & (tl.cumsum(equal, 0) <= left))
        n = start + tl.arange(0, BLOCK)
        tl.store(keep + n, chosen.to(tl.uint8), mask=n < N)
        left -= tl.sum(equal, 0)


def launch(mass: Float[Tensor, "R N"], always: Bool[Tensor, "R N"], share: float, at_least: int) -> Bool[Tensor, "R N"]:
    """Return a mask of the fewest entries of each row that contain the share: the largest ones, in ties the first.

    Args:
        mass: float32 and not negative, which is not checked.
        always: entries that are kept in any case, and whose mass counts.
        share: in [0, 1). at_least: entries per row.
    """
    _check(mass, always, share)
    if not runs_kernel(mass):
        return reference(mass, always, share, at_least)
    keep = torch.empty(mass.shape, dtype=torch.uint8, device=mass.device)
    block = min(MOST_AT_ONCE, max(16, triton.next_power_of_2(mass.shape[1])))
    rounded = float(numpy.float32(share))
    with torch.cuda.device_of(mass):  # triton launches on the current GPU, which may be another one
        set_kernel[(mass.shape[0],)](
            mass, always.view(torch.uint8), keep, rounded, share - rounded, at_least, N=mass.shape[1],
            BLOCK=block, num_warps=max(1, min(32, block // 256)),
        )  # fmt: skip
    return keep.view(torch.bool)


def takes(mass: Tensor, always: Tensor) -> bool:
    """Return whether the kernel supports these tensors: contiguous rows, with masses in float32."""
    return mass.ndim == 2 and mass.dtype == torch.float32 and mass.is_contiguous() and always.is_contiguous()


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    share: float,
    at_least: int,
    n_forced: int,
    levels: int = 0,
) -> tuple[Tensor, Tensor, float, int]:
    """Draw random arguments for `launch`, always in float32; `levels` is the number of different values."""
    mass = torch.rand(shape, generator=generator, device=generator.device)
    if levels:
        mass = (mass * levels).floor()
    always = torch.zeros(shape, dtype=torch.bool, device=generator.device)
    always[:, :n_forced] = True
    always = always.gather(1, torch.rand(shape, generator=generator, device=generator.device).argsort(dim=1))
    return mass.to(device), always.to(device), share, at_least


def _check(mass: Tensor, always: Tensor, share: float) -> None:
    if mass.ndim != 2 or not 0 <= share < 1:
        raise ValueError(
            f"mass has shape {tuple(mass.shape)} and share is {share}: expected (rows, entries) and a fraction below "
            "1; join the dimensions with .flatten(...), and keep everything if share is 1"
        )
    check_tensor("mass", mass, tuple(mass.shape), (torch.float32,))
    check_tensor("always", always, tuple(mass.shape), (torch.bool,))
    check_device(mass=mass, always=always)
