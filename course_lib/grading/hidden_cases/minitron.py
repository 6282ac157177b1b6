"""Hidden cases of lesson 05: other groups and channels, tokens with large activations, ties, other temperatures.

Dimension key: H query heads, G key-value heads, S size of a head, D width, F neurons, L blocks, N sequences, T tokens,
V tokens of the vocabulary.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn, whole
from course_lib.checking.exercise import Case


def _some(generator: torch.Generator, n: int, k: int) -> Tensor:
    """Return k of n, ascending."""
    return torch.randperm(n, generator=generator)[:k].sort().values


def _group(generator: torch.Generator) -> list[Case]:
    def block(width: int, n_query: int, n_key_value: int, size: int, neurons: int) -> tuple[Tensor, ...]:
        rows = (n_query * size, n_key_value * size, n_key_value * size)
        attention = [randn(generator, n, width) for n in rows] + [randn(generator, width, rows[0])]
        mlp = [randn(generator, neurons, width), randn(generator, neurons, width), randn(generator, width, neurons)]
        return *attention, *mlp

    return [
        Case("one group of four, one neuron", (*block(20, 8, 4, 3, 15), torch.tensor([2]), torch.tensor([14]), 4)),
        Case("all groups and few neurons kept", (*block(13, 4, 2, 4, 30), torch.arange(2), _some(generator, 30, 4), 2)),
        Case("the last three of five groups", (*block(40, 10, 5, 2, 11), torch.arange(2, 5), torch.arange(3, 9), 5)),
        Case(
            "five query heads to a group", (*block(32, 15, 3, 2, 24), torch.tensor([0, 2]), _some(generator, 24, 12), 3)
        ),
    ]


def _count(generator: torch.Generator) -> list[Case]:
    def drawn(of_a_group: int, groups: int) -> tuple[int, ...]:
        heads = of_a_group * groups
        width, neurons, head_size = heads * whole(generator, 20, 60), whole(generator, 200, 6000), 8 * groups + 16
        return width, whole(generator, 3, 50), neurons, heads, groups, head_size, whole(generator, 400, 60_000)

    return [
        Case("a single block", (36, 1, *drawn(3, 2)[2:])),
        Case("one group for all heads", drawn(6, 1)),
        Case("four query heads to a group", drawn(4, 5)),
        Case("two query heads to a group", drawn(2, 7)),
    ]


def _aggregate(generator: torch.Generator) -> list[Case]:
    loud = randn(generator, 6, 8, 15)
    loud[2] *= 40
    spikes = randn(generator, 5, 12, 10)
    spikes[:, 0] *= 60 * torch.rand(5, 10, generator=generator)
    opposite = randn(generator, 4, 6, 14)
    return [
        Case("one sequence far larger than the others", (loud,)),
        Case("a first token far larger than the others", (spikes,)),
        Case("tokens that cancel in each sequence", (torch.cat([opposite, -opposite], dim=1),)),
        Case("more sequences than tokens", (randn(generator, 20, 3, 9) * torch.rand(20, 1, 9, generator=generator),)),
    ]


def _heads(generator: torch.Generator) -> list[Case]:
    def drawn(blocks: int, n_groups: int, stay: int, of_a_group: int) -> tuple[Tensor, Tensor]:
        loud = 3 * torch.rand(blocks, n_groups, 1, generator=generator)
        scores = (randn(generator, blocks, n_groups, of_a_group) + loud).flatten(1)
        return scores, torch.stack([_some(generator, n_groups, stay) for _ in range(blocks)])

    many_ties = torch.randint(0, 3, (9, 24), generator=generator).float()
    return [
        Case("3 of 7 groups, two heads of four", (*drawn(6, 7, 3, 4), 7, 2)),
        Case("one group, five heads of eleven", (*drawn(4, 1, 1, 11), 1, 5)),
        Case("many ties, three heads of six", (many_ties, drawn(9, 4, 3, 6)[1], 4, 3)),
        Case("one block, one head of five", (*drawn(1, 6, 4, 5), 6, 1)),
    ]


def _influence(generator: torch.Generator) -> list[Case]:
    def stream(blocks: int, tokens: int, width: int) -> Tensor:
        steps = randn(generator, blocks + 1, tokens, width) * torch.rand(blocks + 1, tokens, 1, generator=generator)
        return steps.cumsum(dim=0) + 2 * randn(generator, tokens, width)

    loud, turned = stream(4, 10, 16), stream(3, 8, 12)
    loud[:, 3] *= 300
    turned[1] = -turned[1]
    return [
        Case("a single block", (stream(1, 9, 14),)),
        Case("a token far larger than the others", (loud,)),
        Case("a stream that is reversed twice", (turned,)),
        Case("one token, seven blocks", (stream(7, 1, 20),)),
    ]


def _taylor(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, neurons: int) -> tuple[Tensor, Tensor]:
        return randn(generator, width, neurons), randn(generator, width, neurons)

    weight, gradient = drawn(20, 11)
    half = randn(generator, 6, 13)
    return [
        Case("changes that lower the loss: every product is negative", (weight, -gradient.abs() * weight.sign())),
        Case("small weights with large gradients", (weight * 1e-2, gradient * torch.logspace(-2, 2, 11))),
        Case("many neurons, two channels", drawn(2, 50)),
        Case("gradients that cancel", (torch.cat([half, half]) + 0.1 * drawn(12, 13)[0], torch.cat([half, -half]))),
    ]


def _distil(generator: torch.Generator) -> list[Case]:
    def drawn(*shape: int) -> tuple[Tensor, Tensor]:
        return 2 * randn(generator, *shape), 2 * randn(generator, *shape)

    student, teacher = drawn(2, 6, 30)
    same = drawn(3, 2, 8)[0]
    return [
        Case("a single token, temperature 3", (*drawn(1, 1, 12), 3.0)),
        Case("vocabulary of two, temperature 1.5", (*drawn(4, 3, 2), 1.5)),
        Case("logits far from zero", (student + 500, teacher - 300, 2.5)),
        Case("a student that predicts the same as the teacher", (same, same.clone(), 2.0)),
        Case("more tokens than vocabulary, temperature 0.7", (*drawn(2, 13, 5), 0.7)),
    ]


def _norm(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, narrower: int, eps: float) -> tuple[Tensor, float, Tensor]:
        return randn(generator, width), eps, _some(generator, width - 1, narrower) + 1

    return [
        Case("a third of 96 channels", drawn(96, 32, 1e-5)),
        Case("a single channel of 12", drawn(12, 1, 2e-6)),
        Case("all but one of 40 channels", drawn(40, 39, 1e-2)),
        Case("504 of 576 channels", drawn(576, 504, 1e-6)),
    ]


HIDDEN = {
    "minitron.group": _group,
    "minitron.count": _count,
    "minitron.aggregate": _aggregate,
    "minitron.heads": _heads,
    "minitron.influence": _influence,
    "minitron.taylor": _taylor,
    "minitron.distil": _distil,
    "minitron.norm": _norm,
}
