"""A prompt's attention over some of its blocks, against torch's fused attention over all of them.

Blocks are drawn at random, with the first and the diagonal always among them, so that the density is what is asked for.
What a rule takes to choose blocks is not timed here.

Dimension key: H key-value heads, G query heads to each, T tokens in N blocks of S, D size of a head.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from course_kernels.cache import block_sparse_prefill
from course_kernels.timing.contest import Contest, Place, Side
from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.index import BlockIndex
from course_lib.measure.roofline import Work

SHAPE = {"cpu": (3, 3, 64), "cuda": (8, 4, 128)}  # H, G, D: a layer of the default model; one of a model of 8B
TOKENS = {"cpu": (2048, 4096, 8192), "cuda": (2048, 8192, 32768)}
DENSITIES = {"cpu": (1.0, 0.6, 0.4, 0.2), "cuda": (1.0, 0.5, 0.25, 0.1)}
BLOCK_SIZE = 128
QUICK = {"shape": (2, 3, 8), "tokens": (70,), "densities": (1.0, 0.7), "block_size": 16}


def contests(place: Place) -> Iterator[Contest]:
    kind = place.device.type
    n_heads, n_groups, size = QUICK["shape"] if place.quick else SHAPE[kind]
    block_size = QUICK["block_size"] if place.quick else BLOCK_SIZE
    for n_tokens in QUICK["tokens"] if place.quick else TOKENS[kind]:
        query = place.randn(n_heads * n_groups, n_tokens, size)
        text = (query, place.randn(n_heads, n_tokens, size), place.randn(n_heads, n_tokens, size))
        for density in QUICK["densities"] if place.quick else DENSITIES[kind]:
            index = RandomBlocks(block_size=block_size, density=density).index(*text[:2], size**-0.5)
            yield _contest(text, index, place.quick)


def _contest(text: tuple[Tensor, Tensor, Tensor], index: BlockIndex, quick: bool) -> Contest:
    query, scaling = text[0], text[0].shape[2] ** -0.5
    arguments = (*text, *index.lists(), scaling, index.block_size)
    n_heads, n_tokens, size = query.shape
    n_bytes = block_sparse_prefill.bytes_moved(*arguments)
    work = Work(4 * size * _pairs(index), n_bytes)
    dense = _sdpa(*text, scaling)
    all_pairs = Work(4 * size * n_heads * n_tokens * (n_tokens + 1) // 2, n_bytes)
    sides = [Side("sdpa, all blocks", lambda: _sdpa(*text, scaling), all_pairs, dense)]
    if query.is_cuda:
        sides.append(Side("kernel", lambda: block_sparse_prefill.launch(*arguments), work))
    else:
        sides.append(Side("loop over blocks", lambda: block_sparse_attention(*text, index, scaling), work))
    expected = block_sparse_prefill.reference(*arguments)
    density = float(index.density.mean())
    contest = Contest(f"tokens: {n_tokens}, density {density:.2f}", tuple(query.shape), sides, expected)
    contest.try_side("flex_attention", lambda: Side("flex_attention", _flex(text, index, scaling, quick), work))
    return contest


def _pairs(index: BlockIndex) -> int:
    """Of queries and keys, over all heads: whole blocks below the diagonal, and half of those on it."""
    n, size = index.reads.shape[1], index.block_size
    rows = [min(size, index.n_tokens - i * size) for i in range(n)]
    below = (index.reads.sum(dim=(0, 2)) - index.reads.shape[0]).tolist()
    return sum(
        row * size * count + index.reads.shape[0] * row * (row + 1) // 2 for row, count in zip(rows, below, strict=True)
    )


def _sdpa(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    inputs = (each[None] for each in (query, keys, values))
    return scaled_dot_product_attention(*inputs, is_causal=True, scale=scaling, enable_gqa=True)[0]


def _flex(text: tuple[Tensor, Tensor, Tensor], index: BlockIndex, scaling: float, quick: bool) -> Callable[[], Tensor]:
    """torch's own block-sparse attention, over the same blocks; compiled, which needs a compiler and half a minute."""
    attend = flex_attention if quick else torch.compile(flex_attention)
    mask, inputs = _block_mask(index), tuple(each[None] for each in text)
    return lambda: attend(*inputs, block_mask=mask, scale=scaling, enable_gqa=True)[0]


def _block_mask(index: BlockIndex) -> BlockMask:
    """Blocks on the diagonal are masked query by query, the others are whole. Uncompiled, torch asks the mask alone."""
    own = torch.eye(index.reads.shape[1], dtype=torch.bool, device=index.reads.device)
    lists = []
    for some in (index.reads & own, index.reads & ~own):
        lists += [some.sum(dim=2).int()[None], some.int().argsort(dim=2, descending=True, stable=True).int()[None]]
    return BlockMask.from_kv_blocks(
        *lists,
        BLOCK_SIZE=index.block_size,
        mask_mod=lambda b, h, i, j: (j <= i) & index.reads[h, i // index.block_size, j // index.block_size],
        seq_lengths=(index.n_tokens, index.n_tokens),
    )
