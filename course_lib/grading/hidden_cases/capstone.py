"""Lesson 12, hidden cases: very long and very short rows, grids of a single weight, few and many windows, equal models,
drafts far from their model, texts that end early, budgets that leave a few bytes.

Dimension key: O outputs, I inputs, N windows, M models, k drafted tokens, V vocabulary, P parts, L levels.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn, whole
from course_lib.checking.exercise import Case
from course_lib.lessons.capstone.exercises.combine import is_clear
from course_lib.lessons.capstone.exercises.ratio import is_clear as is_sure


def _rand(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator)


def _bytes(generator: torch.Generator) -> list[Case]:
    def drawn(rows: tuple[int, int], columns: tuple[int, int], bits: int, group: int) -> tuple[int, int, int, int]:
        return whole(generator, *rows), whole(generator, *columns), bits, group

    return [
        Case("three long rows of 8 bits", drawn((3, 4), (500, 600), 8, 64)),
        Case("many rows of five columns: neither format pays", drawn((150, 203), (5, 6), 4, 2)),
        Case("120 rows of 2 bits", drawn((110, 130), (700, 760), 2, 32)),
        Case("3 bits, whose rows seldom fill whole bytes", drawn((41, 60), (130, 170), 3, 7)),
        Case("4 bits, short rows", drawn((60, 80), (26, 40), 4, 16)),
        Case("a large matrix of 4 bits", drawn((3000, 4096), (1000, 2048), 4, 128)),
    ]


def _combine(generator: torch.Generator) -> list[Case]:
    def drawn(rows: int, columns: int, n_kept: int, bits: int, group: int, size: float = 1.0) -> tuple[Any, ...]:
        while True:
            norm = randn(generator, columns).exp()
            given = size * randn(generator, rows, columns) * norm ** (-0.6), norm, n_kept, bits, group
            if is_clear(*given):
                return given

    return [
        Case("a single row, 2 bits", drawn(1, 60, 25, 2, 20)),
        Case("few are kept in groups of 4", drawn(12, 32, 5, 3, 4)),
        Case("nearly all are kept, 3 bits", drawn(5, 30, 27, 3, 10)),
        Case("large weights, 4 bits", drawn(6, 36, 15, 4, 12, 400.0)),
        Case("many rows, 2 bits, groups of 16", drawn(25, 16, 7, 2, 16)),
    ]


def _ratio(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, factor: float, spread: float, hard: float, more: float) -> tuple[Tensor, Tensor, float]:
        while True:
            dense = 2 + hard * randn(generator, n)
            given = dense + more + spread * randn(generator, n), dense, factor
            if is_sure(*given):
                return given

    return [
        Case("10 windows, to within 4 %", drawn(10, 1.04, 0.1, 0.5, 0.4)),
        Case("windows with very different differences", drawn(9, 1.25, 0.8, 1.0, 0.5)),
        Case("a model with a lower loss than the dense one", drawn(16, 1.02, 0.05, 0.25, -0.2)),
        Case("three windows", drawn(3, 1.08, 0.1, 0.4, 0.3)),
        Case("a hundred windows with a loss increase of six nats", drawn(100, 1.1, 0.5, 1.0, 6.0)),
    ]


def _front(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, n_windows: int, spread: float, costs: int, hard: float = 1.0) -> tuple[Tensor, Tensor]:
        cost = torch.randint(1, costs, (n,), generator=generator).float()
        worse = 0.9 * (1 - cost / costs) + 0.3 * _rand(generator, n)
        swing = spread * (0.2 + 2 * _rand(generator, n, 1)) * randn(generator, n, n_windows)
        return cost, 2.5 + hard * randn(generator, n_windows) + worse[:, None] + swing

    cost, losses = drawn(8, 5, 0.1, 500)
    order = torch.randperm(24, generator=generator)
    triplets = torch.cat([cost, cost, cost + 100])[order], losses.repeat(3, 1)[order]
    noisy = drawn(15, 3, 0.3, 40)
    noisy[0][7] = 0.5  # cheapest, so it is on the front, although its loss is far above the average
    noisy[1][7] += 3
    return [
        Case("30 models, 12 windows that are equally hard", drawn(30, 12, 0.15, 10_000, 0.05)),
        Case("all cost the same", (torch.full((10,), 7.0), _two_best(generator))),
        Case("each model three times", triplets),
        Case("15 noisy models, 3 windows", noisy),
        Case("two models", drawn(2, 6, 0.02, 50)),
    ]


def _two_best(generator: torch.Generator) -> Tensor:
    """Losses (10, 8): two models with the same mean, one of which swings, and eight worse ones, some below average."""
    swing = torch.tensor([1.0, -1.0]).repeat(4)
    levels = torch.cat([torch.zeros(2), 0.2 * torch.arange(1.0, 9.0)])[:, None] + torch.zeros(8)
    levels[1] += 0.1 * swing
    losses = 2.5 + randn(generator, 8) + levels + 0.01 * randn(generator, 10, 8)
    return losses[torch.randperm(10, generator=generator)]


def _speculate(generator: torch.Generator) -> list[Case]:
    def drawn(k: int, n_words: int, falls_at: int | None, apart: float = 0.9) -> tuple[Any, ...]:
        logits = 1.5 * randn(generator, k + 1, n_words)
        p, q = logits.softmax(dim=1), (logits[:k] + apart * randn(generator, k, n_words)).softmax(dim=1)
        drafted = (q - p[:k]).argmax(dim=1)
        ratio = (p[torch.arange(k), drafted] / q[torch.arange(k), drafted]).clamp(max=1)
        luck = ratio * (0.1 + 0.8 * _rand(generator, k))
        if falls_at is not None:
            luck[falls_at] = ratio[falls_at] + (1 - ratio[falls_at]) * 0.6
        return drafted, q, p, torch.cat([luck, _rand(generator, 1)]), n_words + 1

    ends = drawn(7, 14, None)
    return [
        Case("8 tokens, the sixth is rejected", drawn(8, 12, 5)),
        Case("a draft far from its model", drawn(3, 20, 1, 3.0)),
        Case("6 tokens, all accepted", drawn(6, 9, None)),
        Case("the first of seven ends the text", (*ends[:4], int(ends[0][0]))),
        Case("a vocabulary of 500 tokens, the first is rejected", drawn(4, 500, 0)),
    ]


def _gain(generator: torch.Generator) -> list[Case]:
    def drawn(k: int, acceptance: float, share: float, unit: float) -> tuple[float, int, float, float, float]:
        model, further, draft = ((0.5 + _rand(generator, 3)) * torch.tensor([1.0, 0.05, share]) * unit).tolist()
        return acceptance * (0.8 + 0.2 * float(_rand(generator, 1))), k, model, further, draft

    return [
        Case("costs in bytes", drawn(5, 0.8, 0.2, 2e8)),
        Case("costs in seconds", drawn(3, 0.6, 0.4, 0.02)),
        Case("nearly all are accepted", drawn(9, 0.999, 0.1, 10.0)),
        Case("20 drafted, few accepted", drawn(20, 0.3, 0.05, 1.0)),
        Case("a draft as expensive as the model", drawn(2, 0.9, 1.0, 5.0)),
    ]


def _split(generator: torch.Generator) -> list[Case]:
    def drawn(n_parts: int, n_levels: int, share: float, unit: int = 1) -> tuple[Tensor, Tensor, int]:
        scale = (1.1 * randn(generator, n_parts, 1)).exp()
        sizes = unit * ((30 * scale * (0.4 + _rand(generator, n_parts, n_levels))).long() + 5).cumsum(dim=1)
        saved = 0.1 * randn(generator, n_parts, n_levels - 1).exp() * scale**0.5
        losses = torch.cat([saved.flip(1).cumsum(dim=1).flip(1), torch.zeros(n_parts, 1)], dim=1) + 0.05
        least, most = int(sizes[:, 0].sum()), int(sizes[:, -1].sum())
        return sizes, losses, least + int(share * (most - least))

    return [
        Case("12 parts, four tenths", drawn(12, 4, 0.4)),
        Case("two parts of many levels", drawn(2, 14, 0.55)),
        Case("30 parts, a tenth", drawn(30, 3, 0.1)),
        Case("millions of bytes, nearly everything", drawn(6, 5, 0.9, 1_000_003)),
        Case(f"{(n := whole(generator, 5, 9))} parts, a quarter", drawn(n, 6, 0.25)),
    ]


HIDDEN = {
    "capstone.bytes": _bytes,
    "capstone.combine": _combine,
    "capstone.ratio": _ratio,
    "capstone.front": _front,
    "capstone.speculate": _speculate,
    "capstone.gain": _gain,
    "capstone.split": _split,
}
