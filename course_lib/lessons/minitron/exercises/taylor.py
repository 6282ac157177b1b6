"""The exercise minitron.taylor, "The first-order change of the loss": its cases and its named mistakes.

Dimension key: D width, F neurons.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Scores = tuple[Tensor, Tensor]


def _of_product(formula: Callable[[Tensor, Tensor], Tensor], dim: int = 0) -> Callable[[Tensor, Tensor], Scores]:
    """Build the answer with another formula in place of w g, over columns."""
    return lambda w, g: (formula(w, g).sum(dim=dim).abs(), formula(w, g).abs().sum(dim=dim))


def _changes(w: Tensor, g: Tensor) -> Tensor:
    return w * g


_taylor = _of_product(_changes)


def _taylor_cases(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, neurons: int) -> tuple[Tensor, Tensor]:
        """Return neurons whose changes cancel and others whose changes agree; large weights have small gradients."""
        size = torch.logspace(-1, 1, neurons)[torch.randperm(neurons, generator=generator)]
        weight = torch.randn(width, neurons, generator=generator)
        gradient = torch.randn(width, neurons, generator=generator)
        agree = torch.rand(neurons, generator=generator) < 0.5
        gradient = torch.where(agree, gradient.abs() * weight.sign(), gradient)
        return weight * size, gradient / size.sqrt()

    by_hand = (
        torch.tensor([[1.0, 2.0, 0.0, -3.0], [-2.0, 1.0, 4.0, 1.0], [0.5, 3.0, -1.0, 2.0]]),
        torch.tensor([[2.0, 1.0, 5.0, 1.0], [1.0, -2.0, 0.5, -1.0], [-4.0, 1.0, 1.0, -1.0]]),
    )
    turned = tuple(matrix.T.contiguous().T for matrix in drawn(14, 22))
    return [
        Case("4 neurons, width 3, by hand: 2, 3, 1, 6 and 6, 7, 3, 6", by_hand),
        Case("24 neurons, width 17", drawn(17, 24)),
        Case("as many neurons as channels", drawn(12, 12)),
        Case("not contiguous", turned),
        Case("30 neurons, width 9", drawn(9, 30)),
    ]


def _library(weight: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.pruning.methods.fisher import Gradients, row_score

    gradients = Gradients(mean=gradient.T, fisher=gradient.T.square())
    return row_score(weight.T, gradients, "vectorize"), row_score(weight.T, gradients, "param_first")


TAYLOR = Exercise(
    id="minitron.taylor",
    title="The first-order change of the loss",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_taylor,
    cases=_taylor_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "einsum", lambda w, g: (torch.einsum("df,df->f", w, g).abs(), torch.einsum("df,df->f", w.abs(), g.abs()))
        ),
        Variant("diagonal of a product", lambda w, g: ((w.T @ g).diagonal().abs(), (w.T.abs() @ g.abs()).diagonal())),
        Variant("in place", lambda w, g: (w.mul_(g).sum(0).abs(), w.abs_().sum(0))),
        Variant("stacked", lambda w, g: torch.stack(_taylor(w.double(), g.double()))),
    ),
    hints=(
        "Taylor: the loss at w + δ is the loss at w plus the gradient times δ, summed over all weights that change. "
        "What is δ for a weight that becomes zero?",
        "δ = −w, so weight (i, j) contributes −w_ij g_ij, and neuron j the sum of these over i, its column.",
        "Both scores use weight * gradient: one sums first and then takes abs(), the other one does the opposite.",
    ),
)
