"""The exercise minitron.norm, "An RMSNorm with fewer channels": its cases and its named mistakes.

Dimension key: D channels before, d after.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Norm = tuple[Tensor, Tensor]


def _powers(of_weight: float, of_eps: float) -> Callable[[Tensor, float, Tensor], Norm]:
    """Build the answer with other powers of D / d; the epsilon is a tensor, which is compared relative to its size."""

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
    """Build the answer with something else in place of D / d."""
    return lambda w, e, k: (w[k] * ratio(w, k) ** 0.5, torch.as_tensor(e * ratio(w, k), dtype=torch.float64))


def _by_what_leaves(weight: Tensor, kept: Tensor) -> float:
    """D / (D − d): the pruned channels in place of the kept ones."""
    return len(weight) / max(len(weight) - len(kept), 1)


def _norm_cases(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, narrower: int, eps: float) -> tuple[Tensor, float, Tensor]:
        """Return channels that are not the first ones, and never half of all."""
        kept = (torch.randperm(width - 1, generator=generator)[: narrower - 1] + 1).tolist()
        others = sorted(set(range(1, width)) - set(kept))
        return torch.randn(width, generator=generator) + 1, eps, torch.tensor(sorted([*kept, others[-1]]))

    by_hand = (torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), 0.25, torch.tensor([2, 5]))
    return [
        Case("2 of 8 channels, by hand", by_hand),
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
    title="An RMSNorm with fewer channels",
    difficulty=3,
    minutes=8,
    points=2,
    reference=_right,
    cases=_norm_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
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
        "Write S for the sum of the squares. The removed channels are zero, so S is the same before and after; the "
        "mean is S / D before, and S / d after.",
        "Before: x w / √(S/D + ε). After: x w′ / √(S/d + ε′). For which ε′ is the term under the second root a "
        "multiple of the term under the first one?",
        "With ε′ = ε · D / d it is D / d times as large, and w′ has to cancel the root of this factor.",
    ),
)
