"""The exercise minitron.norm, "A narrower norm": its cases and its named mistakes.

Dimension key: D channels before, d after.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Norm = tuple[Tensor, Tensor]


def _powers(of_weight: float, of_eps: float) -> Callable[[Tensor, float, Tensor], Norm]:
    """The answer with other powers of D / d; for the epsilon a tensor, which is compared by its own size."""

    def norm(weight: Tensor, eps: float, kept: Tensor) -> Norm:
        ratio = len(weight) / len(kept)
        return weight[kept] * ratio**of_weight, torch.tensor(eps * ratio**of_eps, dtype=torch.float64)

    return norm


_right = _powers(0.5, 1.0)


def _uncut(weight: Tensor, eps: float, kept: Tensor) -> Norm:
    ratio = len(weight) / len(kept)
    return weight * ratio**0.5, torch.tensor(eps * ratio, dtype=torch.float64)


def _first_ones(weight: Tensor, eps: float, kept: Tensor) -> Norm:
    return _right(weight, eps, torch.arange(len(kept)))


def _by(ratio: Callable[[Tensor, Tensor], float | Tensor]) -> Callable[[Tensor, float, Tensor], Norm]:
    """The answer with something else for D / d."""
    return lambda w, e, k: (w[k] * ratio(w, k) ** 0.5, torch.as_tensor(e * ratio(w, k), dtype=torch.float64))


def _by_what_leaves(weight: Tensor, kept: Tensor) -> float:
    """D / (D − d): the channels that leave, counted as those that stay."""
    return len(weight) / max(len(weight) - len(kept), 1)


def _norm_cases(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, narrower: int, eps: float) -> tuple[Tensor, float, Tensor]:
        """Channels that are not the first ones, and never half of all."""
        kept = (torch.randperm(width - 1, generator=generator)[: narrower - 1] + 1).tolist()
        others = sorted(set(range(1, width)) - set(kept))
        return torch.randn(width, generator=generator) + 1, eps, torch.tensor(sorted([*kept, others[-1]]))

    by_hand = (torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), 0.25, torch.tensor([2, 5]))
    return [
        Case("2 of 8 channels stay, by hand", by_hand),
        Case("540 of 576, as in SmolLM2", drawn(576, 540, 1e-5)),
        Case("7 of 30", drawn(30, 7, 1e-6)),
        Case("a large epsilon", drawn(20, 13, 0.5)),
        Case("5 of 18", drawn(18, 5, 1e-3)),
    ]


def _library(weight: Tensor, eps: float, kept: Tensor) -> tuple[Tensor, float]:
    from course_lib.pruning.structured.surgery import narrowed

    of_weight, of_eps = narrowed(len(weight), len(kept))
    return weight[kept] * of_weight, eps * of_eps


NORM = Exercise(
    id="minitron.norm",
    title="A narrower norm",
    difficulty=3,
    minutes=8,
    points=2,
    reference=_right,
    cases=_norm_cases,
    library=_library,
    mistakes=(
        Mistake(
            "upside down",
            "A factor is upside down, or both are. The mean over fewer channels of the same squares is larger, so x is "
            "divided by more: the new weight has to be larger than the old one, and so has the epsilon.",
            _powers(-0.5, -1.0),
            also=(_powers(-0.5, 1.0), _powers(0.5, -1.0), _powers(-0.5, 0.0)),
        ),
        Mistake(
            "no factor",
            "The channels were only cut out. The mean is now over fewer of them, so the norm divides by more than "
            "before.",
            _powers(0.0, 0.0),
        ),
        Mistake(
            "epsilon as before",
            "The weight is right. But the mean of squares grows by D / d, and the epsilon is added to it: unless it "
            "grows as well, quiet tokens come out larger than before.",
            _powers(0.5, 0.0),
        ),
        Mistake(
            "weight as before",
            "The epsilon is right. But the norm divides by more than before, and the weight has to make up for it.",
            _powers(0.0, 1.0),
        ),
        Mistake(
            "no root in the weight",
            "The mean of squares grows by D / d, but the norm divides by its root.",
            _powers(1.0, 1.0),
        ),
        Mistake(
            "neither factor",
            "Neither the weight nor the epsilon is right. The mean of squares grows by D / d, and the epsilon is added "
            "to it, so it grows by as much. The norm divides by the root of the two together, and the weight has to "
            "make up for that root.",
            _powers(1.0, 0.5),
            also=(_powers(1.0, 0.0), _powers(1.0, 2.0), _powers(-1.0, -1.0)),
        ),
        Mistake(
            "epsilon under the root",
            "The epsilon is added to the mean of squares before the root is taken, so it grows as the mean does.",
            _powers(0.5, 0.5),
        ),
        Mistake(
            "another power in the epsilon",
            "The weight is right. The epsilon is added to the mean of squares, so it has to grow by the same factor as "
            "the mean: D / d, neither its square nor one over its root.",
            _powers(0.5, 2.0),
            also=(_powers(0.5, -0.5),),
        ),
        Mistake(
            "weight not cut",
            "The weight still has all channels: only those in `kept` have a place in the smaller model.",
            _uncut,
            also=(lambda w, e, k: (torch.zeros_like(w).index_copy(0, k, _uncut(w, e, k)[0][k]), _uncut(w, e, k)[1]),),
        ),
        Mistake(
            "nothing changed",
            "Weight and epsilon are those of the wide norm. Only the channels in `kept` have a place in the smaller "
            "model, and the mean over fewer channels makes the norm divide by more than before.",
            lambda w, e, k: (w, torch.tensor(e, dtype=torch.float64)),
        ),
        Mistake(
            "the first channels",
            "The first d channels were taken. Those that stay are in `kept`.",
            _first_ones,
        ),
        Mistake(
            "the first channels, no factor",
            "The first d channels were taken as they are. Those that stay are in `kept`; and the mean is over fewer "
            "channels, so the norm divides by more than before.",
            lambda w, e, k: (w[: len(k)], e),
        ),
        Mistake(
            "channels that leave",
            "The factor was made of how many channels leave. The mean is over those that stay.",
            _by(_by_what_leaves),
            also=(_by(lambda w, k: len(w) - len(k)),),
        ),
        Mistake(
            "as much weight as before",
            "The factor was made of the weights. What counts is over how many channels the mean is taken, whatever "
            "their weights.",
            _by(lambda w, k: w.square().sum().item() / w[k].square().sum().item()),
            also=(
                lambda w, e, k: (w[k] * (w.norm() / w[k].norm()), e),
                lambda w, e, k: (w[k] * (w.sum() / w[k].sum()), e),
                lambda w, e, k: (w[k] * (w.square().mean() / w[k].square().mean()).sqrt(), e),
            ),
        ),
        Mistake(
            "factors alone",
            "These are the two factors. Return the new weight and the new epsilon.",
            lambda w, e, k: ((len(w) / len(k)) ** 0.5, len(w) / len(k)),
        ),
        Mistake(
            "one of the two",
            "Two things are asked for: the new weight, and the new epsilon.",
            lambda w, e, k: w[k] * (len(w) / len(k)) ** 0.5,
        ),
    ),
    also_right=(
        Variant(
            "root of a tensor", lambda w, e, k: (w[k] / torch.tensor(len(k) / len(w)).sqrt(), e / (len(k) / len(w)))
        ),
        Variant(
            "a tensor for the epsilon",
            lambda w, e, k: (w[k] * (len(w) / len(k)) ** 0.5, torch.tensor(e * len(w)) / len(k)),
        ),
        Variant(
            "a list",
            lambda w, e, k: [torch.stack([w[i] for i in k]).mul((len(w) / len(k)) ** 0.5), len(w) * e / len(k)],
        ),
    ),
    hints=(
        "Write S for the sum of the squares. The channels that leave are zero, so S is the same before and after; the "
        "mean is S / D before, and S / d after.",
        "Before: x w / √(S/D + ε). After: x w′ / √(S/d + ε′). With which ε′ is what stands under the second root a "
        "multiple of what stands under the first?",
        "With ε′ = ε · D / d it is D / d times as much, and the root of that is what w′ has to make up for.",
    ),
)
