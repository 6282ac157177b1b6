"""What kernels share on the chip: products of two tiles, and the sum of partial results.

Dimension key: P partial results, N numbers of each.
"""

from __future__ import annotations

from course_kernels.runtime import jit, tl, triton

MOST_JOINED = 512  # partial results that a program has at a time
JOINED = 4096  # numbers that a program has at a time: 8 of each thread from few parts, at most 32 from many


@jit
def product(left, right, UPCAST: tl.constexpr):
    """left @ right, summed in float32."""
    if UPCAST:  # the interpreter has no bfloat16 arithmetic
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    return tl.dot(left, right, input_precision="ieee")


@jit(lengths=("P",))
def join_kernel(parts, outputs, P, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    """outputs = Σ_p parts[p], always in the same order, where atomic additions would round in the order of arrival."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_P, BLOCK_N], tl.float32)
    for first in range(0, P, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        at = parts + p.to(tl.int64)[:, None] * N + n[None, :]
        total += tl.load(at, mask=(p < P)[:, None] & (n < N)[None, :], other=0.0)
    tl.store(outputs + n, tl.sum(total, 0).to(outputs.dtype.element_ty), mask=n < N)


def join_blocks(n_parts: int) -> dict[str, int]:
    """All parts at once, since each load waits for a cache, and few numbers, so that many programs wait together."""
    block_p = min(MOST_JOINED, triton.next_power_of_2(n_parts))
    return {"BLOCK_P": block_p, "BLOCK_N": max(16, min(128, JOINED // block_p)), "num_warps": 8}
