"""Lesson 09, hidden cases: tokens without active neurons, few and many neurons, heads, confident predictors, one block,
positions far into a text, expensive gathering.

Dimension key: T tokens, D width, F neurons, H query heads, d size of a head, K kept neurons, L blocks, N tokens in a
cache.
"""

from functools import partial

import torch
from torch import Tensor

from course_lib.checking.draws import randn, whole
from course_lib.checking.exercise import Case


def _importance(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_neurons: int, width: int, spread: float = 1.0) -> tuple[Tensor, Tensor]:
        scale = (spread * randn(generator, n_neurons)).exp()
        far = (spread * randn(generator, n_neurons)).exp() / scale
        return randn(generator, n_tokens, n_neurons) * scale, randn(generator, width, n_neurons) * far

    hidden, down = drawn(10, 15, 15)
    inactive = drawn(11, 18, 6)
    inactive[0][::3] = 0
    return [
        Case("a single token, 4 of 30 neurons", (*drawn(1, 30, 8), 4)),
        Case("nearly all are kept, as many neurons as channels", (hidden, down, 13)),
        Case("tokens for which all values are zero", (*inactive, 5)),
        Case("values far apart, one channel", (*drawn(14, 21, 1, 2.0), 7)),
        Case("all values below zero", (-hidden.abs(), down, 3)),
    ]


def _heads(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_heads: int, size: int, width: int) -> tuple[Tensor, Tensor, int]:
        scale = randn(generator, n_heads, 1).exp()
        heads = randn(generator, n_tokens, n_heads, size) * scale
        return heads.flatten(1), (randn(generator, width, n_heads, size) * 2 / scale).flatten(1), n_heads

    heads, weight, n_heads = drawn(8, 5, 4, 20)
    heads[:, 8:12] = 0
    return [
        Case("a single token, 9 heads of 8, width 72", drawn(1, 9, 8, 72)),
        Case("a single head", drawn(6, 1, 5, 10)),
        Case("a head that outputs zero", (heads, weight, n_heads)),
        Case("large weights, more heads than entries in each", (heads, 300 * weight, 10)),
        Case("wider than all heads together", drawn(7, 4, 2, 24)),
    ]


def _gathered(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, n_neurons: int, n_kept: int, others: float = 1.0) -> tuple[Tensor, ...]:
        gate, up = (randn(generator, n_neurons, width) * 2 / width**0.5 for _ in range(2))
        order = torch.randperm(n_neurons, generator=generator)
        for matrix in (gate, up):
            matrix[order[n_kept:]] *= others
        return randn(generator, width), gate, up, randn(generator, width, n_neurons), order[:n_kept]

    x, gate, up, down, index = drawn(14, 25, 12)
    return [
        Case("others with weights of 1e30, 9 of 33", drawn(16, 33, 9, others=1e30)),
        Case("two neurons of many", drawn(5, 60, 2)),
        Case("more channels than neurons", drawn(40, 11, 6)),
        Case("gates far open and far closed", (8 * x, gate, up, down, index)),
        Case("the last neuron alone", (x, gate, up, down, torch.tensor([24]))),
    ]


def _loss(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_neurons: int, fires: float) -> tuple[Tensor, Tensor]:
        fire = torch.rand(n_tokens, n_neurons, generator=generator) < fires
        return randn(generator, n_tokens, n_neurons), randn(generator, n_tokens, n_neurons).exp() * fire

    logits, parts = drawn(10, 24, 0.5)
    parts[::2] *= 20
    inactive = drawn(9, 14, 0.3)
    inactive[1][::3] = 0
    return [
        Case("tokens with large and small values, at most 6 of 24", (logits, parts, 6)),
        Case("tokens for which all values are zero", (*inactive, 14)),
        Case("a single token, at most 3 of 17", (*drawn(1, 17, 0.8), 3)),
        Case("a confident predictor", (90 * logits, parts, 5)),
        Case("a predictor that always answers yes", (logits.abs() + 2, parts, 20)),
    ]


def _chance(generator: torch.Generator, chance: Tensor) -> Tensor:
    return torch.rand(chance.shape, generator=generator) < chance


def _recall(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, neurons: int, width: int, found: float = 0.6, lean: float = 0.0) -> tuple[Tensor, ...]:
        """Rising fractions of active neurons; the tokens with the largest values have the fewest."""
        scale = torch.logspace(1, -0.5, tokens)[:, None]
        hidden = scale * (randn(generator, tokens, neurons) + torch.linspace(-2, 1, tokens)[:, None]).relu()
        active = hidden > 0
        down = randn(generator, width, neurons) * (lean * randn(generator, neurons)).exp()
        return hidden, down, active, _chance(generator, torch.where(active, found, 0.3))

    hidden, down, _, keep = drawn(11, 20, 8)
    signed = hidden - 0.4 * randn(generator, 11, 20)
    one = drawn(14, 16, 9)
    lonely = torch.zeros(14, 16, dtype=torch.bool).index_put((torch.arange(14), torch.arange(14)), torch.tensor(True))
    return [
        Case("neurons of very different lengths", drawn(13, 40, 6, lean=1.5)),
        Case("few are found, and tokens with large values have few", drawn(17, 25, 12, found=0.2)),
        Case(
            "both signs, the upper half of each token is active",
            (signed, down, signed > signed.median(1, keepdim=True).values, keep),
        ),
        Case("one active neuron per token, others have values too", (*one[:2], lonely, one[3])),
        Case("a stream of width one", drawn(19, 15, 1)),
    ]


def _lookahead(generator: torch.Generator) -> list[Case]:
    def drawn(blocks: int, tokens: int, width: int, neurons: int) -> tuple[Tensor, Tensor]:
        states = 0.3 * randn(generator, 2 * blocks + 1, tokens, width).cumsum(dim=0)
        return states, torch.rand(blocks, tokens, neurons, generator=generator) < 0.5

    return [
        Case("two blocks, one ahead: a single predictor", (*drawn(2, 7, 5, 6), 1)),
        Case("as far ahead as there are blocks, less one", (*drawn(8, 4, 3, 5), 7)),
        Case("one block, none ahead", (*drawn(1, 6, 4, 7), 0)),
        Case("many blocks, three ahead", (*drawn(20, 3, 4, 4), 3)),
        Case("a single token, two ahead", (*drawn(6, 1, 9, 12), 2)),
    ]


def _missing(generator: torch.Generator) -> list[Case]:
    def drawn(
        position: Tensor, missing: list[int], width: int, size: int, base: float = 10_000.0
    ) -> tuple[Tensor, ...]:
        """Positions as they are given; the tables end a little after the last."""
        tokens, n_positions = len(position), int(position[-1]) + 3
        angle = torch.arange(n_positions)[:, None] / base ** (torch.arange(0, size, 2) / size)
        tables = (table.repeat(1, 2) for table in (angle.cos(), angle.sin()))
        cache = (3 * randn(generator, tokens, size) for _ in range(2))
        matrices = (randn(generator, size, width) / width**0.5 for _ in range(2))
        return *cache, position, torch.tensor(missing), randn(generator, len(missing), width), *matrices, *tables

    def late(n: int, first: int) -> Tensor:
        return first + torch.randint(2, 6, (n,), generator=generator).cumsum(dim=0)

    return [
        Case("a head of two entries, every second token missing", drawn(late(9, 0), [0, 2, 4, 6, 8], 7, 2, 100.0)),
        Case("far into a text, 3 of 11 missing", drawn(late(11, 900), [1, 7, 10], 24, 16)),
        Case("the first and the newest are missing, a stream of two channels", drawn(late(6, 4), [0, 5], 2, 8)),
        Case("no token was evicted: positions are rows", drawn(torch.arange(10), [2, 3, 6, 9], 18, 6, 50.0)),
        Case("a single token, which is missing", drawn(late(1, 10), [0], 12, 10)),
    ]


def _break_even(generator: torch.Generator) -> list[Case]:
    size = partial(whole, generator)

    def drawn(rank: int, density: float, gather: float, prompt: float, n_tokens: int) -> tuple[int | float, ...]:
        width, blocks = size(100, 1000), size(3, 30)
        return width, width * size(2, 8), blocks, rank, size(10**5, 10**7), density, gather, prompt, n_tokens

    return [
        Case("a long prompt and a short answer", drawn(size(20, 60), 0.1, 1.6, 900.0, 12)),
        Case("a short prompt and a long answer", drawn(size(20, 60), 0.15, 1.4, 1.5, 2000)),
        Case("gathering costs three times as much", drawn(size(8, 30), 0.25, 3.0, 40.0, 80)),
        Case("gathering costs nothing", drawn(size(30, 90), 0.3, 1.0, 25.0, 60)),
        Case("predictors that never pay", (80, size(100, 120), size(3, 9), 200, 10**6, 0.2, 2.0, 10.0, 30)),
    ]


HIDDEN = {
    "dejavu.importance": _importance,
    "dejavu.heads": _heads,
    "dejavu.gathered": _gathered,
    "dejavu.loss": _loss,
    "dejavu.recall": _recall,
    "dejavu.lookahead": _lookahead,
    "dejavu.missing": _missing,
    "dejavu.break_even": _break_even,
}
