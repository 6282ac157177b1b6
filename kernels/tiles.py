"""Device code that kernels share: products of two tiles, sums of partial results, attention joined from its parts.

Dimension key: P partial results, N numbers of each; of attention: S parts of the slots, D numbers of a head.
"""

from __future__ import annotations

from course_lib.kernels.runtime import jit, tl, triton

MOST_JOINED = 512  # partial results that a program has at a time
MANY_NUMBERS = 2**16  # of which larger shares make programs enough
JOINED = 4096  # numbers that a program has at a time, in all parts; twice as many at most


@jit
def product(left, right, UPCAST: tl.constexpr):
    """left @ right, summed in float32."""
    if UPCAST:  # the interpreter has no bfloat16 arithmetic
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    return tl.dot(left, right, input_precision="ieee")


@jit(lengths=("P",))
def join_kernel(
    parts, outputs, P, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr = False
):
    """outputs = Σ_p parts[p], always in the same order, where atomic additions would round in the order of arrival."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for first in range(0, P, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        at = parts + p.to(tl.int64)[:, None] * N + n[None, :]
        total += tl.load(at, mask=(p < P)[:, None] & (n < N)[None, :], other=0.0)
    tl.store(outputs + n, tl.sum(total, 0).to(outputs.dtype.element_ty), mask=n < N)


def join_blocks(n_parts: int, n_numbers: int) -> dict[str, int]:
    """Return block sizes: all parts at once, since each load waits for a cache, and few numbers per program.

    Then many programs wait at the same time.
    """
    block_p = min(MOST_JOINED, triton.next_power_of_2(n_parts))
    most = 128 if n_numbers < MANY_NUMBERS else 512
    return {"BLOCK_P": block_p, "BLOCK_N": max(16, min(most, JOINED // block_p)), "num_warps": 8}


@jit
def level_of_parts(peak, total, row, inside, S, BLOCK_S: tl.constexpr = 64):
    """Of the query heads in these rows: their largest logit, and the sum of the weights of all parts relative to it.
    A head that saw nothing has a level and a sum of 0.
    """
    best = tl.full(inside.shape, float("-inf"), tl.float32)
    sum_of_weights = tl.zeros(inside.shape, tl.float32)
    for first in range(0, S, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        here = inside[:, None] & (s < S)[None, :]
        of_part = tl.load(peak + row[:, None] * S + s[None, :], mask=here, other=float("-inf"))
        weights = tl.load(total + row[:, None] * S + s[None, :], mask=here, other=0.0)
        higher = tl.maximum(best, tl.max(of_part, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        sum_of_weights = sum_of_weights * tl.exp(best - level) + tl.sum(weights * tl.exp(of_part - level[:, None]), 1)
        best = higher
    return tl.where(best == float("-inf"), 0.0, best), sum_of_weights


@jit
def read_of_parts(
    part, peak, total, output, row, S, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr = 64
):
    """Writes what one query head read of all S parts; zeros where it saw nothing."""
    rows, d = row + tl.arange(0, 1), tl.arange(0, BLOCK_D)
    level, sum_of_weights = level_of_parts(peak, total, rows, rows >= 0, S, BLOCK_S)
    read = tl.zeros([BLOCK_D], tl.float32)
    for first in range(0, S, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        share = tl.exp(tl.load(peak + row * S + s, mask=s < S, other=float("-inf")) - level)
        at = part + (row * S + s)[:, None] * D + d[None, :]
        numbers = tl.load(at, mask=(s < S)[:, None] & (d < D)[None, :], other=0.0)
        read += tl.sum(share[:, None] * numbers, 0)
    read = read / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)
    tl.store(output + row * D + d, read.to(output.dtype.element_ty), mask=d < D)
