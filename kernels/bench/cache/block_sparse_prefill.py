"""A prompt's attention over some of its blocks, against torch's fused attention over all of them.

Blocks are chosen at random, always with the first and the diagonal block, so that the density is the requested one.
The time that a rule takes to choose blocks is not included.

Dimension key: H key-value heads, G query heads to each, T tokens in N blocks of S, D size of a head.
"""

from collections.abc import Callable, Iterator

from course_lib.kernels.cache import block_sparse_prefill
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.flex import block_mask, compiled, flex_block_sparse_attention
from course_lib.attention.prefill.index import BlockIndex
from course_lib.measure.roofline import Work

SHAPE = {"cpu": (3, 3, 64), "cuda": (8, 4, 128)}  # H, G, D: a layer of the default model; one of a model of 8B
TOKENS = {"cpu": (2048, 4096, 8192), "cuda": (32768, 8192, 2048)}
DENSITIES = {"cpu": (1.0, 0.6, 0.4, 0.2), "cuda": (1.0, 0.5, 0.25, 0.1)}
FEW_DENSITIES = {2048: (1.0, 0.25)}  # of a short text on a GPU
FLEX = {8192: (0.5, 0.1)}  # on a GPU, where torch compiles flex_attention again for each of these
GPU_SECONDS = 24
BLOCK_SIZE = 128
QUICK = {"shape": (2, 3, 8), "tokens": (70,), "densities": (1.0, 0.7), "block_size": 16}


def contests(place: Place) -> Iterator[Contest]:
    kind = place.device.type
    n_heads, n_groups, size = QUICK["shape"] if place.quick else SHAPE[kind]
    block_size = QUICK["block_size"] if place.quick else BLOCK_SIZE
    for n_tokens in QUICK["tokens"] if place.quick else TOKENS[kind]:
        query = place.randn(n_heads * n_groups, n_tokens, size)
        text = (query, place.randn(n_heads, n_tokens, size), place.randn(n_heads, n_tokens, size))
        densities = FEW_DENSITIES.get(n_tokens, DENSITIES[kind]) if kind == "cuda" else DENSITIES[kind]
        for density in QUICK["densities"] if place.quick else densities:
            index = RandomBlocks(block_size=block_size, density=density).index(*text[:2], size**-0.5)
            flex = kind != "cuda" or density in FLEX.get(n_tokens, ())
            yield _contest(text, index, place.quick, flex)


def _contest(text: tuple[Tensor, Tensor, Tensor], index: BlockIndex, quick: bool, flex: bool) -> Contest:
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
    if flex:
        contest.try_side("flex_attention", lambda: Side("flex_attention", _flex(text, index, scaling, quick), work))
    return contest


def _pairs(index: BlockIndex) -> int:
    """Count the pairs of queries and keys over all heads: whole blocks below the diagonal, and half of those on it."""
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
    """Run torch's own block-sparse attention on the same blocks; compiling it needs a compiler and half a minute."""
    attend, mask = flex_attention if quick else compiled(), block_mask(index)
    return lambda: flex_block_sparse_attention(*text, mask, scaling, attend)
