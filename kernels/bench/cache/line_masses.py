"""The inputs of FlexPrefill's choice: the last queries' attention by lines, and the smallest set of blocks of a map.

Dimension key: H key-value heads, G query heads to each, T tokens in N blocks of S, D size of a head.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.cache import line_masses
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.attention.prefill.lines import last_weights, on_block_diagonals, on_columns, slashes
from course_lib.measure.roofline import Work

SHAPE = {"cpu": (3, 3, 64), "cuda": (8, 4, 128)}  # H, G, D: a layer of the default model; one of a model of 8B
TOKENS = {"cpu": (2048,), "cuda": (8192, 32768)}
BLOCK_SIZE = 128
QUICK = {"shape": (2, 3, 8), "tokens": (70,), "block_size": 16}


def contests(place: Place) -> Iterator[Contest]:
    n_heads, n_groups, size = QUICK["shape"] if place.quick else SHAPE[place.device.type]
    block_size = QUICK["block_size"] if place.quick else BLOCK_SIZE
    for n_tokens in QUICK["tokens"] if place.quick else TOKENS[place.device.type]:
        query, keys = place.randn(n_heads * n_groups, n_tokens, size), place.randn(n_heads, n_tokens, size)
        yield _contest(query, keys, block_size)


def _contest(query: Tensor, keys: Tensor, block_size: int) -> Contest:
    n_heads, n_tokens, size = query.shape
    arguments = (query, keys, size**-0.5, block_size)
    work = Work(2 * n_heads * block_size * n_tokens * size, line_masses.bytes_moved(*arguments))
    expected = torch.stack(line_masses.reference(*arguments))
    sides = [
        Side("all weights, in torch", lambda: _by_weights(*arguments), work),
        Side("kernel" if query.is_cuda else "reference", lambda: torch.stack(line_masses.launch(*arguments)), work),
    ]
    return Contest(f"tokens: {n_tokens}", tuple(query.shape), sides, expected)


def _by_weights(query: Tensor, keys: Tensor, scaling: float, block_size: int) -> Tensor:
    weights = last_weights(query, keys, scaling, block_size)
    return torch.stack([on_columns(weights, block_size), on_block_diagonals(slashes(weights), block_size)])
