"""Lesson 08, hidden cases: one head or query, fewer tokens than sinks, other slots, large logits.

Dimension key: L layers, H heads, Q queries, N tokens in the cache, T tokens of a text, D size of a head.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn, whole
from course_lib.checking.exercise import Case


def _share(generator: torch.Generator) -> list[Case]:
    def causal(layers: int, heads: int, n: int) -> Tensor:
        raw = torch.rand(layers, heads, n, n, generator=generator).tril() + 0.01 * torch.eye(n)
        raw[..., 0] *= 5
        return raw / raw.sum(-1, keepdim=True)

    return [
        Case("one layer, one head, 30 tokens", (causal(1, 1, 30), 15)),
        Case("5 layers of 2 heads, from query 2 on", (causal(5, 2, 11), 2)),
        Case("as many heads as queries that count", (causal(2, 6, 12), 6)),
    ]


def _evict(generator: torch.Generator) -> list[Case]:
    def drawn(queries: int, n: int, leave: list[int]) -> tuple[Tensor, Tensor]:
        raw, keep = torch.rand(queries, n, generator=generator) + 0.05, torch.ones(n, dtype=torch.bool)
        raw[:, 0] *= 30 * torch.rand(queries, generator=generator)
        keep[leave] = False
        return raw / raw.sum(1, keepdim=True), keep

    return [
        Case("one query, the first two of twenty leave", drawn(1, 20, [0, 1])),
        Case("as many queries as tokens that stay", drawn(7, 10, [0, 4, 9])),
        Case("one of three tokens leaves, 15 queries", drawn(15, 3, [1])),
    ]


def _slots(generator: torch.Generator) -> list[Case]:
    return [
        Case("5000 tokens, 4 sinks, 12 slots", (5000, 4, 12)),
        Case("fewer tokens than sinks", (3, 4, 16)),
        Case("two tokens, one sink, a large cache", (2, 1, whole(generator, 20, 40))),
        Case("room for one token in addition to the sinks", (whole(generator, 20, 40), 5, 6)),
        Case("a drawn text twice as long as the cache", (2 * (n := whole(generator, 9, 20)), 3, n)),
    ]


def _positions(generator: torch.Generator) -> list[Case]:
    def kept(heads: int, n: int, seen: int) -> Tensor:
        return torch.rand(heads, seen, generator=generator).argsort(1)[:, :n]

    return [
        Case("four sinks, then the newest, newest first", (torch.tensor([[2047, 2046, 2045, 2044, 3, 2, 1, 0]]),)),
        Case("2 heads, 20 of 25 tokens", (kept(2, 20, 25),)),
        Case("9 heads, 4 of 8000 tokens", (kept(9, 4, 8000),)),
    ]


def _rotate(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, size: int, base: float) -> tuple[Tensor, Tensor, Tensor]:
        by = torch.randint(2, 60, (n,), generator=generator) * torch.tensor([1, -1]).repeat(n)[:n]
        return randn(generator, n, size), by, base ** (-torch.arange(0, size, 2) / size)

    return [
        Case("two keys of size 64", drawn(2, 64, 100_000.0)),
        Case("20 keys of size 4", drawn(20, 4, 30.0)),
        Case("as many keys as pairs", drawn(6, 12, 500.0)),
    ]


def _cost(generator: torch.Generator) -> list[Case]:
    return [
        Case("few weights, a long window", (50_000, 12, 96, 1600, 1500)),
        Case("two tokens, four layers", (7, 4, 5, 9, 2)),
        Case("fewer tokens than the window", (90_000, 5, 48, whole(generator, 2, 60), 77)),
        Case("as many tokens as the window", (1_000, 3, 32, 41, 41)),
        Case("a drawn model and window", (whole(generator, 10**6, 10**9), 7, whole(generator, 100, 900), 5000, 333)),
    ]


def _softmax(generator: torch.Generator) -> list[Case]:
    """Most of them with logits whose exponentials float32 cannot hold, some with rows and sinks that are far apart."""
    heights = torch.tensor([900.0, -300.0, 0.0, 120.0])[:, None]
    return [
        Case("one head, one query, two tokens", (3 + randn(generator, 1, 1, 2), torch.tensor([4.0]))),
        Case("as many heads as queries as tokens", (randn(generator, 5, 5, 5) - 2, 1.5 * randn(generator, 5) - 2)),
        Case("logits near 500", (500 + 2 * randn(generator, 3, 4, 8), 501 + randn(generator, 3))),
        Case("rows of all heights in each head", (heights + randn(generator, 2, 4, 5), torch.tensor([119.0, -299.0]))),
        Case("the same in one head, sinks near −20", (heights + randn(generator, 1, 4, 7), randn(generator, 1) - 20)),
        Case("logits near 120 with some near 0", (heights[2:] + randn(generator, 6, 2, 9), randn(generator, 6))),
    ]


def _gate(generator: torch.Generator) -> list[Case]:
    def drawn(heads: int, queries: int, size: int, level: float) -> tuple[Tensor, Tensor, Tensor]:
        lse = level + randn(generator, heads, queries)
        return randn(generator, heads, queries, size), lse, level + 0.5 + randn(generator, heads)

    return [
        Case("two heads, nine queries, below zero", drawn(2, 9, 3, -4.0)),
        Case("six heads and queries, near 300", drawn(6, 6, 2, 300.0)),
        Case("three heads and queries, near 110", drawn(3, 3, 5, 110.0)),
    ]


HIDDEN = {
    "sinks.share": _share,
    "sinks.evict": _evict,
    "sinks.slots": _slots,
    "sinks.positions": _positions,
    "sinks.rotate": _rotate,
    "sinks.cost": _cost,
    "sinks.softmax": _softmax,
    "sinks.gate": _gate,
}
