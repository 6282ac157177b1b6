"""Lesson 04, hidden cases: one token or output, ties and counts that do not come out even, other n and m.

Dimension key: O outputs of a layer, I its inputs, N tokens, B sequences, T tokens in one.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case


def _whole(generator: torch.Generator, *shape: int) -> Tensor:
    """Few different numbers, so that many are equal; some are negative, some zero."""
    return torch.randint(-2, 3, shape, generator=generator).float()


def _score(generator: torch.Generator) -> list[Case]:
    loudness = torch.logspace(-3, 3, 30)[torch.randperm(30, generator=generator)]
    x = randn(generator, 8, 24)
    return [
        Case("a single token", (randn(generator, 6, 14), randn(generator, 1, 14))),
        Case("a single output", (randn(generator, 1, 25), randn(generator, 10, 25))),
        Case("activations that cancel", (randn(generator, 9, 24), torch.cat([x, -x]))),
        Case("large and small inputs", (randn(generator, 12, 30), randn(generator, 20, 30) * loudness)),
        Case("many more tokens than inputs", (randn(generator, 20, 18), randn(generator, 150, 18))),
    ]


def _accumulate(generator: torch.Generator) -> list[Case]:
    total = torch.rand(9, generator=generator)
    return [
        Case("one feature", (torch.rand(1, generator=generator), randn(generator, 3, 4, 1))),
        Case("one long sequence", (10 * total, randn(generator, 1, 60, 9))),
        Case("many sequences of three tokens", (total, randn(generator, 25, 3, 9))),
    ]


def _keep_rows(generator: torch.Generator) -> list[Case]:
    """Ties, and counts that do not come out even."""
    return [
        Case("many ties, 8.8 of 22 leave: 8", (_whole(generator, 15, 22), 0.4)),
        Case("one output, many ties, 12.6 of 18 leave: 12", (_whole(generator, 1, 18), 0.7)),
        Case("all scores zero, 5.25 of 7 leave: 5", (torch.zeros(6, 7), 0.75)),
        Case("0.9 of 9 leave: none", (torch.rand(7, 9, generator=generator), 0.1)),
    ]


def _column_groups(generator: torch.Generator) -> list[Case]:
    return [
        Case("many ties, 8.8 of 22 leave: 8", (_whole(generator, 22, 15), 0.4)),
        Case("few inputs, many ties, 8.4 of 14 leave: 8", (_whole(generator, 14, 8), 0.6)),
        Case("0.9 of 9 leave: none", (torch.rand(9, 21, generator=generator), 0.1)),
    ]


def _n_of_m(generator: torch.Generator) -> list[Case]:
    """n is not half of m."""
    return [
        Case("3:4, many ties", (_whole(generator, 6, 20), 3, 4)),
        Case("5:16, one output", (randn(generator, 1, 48), 5, 16)),
        Case("1:3 on 12 × 12, an odd number", (randn(generator, 12, 12), 1, 3)),
        Case("7:8, one group a row, many ties", (_whole(generator, 9, 8), 7, 8)),
    ]


def _sequential(generator: torch.Generator) -> list[Case]:
    def layers(hidden: int, width: int, out: int, n_tokens: int, sparsity: float) -> tuple:
        while True:
            first, second = randn(generator, hidden, width), randn(generator, out, hidden)
            inputs = randn(generator, n_tokens, width) * (0.2 + torch.rand(width, generator=generator))
            if _clear(first, second, inputs, sparsity):
                return first, second, inputs, sparsity

    # Half of the neurons are zero after ReLU, and after no other activation.
    before = torch.tensor([-600.0, -0.6, 0.04, 0.7]).repeat_interleave(5)
    just_above = torch.stack([before * (0.9 + 0.2 * torch.rand(20, generator=generator)), torch.full((20,), 0.001)], 1)
    outputs = 0.8 + 0.4 * torch.rand(5, 20, generator=generator)
    loud = 0.9 + 0.2 * torch.rand(16, 2, generator=generator)
    return [
        Case("one output, 40 % leaves", layers(16, 12, 1, 30, 0.4)),
        Case("few inputs, many neurons, 75 % leaves", layers(50, 5, 8, 40, 0.75)),
        Case("a quarter leaves", layers(12, 24, 15, 60, 0.25)),
        Case("neurons far below zero, just below it and just above", (just_above, outputs, loud, 0.5)),
    ]


def _clear(first: Tensor, second: Tensor, inputs: Tensor, sparsity: float) -> bool:
    """Whether no two scores lie so close together that rounding decides which of them leaves."""
    for weight in (first.double(), second.double()):
        score = (weight.abs() * inputs.double().norm(dim=0)).sort(dim=1).values
        n = int(score.shape[1] * sparsity)
        if not (score[:, n] > (1 + 1e-4) * score[:, n - 1]).all():
            return False
        pruned = weight * (weight.abs() * inputs.double().norm(dim=0) >= score[:, [n]])
        inputs = torch.relu(inputs.double() @ pruned.T)
    return True


def _obs_score(generator: torch.Generator) -> list[Case]:
    """Damped, and correlated."""

    def gram(n_tokens: int, n_inputs: int, damping: float) -> Tensor:
        x = randn(generator, n_tokens, n_inputs) + randn(generator, n_tokens, 1)
        return x.T @ x + damping * torch.eye(n_inputs)

    return [
        Case("one output, fewer tokens than inputs", (randn(generator, 1, 10), gram(4, 10, 1.0))),
        Case("25 inputs, strongly damped", (randn(generator, 8, 25), gram(60, 25, 20.0))),
        Case("more outputs than inputs", (randn(generator, 16, 7), gram(30, 7, 3.0))),
        Case("a single input", (randn(generator, 5, 1), gram(9, 1, 0.5))),
    ]


def _interval(generator: torch.Generator) -> list[Case]:
    n = int(torch.randint(500, 5000, (), generator=generator))
    return [
        Case("every answer is right", (40, 40)),
        Case("9 right answers of 20", (9, 20)),
        Case("12,345 right answers of 50,000", (12_345, 50_000)),
        Case("nine in ten of a drawn number", (9 * n, 10 * n)),
    ]


HIDDEN = {
    "wanda.score": _score,
    "wanda.accumulate": _accumulate,
    "wanda.keep_rows": _keep_rows,
    "wanda.column_groups": _column_groups,
    "wanda.n_of_m": _n_of_m,
    "wanda.sequential": _sequential,
    "wanda.obs_score": _obs_score,
    "wanda.interval": _interval,
}
