"""Lesson 09, hidden cases: silent tokens, few and many neurons, many heads, one that stays, predictors that are sure.

Dimension key: T tokens, D width, F neurons, H query heads, d size of a head, K neurons that stay.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _importance(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_neurons: int, width: int, spread: float = 1.0) -> tuple[Tensor, Tensor]:
        loud = (spread * _randn(generator, n_neurons)).exp()
        far = (spread * _randn(generator, n_neurons)).exp() / loud
        return _randn(generator, n_tokens, n_neurons) * loud, _randn(generator, width, n_neurons) * far

    hidden, down = drawn(10, 15, 15)
    silent = drawn(11, 18, 6)
    silent[0][::3] = 0
    return [
        Case("a single token, 4 of 30 neurons", (*drawn(1, 30, 8), 4)),
        Case("nearly all stay, as many neurons as channels", (hidden, down, 13)),
        Case("tokens for which nothing fires", (*silent, 5)),
        Case("values far apart, one channel", (*drawn(14, 21, 1, 2.0), 7)),
        Case("all values below zero", (-hidden.abs(), down, 3)),
    ]


def _heads(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_heads: int, size: int, width: int) -> tuple[Tensor, Tensor, int]:
        loud = _randn(generator, n_heads, 1).exp()
        heads = _randn(generator, n_tokens, n_heads, size) * loud
        return heads.flatten(1), (_randn(generator, width, n_heads, size) * 2 / loud).flatten(1), n_heads

    heads, weight, n_heads = drawn(8, 5, 4, 20)
    heads[:, 8:12] = 0
    return [
        Case("a single token, 9 heads of 8, width 72", drawn(1, 9, 8, 72)),
        Case("a single head", drawn(6, 1, 5, 10)),
        Case("a head that gives nothing", (heads, weight, n_heads)),
        Case("large weights, more heads than entries in each", (heads, 300 * weight, 10)),
        Case("wider than all heads together", drawn(7, 4, 2, 24)),
    ]


def _gathered(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, n_neurons: int, n_kept: int, others: float = 1.0) -> tuple[Tensor, ...]:
        gate, up = (_randn(generator, n_neurons, width) * 2 / width**0.5 for _ in range(2))
        order = torch.randperm(n_neurons, generator=generator)
        for matrix in (gate, up):
            matrix[order[n_kept:]] *= others
        return _randn(generator, width), gate, up, _randn(generator, width, n_neurons), order[:n_kept]

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
        return _randn(generator, n_tokens, n_neurons), _randn(generator, n_tokens, n_neurons).exp() * fire

    logits, parts = drawn(10, 24, 0.5)
    parts[::2] *= 20
    silent = drawn(9, 14, 0.3)
    silent[1][::3] = 0
    return [
        Case("loud and quiet tokens, at most 6 of 24", (logits, parts, 6)),
        Case("tokens for which nothing fires", (*silent, 14)),
        Case("a single token, at most 3 of 17", (*drawn(1, 17, 0.8), 3)),
        Case("a predictor that is sure", (90 * logits, parts, 5)),
        Case("a predictor that always says yes", (logits.abs() + 2, parts, 20)),
    ]


HIDDEN = {
    "dejavu.importance": _importance,
    "dejavu.heads": _heads,
    "dejavu.gathered": _gathered,
    "dejavu.loss": _loss,
}
