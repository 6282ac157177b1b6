"""Column sums of a prompt's attention: from the log-sum-exp that fused attention returns, or by writing weights.

Dimension key: B sequences, H key-value heads, G query heads to each, T tokens, D size of a head.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.cache import attention_mass
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.measure.roofline import Work

SHAPE = {"cpu": (3, 3, 64), "cuda": (8, 4, 128)}  # H, G, D: a layer of the default model; one of a model of 8B
TOKENS = {"cpu": (512, 2048), "cuda": (1024, 4096)}
CHUNK = 64  # queries per step


def contests(place: Place) -> Iterator[Contest]:
    n_heads, n_groups, size = (2, 3, 8) if place.quick else SHAPE[place.device.type]
    for n_tokens in (70,) if place.quick else TOKENS[place.device.type]:
        query = place.randn(1, n_heads * n_groups, n_tokens, size)
        yield _contest(f"tokens: {n_tokens}", query, place.randn(1, n_heads, n_tokens, size))


def _contest(name: str, query: Tensor, keys: Tensor) -> Contest:
    _, n_query_heads, n_tokens, size = query.shape
    scaling = size**-0.5
    position = torch.arange(n_tokens, device=query.device)[None]
    slot_position = position.int().expand(keys.shape[:3]).contiguous()
    lse = attention_mass.log_sum_exp(query, keys, position, slot_position, scaling)
    arguments = (query, keys, lse, position, slot_position, scaling)
    # Each query times the keys up to its own. The weights that eager attention writes could be avoided.
    work = Work(n_query_heads * size * n_tokens * (n_tokens + 1), attention_mass.bytes_moved(*arguments))
    expected = attention_mass.reference(*arguments)
    sides = [
        Side("eager", lambda: _eager(query, keys, scaling), work),
        Side("softmax, in chunks", lambda: _in_chunks(query, keys, scaling), work),
    ]
    if query.is_cuda:
        sides.append(Side("kernel, from log-sum-exp", lambda: attention_mass.launch(*arguments), work))
    else:
        sides.append(Side("from log-sum-exp", lambda: attention_mass.reference(*arguments), work))
    return Contest(name, tuple(query.shape), sides, expected)


def _eager(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Compute as transformers does: repeat keys for each query head, add a mask, write all weights."""
    n_groups, n_tokens = query.shape[1] // keys.shape[1], query.shape[2]
    later = torch.full((n_tokens, n_tokens), float("-inf"), dtype=query.dtype, device=query.device).triu(1)
    logits = query @ keys.repeat_interleave(n_groups, 1).transpose(2, 3) * scaling + later
    weights = logits.softmax(dim=-1, dtype=torch.float32)
    return weights.sum(dim=2).unflatten(1, (-1, n_groups)).sum(dim=2)


def _in_chunks(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Compute as the library's cache does: some queries at a time, with the keys up to the last of these queries."""
    mass = torch.zeros(keys.shape[:3], dtype=torch.float32, device=keys.device)
    grouped = query.unflatten(1, (keys.shape[1], -1))  # (B, H, G, T, D)
    for start in range(0, query.shape[2], CHUNK):
        rows = grouped[:, :, :, start : start + CHUNK]
        n, end = rows.shape[3], start + rows.shape[3]
        logits = (rows.flatten(2, 3) * scaling @ keys[:, :, :end].transpose(2, 3)).unflatten(2, (-1, n))
        later = torch.ones(n, end, dtype=torch.bool, device=keys.device).triu(start + 1)
        weights = logits.float().masked_fill_(later, float("-inf")).softmax(dim=-1)
        mass[:, :, :end] += weights.sum(dim=(2, 3))
    return mass
