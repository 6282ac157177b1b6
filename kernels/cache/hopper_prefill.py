"""Block-sparse attention of a prompt for Hopper GPUs (H100, H200), written in Gluon, the language below Triton.

Dimension key: H key-value heads, G query heads to each, heads = H * G, T tokens in N blocks of S (the last block may be
shorter), M the width of the lists, D size of a head.

The exponentials of a tile take half as long as its products, and in `block_sparse_prefill.py` the tensor cores wait for
them: all warps of a program pass a barrier in each step, so that all of them multiply, and then none. Here the warps of
a program do different things, as in FlashAttention-3 (Shah and others, 2024, https://arxiv.org/abs/2407.08608):

- one warp copies queries, keys and values to shared memory with the tensor memory accelerator, two blocks ahead;
- two groups of four warps have 64 queries each, and no barrier: one computes exponentials, while the other multiplies;
- within a group, the products with the values of one block run while the exponentials of the next are computed.

Each program handles one block of queries of one head. Programs for late blocks, which have long lists, start first. The
queries' own block is processed first: only this block needs a mask, and it gives every query a finite maximum.

On an H200, with all blocks of 32,768 tokens (32 heads on 8, of size 128), it takes 13.0 ms and torch's fused attention
14.5 ms; with 0.3 of them it takes 4.0 ms. Persistent programs, one per multiprocessor, were as fast there, but took 970
instead of 819 us for 8,192 tokens: their last blocks of queries end at different times.
"""

from __future__ import annotations

import math

import torch
from course_lib.kernels.runtime import INTERPRETED, triton
from torch import Tensor

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.nvidia.hopper import (
        fence_async_shared,
        mbarrier,
        tma,
        warpgroup_mma,
        warpgroup_mma_wait,
    )
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
except ImportError:  # no triton, or one without Gluon
    gluon = None

BLOCK = 128  # tokens of a block; two groups of warps with 64 rows each
SIZES = (64, 128)  # of a head
VERSIONS = ("3.6", "3.7")  # of triton: Gluon is experimental, so others take the general kernel
STAGES = 2  # blocks of keys, and of values, in shared memory
LOG2_E = math.log2(math.e)


def fits(query: Tensor, keys: Tensor, values: Tensor, block_size: int) -> bool:
    """Return whether this kernel can run: a Hopper GPU, 16-bit numbers, and supported sizes of blocks and heads."""
    if gluon is None or INTERPRETED or not query.is_cuda or ".".join(triton.__version__.split(".")[:2]) not in VERSIONS:
        return False
    known = block_size == BLOCK and query.shape[2] in SIZES and query.dtype in (torch.float16, torch.bfloat16)
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (query, keys, values))
    return known and aligned and torch.cuda.get_device_capability(query.device) == (9, 0)


def _jit(**options):
    if gluon is None or INTERPRETED:
        return lambda kernel: kernel
    return gluon.jit(**options)


@_jit()
def _place_of(tile, N, G: gl.constexpr):
    """Key-value head, block of queries, and query head. Heads of a group run side by side, since they share keys in the
    cache of the GPU; late blocks, whose lists are long, come first.
    """
    group = tile // G
    return group // N, N - 1 - group % N, group // N * G + tile % G


@_jit()
def _copy(
    sources, tiles, ready, free, columns, counts, N, M, n_tiles,
    G: gl.constexpr, S: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The warp that copies. A barrier `ready` says that a tile has arrived, `free` that both groups have read it."""
    query, keys, values = sources
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, k_ready, v_ready = ready
    q_free, k_free, v_free = free
    n_blocks = 0  # so far
    n_done = 0  # of this program's tiles
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        shared_head, i, head = _place_of(tile, N, G)
        count = gl.load(counts + head * N + i)
        some = columns + gl.cast(head * N + i, gl.int64) * M
        slot = n_done % 2
        mbarrier.wait(q_free.index(slot), (n_done // 2 & 1) ^ 1)
        mbarrier.expect(q_ready.index(slot), 2 * query.block_type.nbytes)
        tma.async_copy_global_to_shared(query, [head, i * S, 0], q_ready.index(slot), q_tiles.index(2 * slot))
        tma.async_copy_global_to_shared(query, [head, i * S + 64, 0], q_ready.index(slot), q_tiles.index(2 * slot + 1))
        block = i
        for step in range(count):
            following = gl.load(some + step)  # before it is needed: its latency passes during the waits
            stage = n_blocks % STAGES
            phase = n_blocks // STAGES & 1
            mbarrier.wait(k_free.index(stage), phase ^ 1)
            mbarrier.expect(k_ready.index(stage), keys.block_type.nbytes)
            tma.async_copy_global_to_shared(
                keys, [shared_head, block * S, 0], k_ready.index(stage), k_tiles.index(stage)
            )
            mbarrier.wait(v_free.index(stage), phase ^ 1)
            mbarrier.expect(v_ready.index(stage), values.block_type.nbytes)
            tma.async_copy_global_to_shared(
                values, [shared_head, block * S, 0], v_ready.index(stage), v_tiles.index(stage)
            )
            block = following
            n_blocks += 1
        n_done += 1  # noqa: SIM113 (Triton has no enumerate)


@_jit()
def _attend(
    tiles, ready, free, counts, output, scaling, T, N, n_tiles, WHICH: gl.constexpr,
    G: gl.constexpr, S: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One group of warps, with rows WHICH * 64 to WHICH * 64 + 63 of each block of queries."""
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, k_ready, v_ready = ready
    q_free, k_free, v_free = free
    of_logits: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, S, 16])
    of_result: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    dtype: gl.constexpr = q_tiles.dtype
    row = WHICH * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, of_logits))
    column = gl.arange(0, S, layout=gl.SliceLayout(0, of_logits))
    nothing = gl.zeros([64, S], gl.float32, of_logits)
    n_blocks = 0
    n_done = 0
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        _, i, head = _place_of(tile, N, G)
        count = gl.load(counts + head * N + i)
        slot = n_done % 2
        q = q_tiles.index(2 * slot + WHICH).reshape([64, D])
        mbarrier.wait(q_ready.index(slot), n_done // 2 & 1)
        # The queries' own block.
        stage = n_blocks % STAGES
        mbarrier.wait(k_ready.index(stage), n_blocks // STAGES & 1)
        k = k_tiles.index(stage).reshape([S, D]).permute((1, 0))
        logit = warpgroup_mma(q, k, nothing, use_acc=False, is_async=True)
        logit = warpgroup_mma_wait(0, [logit])
        mbarrier.arrive(k_free.index(stage))
        logit = gl.where(column[None, :] <= row[:, None], logit, float("-inf"))
        best = gl.max(logit, 1) * scaling
        weight = gl.exp2(logit * scaling - best[:, None])
        total = gl.sum(weight, 1)
        read = gl.zeros([64, D], gl.float32, of_result)
        # In each step, the products with the keys of one block, and with the values of the block before.
        for _step in range(1, count):
            left = gl.convert_layout(weight.to(dtype), gl.DotOperandLayout(0, of_result, 2))
            before = n_blocks % STAGES
            phase_before = n_blocks // STAGES & 1
            n_blocks += 1
            stage = n_blocks % STAGES
            mbarrier.wait(k_ready.index(stage), n_blocks // STAGES & 1)
            k = k_tiles.index(stage).reshape([S, D]).permute((1, 0))
            logit = warpgroup_mma(q, k, nothing, use_acc=False, is_async=True)
            mbarrier.wait(v_ready.index(before), phase_before)
            read = warpgroup_mma(left, v_tiles.index(before).reshape([S, D]), read, is_async=True)
            logit = warpgroup_mma_wait(1, [logit])
            mbarrier.arrive(k_free.index(stage))
            higher = gl.maximum(best, gl.max(logit, 1) * scaling)
            weight = gl.exp2(logit * scaling - higher[:, None])
            fade = gl.exp2(best - higher)
            total = total * fade + gl.sum(weight, 1)
            best = higher
            read = warpgroup_mma_wait(0, [read])
            mbarrier.arrive(v_free.index(before))
            read = read * gl.convert_layout(fade, gl.SliceLayout(1, of_result))[:, None]
        mbarrier.arrive(q_free.index(slot))
        left = gl.convert_layout(weight.to(dtype), gl.DotOperandLayout(0, of_result, 2))
        before = n_blocks % STAGES
        mbarrier.wait(v_ready.index(before), n_blocks // STAGES & 1)
        read = warpgroup_mma(left, v_tiles.index(before).reshape([S, D]), read, is_async=True)
        read = warpgroup_mma_wait(0, [read])
        mbarrier.arrive(v_free.index(before))
        n_blocks += 1
        n_done += 1  # noqa: SIM113 (Triton has no enumerate)
        result = (read / gl.convert_layout(total, gl.SliceLayout(1, of_result))[:, None]).to(dtype)
        at = i * S + WHICH * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, of_result))
        d = gl.arange(0, D, layout=gl.SliceLayout(0, of_result))
        where = (gl.cast(head, gl.int64) * T + at)[:, None] * D + d[None, :]
        gl.store(output + where, result, mask=(at < T)[:, None])


@_jit(do_not_specialize=["T", "N", "M", "n_tiles"])
def hopper_kernel(
    query, keys, values, columns, counts, output, scaling, T, N, M, n_tiles,
    G: gl.constexpr, S: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Exponentials are powers of 2: `scaling` holds the logarithm's factor."""
    q_tiles = gl.allocate_shared_memory(query.dtype, [4, 1, 64, D], query.layout)
    k_tiles = gl.allocate_shared_memory(keys.dtype, [STAGES, 1, S, D], keys.layout)
    v_tiles = gl.allocate_shared_memory(values.dtype, [STAGES, 1, S, D], values.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(2):
        mbarrier.init(q_ready.index(n), count=1)
        mbarrier.init(q_free.index(n), count=2)
    for n in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(n), count=1)
        mbarrier.init(k_free.index(n), count=2)
        mbarrier.init(v_ready.index(n), count=1)
        mbarrier.init(v_free.index(n), count=2)
    fence_async_shared()
    tiles = (q_tiles, k_tiles, v_tiles)
    ready = (q_ready, k_ready, v_ready)
    free = (q_free, k_free, v_free)
    sources = (query, keys, values)
    gl.warp_specialize(
        [
            (_attend, (tiles, ready, free, counts, output, scaling, T, N, n_tiles, 0, G, S, D, STAGES)),
            (_attend, (tiles, ready, free, counts, output, scaling, T, N, n_tiles, 1, G, S, D, STAGES)),
            (_copy, (sources, tiles, ready, free, columns, counts, N, M, n_tiles, G, S, STAGES)),
        ],
        [4, 1],
        [240, 24],  # registers of a thread: few to copy
    )


def attend(
    query: Tensor, keys: Tensor, values: Tensor, columns: Tensor, counts: Tensor, scaling: float, block_size: int
) -> Tensor:
    """Compute the result of `block_sparse_prefill.launch`, which checks these arguments."""
    n_heads, n_tokens, size = query.shape
    n_blocks = triton.cdiv(n_tokens, block_size)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    n_tiles = n_heads * n_blocks
    dtype = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}[query.dtype]
    described = []
    for tensor, rows in ((query, 64), (keys, block_size), (values, block_size)):
        layout = gl.NVMMASharedLayout.get_default_for([1, rows, size], dtype)
        described.append(TensorDescriptor.from_tensor(tensor, [1, rows, size], layout))
    with torch.cuda.device_of(query):
        hopper_kernel[(n_tiles,)](
            *described, columns, counts, output, scaling * LOG2_E, T=n_tokens, N=n_blocks, M=columns.shape[2],
            n_tiles=n_tiles, G=n_heads // keys.shape[0], S=block_size, D=size, STAGES=STAGES,
            num_warps=4, maxnreg=168,
        )  # fmt: skip
    return output
