"""The exercise moe.load, "A load with a gradient": its cases and its named mistakes.

Dimension key: T tokens, E experts; k of them take each token.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

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
    """Two thresholds from the best k + 1: one for who is in, one for who is out."""
    best, _ = noisy.topk(k + 1)
    inside = noisy > best[:, -1:]
    edge = best[:, -1:] * inside + best[:, -2:-1] * ~inside
    return (0.5 + 0.5 * torch.erf((clean - edge) / softplus(noise) / 2**0.5)).sum(0)


def _by_ranks(noisy: Tensor, k: int) -> Tensor:
    """By where an expert stands in the sorted row: before the kth place it is in."""
    values, order = noisy.sort(dim=1, descending=True, stable=True)
    inside = order.argsort(dim=1) < k
    return torch.where(inside, values[:, k].unsqueeze(1), values[:, k - 1].unsqueeze(1))


def _exchanged(clean: Tensor, noise: Tensor, noisy: Tensor, k: int) -> Tensor:
    """Who is in compared with the last that is in, who is out with the first that is out."""
    ordered = noisy.sort(dim=1, descending=True).values
    inside = noisy >= ordered[:, k - 1].unsqueeze(1)
    edge = torch.where(inside, ordered[:, k - 1].unsqueeze(1), ordered[:, k].unsqueeze(1))
    return _phi((clean - edge) / softplus(noise)).sum(dim=0)


def _load_cases(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, experts: int, loud: float = 0.5) -> tuple[Tensor, Tensor, Tensor]:
        """Logits that lean to some experts, noise of another size for each, and what they came to."""
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
    mistakes=(
        Mistake(
            "own logit among the rivals",
            "The threshold is the k-th highest of all noisy logits, so an expert that is in may be its own rival. Its "
            "noise is drawn again: look for the k-th highest of the others, for an expert that is in the (k + 1)th of "
            "all.",
            _summed(_chances(_all_alike(lambda k: k - 1))),
        ),
        Mistake(
            "k + 1 for all",
            "The (k + 1)th highest of all is the threshold of the experts that are in. One that is out has k better "
            "ones, and must beat the k-th.",
            _summed(_chances(_all_alike(lambda k: k))),
        ),
        Mistake(
            "in and out exchanged",
            "The two thresholds are exchanged. Without itself, an expert that is in leaves the (k + 1)th of all as the "
            "k-th of the others; for one that is out the k-th stays the k-th.",
            _exchanged,
        ),
        Mistake(
            "one place off",
            "Another than the k-th of the others is the threshold. To be among the best k, an expert has to beat all "
            "but k − 1 of the others.",
            _summed(_chances(lambda h, k: _to_beat(h, min(k + 1, h.shape[1] - 1)))),
            also=(
                _summed(_chances(lambda h, k: _to_beat(h, max(k - 1, 1)))),
                _summed(_chances(lambda h, k: _to_beat(h, 1))),
                _summed(_chances(lambda h, k: h.amax(dim=1, keepdim=True))),
            ),
        ),
        Mistake(
            "counted from the lowest",
            "The threshold was looked for from the lowest logit. The best are the highest.",
            _summed(_chances(lambda h, k: -_to_beat(-h, k))),
            also=(_summed(_chances(_all_alike(lambda k: k - 1, largest=False))),),
        ),
        Mistake(
            "no distribution function",
            "The quotient itself was summed. It says by how many deviations an expert is above its threshold; Φ makes "
            "a probability of that.",
            _summed(_chances(cdf=lambda z: z)),
        ),
        Mistake(
            "another function than Φ",
            "This is the logistic function, or erf without its factors. Φ(z) = (1 + erf(z / √2)) / 2, "
            "torch.special.ndtr.",
            _summed(_chances(cdf=torch.sigmoid)),
            also=(
                _summed(_chances(cdf=lambda z: (1 + torch.erf(z)) / 2)),
                _summed(_chances(cdf=lambda z: torch.erf(z / math.sqrt(2.0)))),
                _summed(_chances(cdf=torch.erf)),
                _summed(_chances(cdf=lambda z: torch.sigmoid(1.702 * z))),
            ),
        ),
        Mistake(
            "density instead of distribution",
            "This is the density of the normal distribution. The probability of being below z is its integral, Φ.",
            _summed(_chances(cdf=lambda z: (-z.square() / 2).exp() / math.sqrt(2 * math.pi))),
            also=(_summed(_chances(cdf=lambda z: (-z.square() / 2).exp())),),
        ),
        Mistake(
            "turned round",
            "This is the probability of being left out: the difference has the wrong sign.",
            _summed(_chances(cdf=lambda z: _phi(-z))),
        ),
        Mistake(
            "noisy on both sides",
            "The expert's own noisy logit was compared. Its noise is drawn again, so its clean logit is compared, and "
            "the new noise is what Φ is about.",
            lambda c, n, h, k: _load(h, n, h, k),
        ),
        Mistake(
            "clean on both sides",
            "The others' clean logits were taken. Their noise stays as it was drawn: the threshold is one of H.",
            lambda c, n, h, k: _load(c, n, c, k),
        ),
        Mistake(
            "clean and noisy exchanged",
            "The expert's own noisy logit was compared with the others' clean ones. It is the other way round: the "
            "expert's noise is drawn again, so its clean logit is compared, and the others' noise stays as it was.",
            lambda c, n, h, k: _load(h, n, c, k),
        ),
        Mistake(
            "no softplus",
            "The deviation was taken from the noise's logits in another way, or not at all. softplus(noise) is the "
            "standard deviation, and always above zero.",
            _summed(_chances(deviation=lambda n: n)),
            also=(
                _summed(_chances(deviation=torch.ones_like)),
                _summed(_chances(deviation=torch.exp)),
                _summed(_chances(deviation=torch.abs)),
                _summed(_chances(deviation=torch.sigmoid)),
                _summed(_chances(deviation=lambda n: n.relu() + 1e-6)),
            ),
        ),
        Mistake(
            "square or root of the deviation",
            "softplus(noise) is the standard deviation itself, neither a variance nor the root of one.",
            _summed(_chances(deviation=lambda n: softplus(n).square())),
            also=(_summed(_chances(deviation=lambda n: softplus(n).sqrt())),),
        ),
        Mistake(
            "multiplied by the deviation",
            "The difference is divided by the standard deviation: much noise makes everything uncertain.",
            _summed(_chances(deviation=lambda n: 1 / softplus(n))),
        ),
        Mistake(
            "counted",
            "Tokens were counted. A count does not change with the logits until it jumps: sum the probabilities "
            "instead.",
            lambda c, n, h, k: _in_the_top(h, k).sum(dim=0),
            also=(
                lambda c, n, h, k: _in_the_top(c, k).sum(dim=0),
                lambda c, n, h, k: (c > _to_beat(h, k)).float().sum(dim=0),
            ),
        ),
        Mistake(
            "importance",
            "This is the sum of the experts' weights: their importance, equation 6. An expert may have few tokens of "
            "large weight; the load says how many.",
            _importance,
            also=(
                lambda c, n, h, k: h.softmax(dim=1).sum(dim=0),
                lambda c, n, h, k: c.softmax(dim=1).sum(dim=0),
                lambda c, n, h, k: (h.softmax(dim=1) * _in_the_top(h, k)).sum(dim=0),
            ),
        ),
        Mistake(
            "variation of the loads",
            "This is the CV² that the loss is made of, equation 11. The loads themselves are asked for, one an expert.",
            lambda c, n, h, k: _variation(_load(c, n, h, k)),
        ),
        Mistake(
            "mean over tokens",
            "The mean over tokens was taken. A load is a number of tokens: sum over them.",
            lambda *given: _sent(*given).mean(dim=0),
        ),
        Mistake(
            "fractions of the whole load",
            "The loads were divided by their sum. A load is a number of tokens: sum the probabilities and leave them.",
            lambda *given: _load(*given) / _load(*given).sum(),
        ),
        Mistake(
            "summed over experts",
            "The sum runs over the experts of a token, which comes near k. The load of an expert is a sum over tokens.",
            lambda *given: _sent(*given).sum(dim=1),
        ),
        Mistake(
            "one number for all experts",
            "The sum runs over tokens and experts. Each expert has a load of its own: sum over the tokens, dim=0.",
            lambda *given: _sent(*given).sum(),
        ),
        Mistake(
            "not summed",
            "There is still a probability for each token and expert: sum over the tokens.",
            _sent,
        ),
        Mistake(
            "over the wrong axis",
            "The rivals were looked for among the tokens of an expert. They are the other experts of a token: dim=1.",
            lambda c, n, h, k: _sent(c.T, n.T, h.T, k).sum(dim=1),
            also=(lambda c, n, h, k: _phi((c - h.topk(k, dim=0).values[-1:]) / softplus(n)).sum(dim=0),),
        ),
    ),
    also_right=(
        Variant("expert by expert", _one_by_one),
        Variant("two thresholds", _as_published),
        Variant("float64", lambda c, n, h, k: _load(c.double(), n.double(), h.double(), k)),
        Variant(
            "a sorted list", lambda c, n, h, k: _phi((c - _by_ranks(h, k)) / torch.logaddexp(n, n.new_zeros(()))).sum(0)
        ),
    ),
    hints=(
        "noisy.topk(k + 1, dim=1).values holds both logits that matter: the last that is in, and the first that is "
        "out.",
        "An expert that is in has k − 1 better or equal ones beside it. Once it is taken away, the first that was out "
        "is the k-th of the others. For one that is out nothing changes among the best k.",
        "torch.where(noisy >= last_in, first_out, last_in), with both (T, 1); then torch.special.ndtr of the quotient, "
        "and the sum over tokens.",
    ),
)
