"""Lesson 10, hidden cases: texts of one token, many short texts, large vocabularies, small and large steps; losses far
apart, windows of two tokens, nearly empty layers, gains that differ.

Dimension key: B texts, T tokens, P vectors of the prompt, D width, V tokens of the vocabulary, N windows.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.draws import randn, whole
from course_lib.checking.exercise import Case
from course_lib.prompts.small_llama import random_weights


def _lengths(generator: torch.Generator, n: int, most: int, least: int = 1) -> Tensor:
    return torch.randint(least, most + 1, (n, 1), generator=generator)


def _before(generator: torch.Generator) -> list[Case]:
    def drawn(n_texts: int, n_tokens: int, n: int, width: int, left: bool) -> tuple[Tensor, Tensor, Tensor]:
        real = torch.arange(n_tokens) < _lengths(generator, n_texts, n_tokens - 1)
        real = real.flip(1) if left else real
        return randn(generator, n, width), randn(generator, n_texts, n_tokens, width), real

    prompt, text, real = drawn(5, 7, 3, 4, left=True)
    real[::2] = torch.tensor([False, False, True, True, True, True, False])
    return [
        Case("texts of very different lengths, padded on the left", drawn(9, 12, 4, 3, left=True)),
        Case("padded on both sides", (prompt, text, real)),
        Case("a single vector of width one", drawn(4, 6, 1, 1, left=True)),
        Case("a single text, padded on the right", drawn(1, 9, 6, 5, left=False)),
        Case("many vectors of large numbers, padded on the left", (300 * randn(generator, 20, 4), text, real)),
    ]


def _labels(generator: torch.Generator) -> list[Case]:
    def drawn(n_texts: int, n_tokens: int, n: int, vocabulary: int, least: int = 1) -> tuple[Tensor, Tensor, int]:
        ids = torch.randint(0, vocabulary, (n_texts, n_tokens), generator=generator)
        return ids, torch.arange(n_tokens) < _lengths(generator, n_texts, n_tokens - 1, least), n

    ids, real, n = drawn(5, 10, 7, 49_152)
    return [
        Case("a vocabulary of 49,152 tokens", (ids, real, n)),
        Case("the same token everywhere", (torch.full_like(ids, 17), real, 4)),
        Case("a single text, one vector", drawn(1, 12, 1, 30, least=5)),
        Case("no prompt, texts of at most 5 tokens", drawn(6, 6, 0, 20)),
        Case("a prompt far longer than the texts", drawn(3, 5, 40, 2)),
    ]


def _frozen(generator: torch.Generator) -> list[Case]:
    def drawn(
        vocabulary: int, n_texts: int, n_tokens: int, n: int, heads: int, rate: int | float = 2.0, **weights: Any
    ) -> tuple[Any, ...]:
        ids = torch.randint(0, vocabulary, (n_texts, n_tokens), generator=generator)
        return random_weights(generator, vocabulary, heads, **weights), randn(generator, n, 2 * heads), ids, rate

    weights, prompt, ids, rate = drawn(12, 2, 9, 4, 3)
    return [
        Case("texts of one token", drawn(8, 3, 1, 3, 3)),
        Case("a single vector, a long text", drawn(15, 1, 25, 1, 2, 4.0)),
        Case("the same token again and again", (weights, prompt, ids * 0 + 5, rate)),
        Case("a large step, a table twice as large", drawn(10, 2, 7, 5, 2, 12.5, size=3.0)),
        Case("more channels than tokens of vocabulary, three blocks", drawn(6, 4, 8, 2, 6, 2.5, n_blocks=3)),
    ]


def _initial(generator: torch.Generator) -> list[Case]:
    def drawn(vocabulary: int, n: int, width: int, size: int | float = 1.0) -> tuple[Any, ...]:
        table = size * randn(generator, vocabulary, width)
        keys = torch.rand(vocabulary, generator=generator)
        return table, keys, n, 0.5 * size * randn(generator, n, width)

    table, keys, n, step = drawn(30, 5, 8)
    return [
        Case("a vocabulary of 3,000 tokens, 10 vectors", drawn(3000, 10, 6)),
        Case("rows a hundredth as long", drawn(80, 12, 7, 0.01)),
        Case("keys that are close to each other", (table, 0.5 + 0.01 * keys, n, step)),
        Case("a step a hundred times as large as a row", (table, keys, n, 100 * step)),
        Case("rows of width two", drawn(40, 9, 2)),
    ]


def _metric(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, n_tokens: int, n_prompt: int, gain: float, least: int) -> tuple[Tensor, Tensor, Tensor]:
        """Windows whose second half has a higher loss than the first."""
        hard = (1 + 3 * torch.rand(n, 1, generator=generator)) * torch.linspace(0.6, 1.8, n_tokens - 1)
        plain = hard * (0.5 + torch.rand(n, n_tokens - 1, generator=generator))
        behind = (
            plain - gain * (0.5 + torch.rand(n, 1, generator=generator)) + 0.3 * randn(generator, *plain.shape)
        ).abs()
        real = torch.arange(n_tokens) < _lengths(generator, n, n_tokens - 1, least)
        first = 8 + randn(generator, n, 1)
        return torch.cat([torch.zeros(n, n_prompt - 1), first, behind], dim=1), plain, real

    return [
        Case("windows from two tokens on", drawn(12, 16, 3, 0.2, 2)),
        Case("a prompt that does harm", drawn(7, 30, 5, -0.4, 12)),
        Case("a prompt that helps much", drawn(9, 25, 8, 0.9, 10)),
        Case("two windows, a hundred vectors", drawn(2, 60, 100, 0.15, 30)),
        Case("thirty windows, two vectors", drawn(30, 12, 2, 0.3, 6)),
    ]


def _bytes(generator: torch.Generator) -> list[Case]:
    between = partial(whole, generator)

    def drawn(n_layers: int, bits: int, group: int, share: float, others: int) -> tuple[Any, ...]:
        layers = []
        for _ in range(n_layers):
            rows, columns = between(30, 150), 2 * between(40, 200) + 1
            layers.append((rows, columns, int(share * rows * columns) + between(1, 20)))
        return tuple(layers), others, between(40, 900), bits, group

    return [
        Case("few non-zero weights, 4 bits, groups of 32", drawn(3, 4, 32, 0.05, between(2000, 9000))),
        Case("others larger than all layers, 2 bits", drawn(2, 2, 48, 0.5, between(10**6, 10**7))),
        Case("groups of seven, 4 bits", drawn(4, 4, 7, 0.45, between(500, 5000))),
        Case("eight bits, three quarters non-zero", drawn(6, 8, 100, 0.75, between(500, 5000))),
        Case("many layers, 4 bits, groups of 128", drawn(20, 4, 128, 0.375, between(5000, 50_000))),
    ]


def _transfer(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, own: float, share: float, dense: float, spread: float = 0.05) -> tuple[Tensor, ...]:
        hard = 2.5 + 0.7 * randn(generator, n)
        plain = hard + 0.6 + 0.3 * torch.rand(n, generator=generator)
        gain = own + spread * randn(generator, n)
        control = dense + 0.03 * randn(generator, n)
        moved = share * gain + 0.6 * spread * randn(generator, n)
        return plain, plain - gain - control, plain - moved - control, hard, hard - control

    return [
        Case("a hundred windows, nine tenths", drawn(100, 0.15, 0.9, 0.12)),
        Case("four windows that differ much", drawn(4, 0.4, 0.5, 0.1, 0.1)),
        Case("a prompt that does not help the dense model", drawn(16, 0.3, 0.65, -0.05)),
        Case("the dense model gains most of it too", drawn(25, 0.12, 0.4, 0.5, 0.03)),
        Case("the transferred prompt does as much harm as the own one helps", drawn(18, 0.25, -1.0, 0.1)),
    ]


HIDDEN = {
    "compress.before": _before,
    "compress.labels": _labels,
    "compress.frozen": _frozen,
    "compress.initial": _initial,
    "compress.metric": _metric,
    "compress.bytes": _bytes,
    "compress.transfer": _transfer,
}
