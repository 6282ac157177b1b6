"""The exercise moe.load, "A load with a gradient": its cases and its named mistakes.

Dimension key: T tokens, E experts; k of them take each token.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Chances = Callable[[Tensor, Tensor, Tensor, int], Tensor]
ToBeat = Callable[[Tensor, int], Tensor]


def _bars(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    fig = compare_bars(torch.as_tensor(got), expected, tuple(map(str, range(len(expected)))), "load [tokens]")
    fig.axes[0].set_xlabel("expert")
    return fig


def _phi(z: Tensor) -> Tensor:
    """The distribution function of the standard normal."""
    return torch.erfc(-z / math.sqrt(2.0)) / 2


def _to_beat(noisy: Tensor, k: int) -> Tensor:
    """The kth highest of the others, (T, E): once for each expert, without that expert."""
    n_experts = noisy.shape[1]
    others = ~torch.eye(n_experts, dtype=torch.bool)
    rows = noisy[:, None].expand(-1, n_experts, -1)[:, others].unflatten(1, (n_experts, n_experts - 1))
    return rows.sort(dim=2, descending=True).values[:, :, k - 1]


def _all_alike(which: Callable[[int], int], largest: bool = True) -> ToBeat:
    """The same logit for all experts: the one at a place in the order of all."""
    return lambda noisy, k: noisy.sort(dim=1, descending=largest).values[:, which(k)][:, None]


def _chances(to_beat: ToBeat = _to_beat, deviation: Callable[[Tensor], Tensor] = softplus, cdf=_phi) -> Chances:
    """P(x, i) with another threshold, another deviation or another function of the quotient."""
    return lambda clean, noise, noisy, k: cdf((clean - to_beat(noisy, k)) / deviation(noise))


_sent = _chances()


def _summed(chances: Chances) -> Chances:
    return lambda *given: chances(*given).sum(dim=0)


_load = _summed(_sent)


def _in_the_top(noisy: Tensor, k: int) -> Tensor:
    return torch.zeros_like(noisy).scatter(1, noisy.topk(k, dim=1).indices, 1.0)


def _importance(clean: Tensor, noise: Tensor, noisy: Tensor, k: int) -> Tensor:
    """Σ G(x): the weights that the experts get."""
    return noisy.masked_fill(_in_the_top(noisy, k) == 0, -torch.inf).softmax(dim=1).sum(dim=0)


def _variation(values: Tensor) -> Tensor:
    return values.var(correction=0) / values.mean().square()


def _one_by_one(clean: Tensor, noise: Tensor, noisy: Tensor, k: int) -> Tensor:
    """Expert by expert, in which its own logit is made the lowest."""
    normal = torch.distributions.Normal(0.0, 1.0)
    load = []
    for i in range(clean.shape[1]):
        others = noisy.clone()
        others[:, i] = -torch.inf
        edge = others.topk(k, dim=1).values[:, -1]
        load.append(normal.cdf((clean[:, i] - edge) / softplus(noise[:, i])).sum())
    return torch.stack(load)


def _as_published(clean: Tensor, noise: Tensor, noisy: Tensor, k: int) -> Tensor:
    """Two thresholds from the best k + 1: one for chosen experts, one for the others."""
    best, _ = noisy.topk(k + 1)
    inside = noisy > best[:, -1:]
    edge = best[:, -1:] * inside + best[:, -2:-1] * ~inside
    return (0.5 + 0.5 * torch.erf((clean - edge) / softplus(noise) / 2**0.5)).sum(0)


def _by_ranks(noisy: Tensor, k: int) -> Tensor:
    """By the position of an expert in the sorted row: before the kth position it is chosen."""
    values, order = noisy.sort(dim=1, descending=True, stable=True)
    inside = order.argsort(dim=1) < k
    return torch.where(inside, values[:, k].unsqueeze(1), values[:, k - 1].unsqueeze(1))


def _exchanged(clean: Tensor, noise: Tensor, noisy: Tensor, k: int) -> Tensor:
    """Chosen experts compared with the last chosen one, the others with the first of the others."""
    ordered = noisy.sort(dim=1, descending=True).values
    inside = noisy >= ordered[:, k - 1].unsqueeze(1)
    edge = torch.where(inside, ordered[:, k - 1].unsqueeze(1), ordered[:, k].unsqueeze(1))
    return _phi((clean - edge) / softplus(noise)).sum(dim=0)


def _load_cases(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, experts: int, loud: float = 0.5) -> tuple[Tensor, Tensor, Tensor]:
        """Logits that prefer some experts, noise of a different size for each, and the noisy logits."""
        lean = torch.randn(1, experts, generator=generator)
        clean = torch.randn(tokens, experts, generator=generator) + lean
        noise = loud + torch.randn(tokens, experts, generator=generator)
        z = torch.randn(tokens, experts, generator=generator)
        return clean, noise, clean + z * softplus(noise)

    one = math.log(math.e - 1)  # of which softplus is 1
    by_hand = torch.tensor([[0.0, 1.0, 3.0]]), torch.full((1, 3), one), torch.tensor([[1.0, 2.0, 0.0]])
    coarse = tuple((2 * logits).round() / 2 for logits in drawn(9, 6))
    turned = tuple(tensor.T.contiguous().T for tensor in drawn(15, 8))
    return [
        Case("1 token, 3 experts, k = 1, by hand: Φ(−2), Φ(0) and Φ(1)", (*by_hand, 1)),
        Case("20 tokens, 7 experts, the best 2", (*drawn(20, 7), 2)),
        Case("as many tokens as experts, the best 3 of 6", (*drawn(6, 6), 3)),
        Case("all experts but one, of 5", (*drawn(12, 5), 4)),
        Case("logits that are equal, or zero", (*coarse, 2)),
        Case("little noise", (*drawn(16, 4, -2.0), 2)),
        Case("not contiguous", (*turned, 3)),
    ]


def _library(clean: Tensor, noise: Tensor, noisy: Tensor, k: int) -> Tensor:
    from course_lib.moe.losses import sent_probability

    return sent_probability(clean, noisy, softplus(noise), k).sum(dim=0)


LOAD = Exercise(
    id="moe.load",
    title="A load with a gradient",
    difficulty=4,
    minutes=12,
    points=3,
    reference=_load,
    cases=_load_cases,
    picture=_bars,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("expert by expert", _one_by_one),
        Variant("two thresholds", _as_published),
        Variant("float64", lambda c, n, h, k: _load(c.double(), n.double(), h.double(), k)),
        Variant(
            "a sorted list", lambda c, n, h, k: _phi((c - _by_ranks(h, k)) / torch.logaddexp(n, n.new_zeros(()))).sum(0)
        ),
    ),
    hints=(
        "noisy.topk(k + 1, dim=1).values holds both logits that matter: the last that is chosen, and the first that "
        "is not.",
        "With a chosen expert, k − 1 others are chosen. Without it, the first that was not chosen is the k-th of the "
        "others. For an expert that is not chosen, nothing changes among the best k.",
        "torch.where(noisy >= last_in, first_out, last_in), with both (T, 1); then torch.special.ndtr of the quotient, "
        "and the sum over tokens.",
    ),
)
