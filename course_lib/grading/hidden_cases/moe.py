"""Lesson 06, hidden cases: layers and experts in other numbers, collapsed routers, ties, targets near and far.

Dimension key: L layers, T tokens, E experts, S samples, K experts of a classic mixture, O and V outputs.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from course_lib.checking.exercise import Case


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _balance(generator: torch.Generator) -> list[Case]:
    def drawn(layers: int, tokens: int, experts: int, k: int, lean: float) -> tuple[Tensor, Tensor]:
        logits = _randn(generator, layers, tokens, experts) + lean * _randn(generator, layers, 1, experts)
        other = logits + 0.3 * _randn(generator, layers, tokens, experts)
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
        clean = _randn(generator, tokens, experts) + 1.5 * _randn(generator, 1, experts)
        noise = loud + _randn(generator, tokens, experts)
        return clean, noise, clean + _randn(generator, tokens, experts) * softplus(noise)

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
        prior = (sure * _randn(generator, samples, experts)).softmax(dim=1)
        return prior, 1.5 * _randn(generator, samples, experts, outputs), _randn(generator, samples, outputs)

    prior, outputs, target = drawn(5, 3, 2)
    signs = _randn(generator, 5, 1).sign()
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
        logits = 1.5 * _randn(generator, tokens, experts)
        number = torch.randint(0, experts, (tokens,), generator=generator)
        if best is not None:
            number = logits.argmax(dim=1) if best else logits.topk(2, dim=1).indices[:, 1]
        coin = (torch.arange(tokens) + torch.randint(0, 2, (), generator=generator)) % 2 == 0
        return logits, number, coin, _randn(generator, tokens, outputs), 2 * _randn(generator, tokens, outputs)

    logits, number, _, outputs, target = drawn(10, 6, 4)
    return [
        Case("all tokens draw their most likely expert", drawn(8, 5, 3, True)),
        Case("no token draws its most likely expert", drawn(9, 7, 2, False)),
        Case("the coin says half for all", (logits, number, torch.ones(10, dtype=torch.bool), outputs, target)),
        Case("many experts, wide outputs", drawn(11, 40, 30)),
        Case("logits far from zero, all alike", (logits - 40, number, torch.arange(10) < 5, outputs, target)),
    ]


HIDDEN = {
    "moe.balance": _balance,
    "moe.load": _load,
    "moe.jacobs": _jacobs,
    "moe.estimate": _estimate,
}
