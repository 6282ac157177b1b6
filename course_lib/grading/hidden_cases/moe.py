"""Lesson 06, hidden cases: sure and unsure gates, idle experts, groups that overflow, ties, targets near and far.

Dimension key: T tokens, E experts, k of them for each token, D width, F neurons of an expert, G groups of N tokens, L
layers, S samples, K experts of a classic mixture, O and V outputs.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case


def _gate(generator: torch.Generator) -> list[Case]:
    sure = randn(generator, 14, 7) * torch.logspace(-1, 1, 14)[:, None]
    many_ties = torch.randint(0, 2, (12, 10), generator=generator).float()
    return [
        Case("all of five experts", (2 * randn(generator, 9, 5), 5)),
        Case("a single token, two of four experts", (randn(generator, 1, 4), 2)),
        Case("sure and unsure tokens, four of seven", (sure, 4)),
        Case("many ties, three of ten", (many_ties, 3)),
        Case("far below zero, two of six", (randn(generator, 11, 6) - 400, 2)),
    ]


def _top1(generator: torch.Generator) -> list[Case]:
    def drawn(n_tokens: int, n_experts: int) -> tuple[Tensor, Tensor]:
        return randn(generator, n_tokens, n_experts), randn(generator, n_tokens)

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
        return randn(generator, n_experts, 2 * neurons, width), randn(generator, n_experts, width, neurons)

    def some(n_tokens: int, k: int, n_experts: int) -> Tensor:
        return torch.stack([torch.randperm(n_experts, generator=generator)[:k] for _ in range(n_tokens)])

    def drawn(chosen: Tensor, width: int, matrices: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        weights = 0.1 + torch.rand(*chosen.shape, generator=generator)
        return randn(generator, len(chosen), width), chosen, weights, *matrices

    to_one = torch.tensor([[3, 1]]).repeat(10, 1)
    to_one[4:, 1] = 0
    huge = layer(9, 5, 6)
    for matrices in huge:
        matrices[[0, 8]] *= 1e30
    return [
        Case("all tokens to one expert first", drawn(to_one, 6, layer(5, 6, 4))),
        Case("every expert for every token, as many tokens", drawn(some(4, 4, 4), 9, layer(4, 9, 3))),
        Case("a single token, three of eleven", drawn(some(1, 3, 11), 8, layer(11, 8, 5))),
        Case("idle first and last experts, weights of 1e30", drawn(1 + some(13, 2, 7), 5, huge)),
        Case("one expert per token, as many neurons as channels", drawn(some(30, 1, 5), 4, layer(5, 4, 4))),
    ]


def _capacity(generator: torch.Generator) -> list[Case]:
    def drawn(groups: int, tokens: int, width: int, n_experts: int, factor: float) -> tuple:
        chosen = (torch.rand(groups, tokens, generator=generator) ** 2 * n_experts).long()
        weights = 0.1 + 0.9 * torch.rand(groups, tokens, generator=generator)
        stream, outputs = (randn(generator, groups, tokens, width) for _ in range(2))
        return stream, outputs, chosen, weights, n_experts, factor

    return [
        Case("one group, three experts, factor 1.5", drawn(1, 25, 6, 3, 1.5)),
        Case("a single place for each expert", drawn(5, 9, 4, 6, 1.0)),
        Case("half of an equal share", drawn(4, 30, 3, 4, 0.5)),
        Case("many groups, two experts, factor 1.25", drawn(9, 15, 2, 2, 1.25)),
    ]


def _balance(generator: torch.Generator) -> list[Case]:
    def drawn(layers: int, tokens: int, experts: int, k: int, lean: float) -> tuple[Tensor, Tensor]:
        logits = randn(generator, layers, tokens, experts) + lean * randn(generator, layers, 1, experts)
        other = logits + 0.3 * randn(generator, layers, tokens, experts)
        return logits, other.topk(k, dim=2).indices

    logits, _ = drawn(4, 10, 6, 2, 1.5)
    far, of_far = drawn(3, 8, 5, 3, 0.5)
    collapsed = torch.randint(0, 5, (4, 1, 1), generator=generator).expand(-1, 10, -1)
    return [
        Case("a layer alone that collapses onto two of 6", (logits[:1], torch.tensor([4, 1]).expand(1, 10, 2), 0.3)),
        Case("each layer sends everything to two neighbours", (logits, torch.cat([collapsed, collapsed + 1], 2), 0.1)),
        Case("more experts than tokens, the best 4", (*drawn(2, 5, 16, 4, 0.5), 0.02)),
        Case("seven layers, the best one of 3", (*drawn(7, 11, 3, 1, 2.0), 2.0)),
        Case("logits far from zero, all alike", (far + 40, of_far, 1.0)),
    ]


def _load(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, experts: int, loud: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
        clean = randn(generator, tokens, experts) + 1.5 * randn(generator, 1, experts)
        noise = loud + randn(generator, tokens, experts)
        return clean, noise, clean + randn(generator, tokens, experts) * softplus(noise)

    clean, noise, noisy = drawn(14, 9)
    return [
        Case("two experts, the better one", (*drawn(10, 2), 1)),
        Case("a single token, the best 4 of 11", (*drawn(1, 11), 4)),
        Case("much noise", (*drawn(18, 6, 3.0), 3)),
        Case("many experts, the best 5 of 24", (*drawn(9, 24), 5)),
        Case("many ties among noisy logits", (clean, noise, noisy.round(), 4)),
    ]


def _jacobs(generator: torch.Generator) -> list[Case]:
    def drawn(samples: int, experts: int, outputs: int, sure: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        prior = (sure * randn(generator, samples, experts)).softmax(dim=1)
        return prior, 1.5 * randn(generator, samples, experts, outputs), randn(generator, samples, outputs)

    prior, outputs, target = drawn(5, 3, 2)
    signs = randn(generator, 5, 1).sign()
    return [
        Case("many experts, many outputs", drawn(6, 12, 9)),
        Case("a single sample", drawn(1, 4, 2)),
        Case("targets on a line, very far out", (prior, outputs, target + 100 * signs * torch.tensor([1.0, 0.5]))),
        Case("a gate that is very sure", drawn(10, 5, 2, 6.0)),
        Case("more samples than anything else", drawn(40, 2, 3)),
    ]


def _estimate(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, experts: int, outputs: int, best: bool | None = None) -> tuple[Tensor, ...]:
        """`best`: whether every token, or none, drew its most likely expert; None for what comes."""
        logits = 1.5 * randn(generator, tokens, experts)
        number = torch.randint(0, experts, (tokens,), generator=generator)
        if best is not None:
            number = logits.argmax(dim=1) if best else logits.topk(2, dim=1).indices[:, 1]
        coin = (torch.arange(tokens) + torch.randint(0, 2, (), generator=generator)) % 2 == 0
        return logits, number, coin, randn(generator, tokens, outputs), 2 * randn(generator, tokens, outputs)

    logits, number, _, outputs, target = drawn(10, 6, 4)
    return [
        Case("all tokens draw their most likely expert", drawn(8, 5, 3, True)),
        Case("no token draws its most likely expert", drawn(9, 7, 2, False)),
        Case("the coin says half for all", (logits, number, torch.ones(10, dtype=torch.bool), outputs, target)),
        Case("many experts, wide outputs", drawn(11, 40, 30)),
        Case("logits far from zero, all alike", (logits - 40, number, torch.arange(10) < 5, outputs, target)),
    ]


HIDDEN = {
    "moe.gate": _gate,
    "moe.top1": _top1,
    "moe.dispatch": _dispatch,
    "moe.capacity": _capacity,
    "moe.balance": _balance,
    "moe.load": _load,
    "moe.jacobs": _jacobs,
    "moe.estimate": _estimate,
}
