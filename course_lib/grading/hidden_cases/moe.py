"""Lesson 06, hidden cases: sure and unsure tokens, experts without work, groups that overflow a little or much.

Dimension key: T tokens, E experts, k of them for each token, D width, F neurons of an expert, G groups of N
tokens.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _gate(generator: torch.Generator) -> list[Case]:
    sure = _randn(generator, 14, 7) * torch.logspace(-1, 1, 14)[:, None]
    many_ties = torch.randint(0, 2, (12, 10), generator=generator).float()
    return [
        Case("all of five experts", (2 * _randn(generator, 9, 5), 5)),
        Case("a single token, two of four experts", (_randn(generator, 1, 4), 2)),
        Case("sure and unsure tokens, four of seven", (sure, 4)),
        Case("many ties, three of ten", (many_ties, 3)),
        Case("far below zero, two of six", (_randn(generator, 11, 6) - 400, 2)),
    ]


def _top1(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_experts: int) -> tuple[Tensor, Tensor]:
        return _randn(generator, n_tokens, n_experts), _randn(generator, n_tokens)

    logits, slope = drawn(10, 4)
    return [
        Case("two experts, eleven tokens", drawn(11, 2)),
        Case("a single token with nine experts", drawn(1, 9)),
        Case("far below zero, and slopes of all sizes", (logits - 250, slope * torch.logspace(-2, 2, 10))),
        Case("more experts than tokens", drawn(5, 16)),
        Case("a loss that always falls with the weight", (drawn(8, 5)[0], -slope.abs()[:8])),
    ]


def _dispatch(generator: torch.Generator) -> list[Case]:
    def layer(n_experts: int, width: int, neurons: int) -> tuple[Tensor, Tensor]:
        return _randn(generator, n_experts, 2 * neurons, width), _randn(generator, n_experts, width, neurons)

    def some(n_tokens: int, k: int, n_experts: int) -> Tensor:
        return torch.stack([torch.randperm(n_experts, generator=generator)[:k] for _ in range(n_tokens)])

    def drawn(chosen: Tensor, width: int, matrices: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        weights = 0.1 + torch.rand(*chosen.shape, generator=generator)
        return _randn(generator, len(chosen), width), chosen, weights, *matrices

    to_one = torch.tensor([[3, 1]]).repeat(10, 1)
    to_one[4:, 1] = 0
    huge = layer(9, 5, 6)
    for matrices in huge:
        matrices[[0, 8]] *= 1e30
    return [
        Case("all tokens to one expert first", drawn(to_one, 6, layer(5, 6, 4))),
        Case("every expert for every token", drawn(some(7, 4, 4), 9, layer(4, 9, 3))),
        Case("a single token, three of eleven", drawn(some(1, 3, 11), 8, layer(11, 8, 5))),
        Case("idle first and last experts, weights of 1e30", drawn(1 + some(13, 2, 7), 5, huge)),
        Case("one expert a token, thirty tokens", drawn(some(30, 1, 5), 4, layer(5, 4, 7))),
    ]


def _capacity(generator: torch.Generator) -> list[Case]:
    def drawn(groups: int, tokens: int, width: int, n_experts: int, factor: float) -> tuple:
        chosen = (torch.rand(groups, tokens, generator=generator) ** 2 * n_experts).long()
        weights = 0.1 + 0.9 * torch.rand(groups, tokens, generator=generator)
        stream, outputs = (_randn(generator, groups, tokens, width) for _ in range(2))
        return stream, outputs, chosen, weights, n_experts, factor

    return [
        Case("one group, three experts, factor 1.5", drawn(1, 25, 6, 3, 1.5)),
        Case("a single place for each expert", drawn(5, 9, 4, 6, 1.0)),
        Case("half of an equal share", drawn(4, 30, 3, 4, 0.5)),
        Case("many groups, two experts, factor 1.25", drawn(9, 15, 2, 2, 1.25)),
    ]


HIDDEN = {"moe.gate": _gate, "moe.top1": _top1, "moe.dispatch": _dispatch, "moe.capacity": _capacity}
