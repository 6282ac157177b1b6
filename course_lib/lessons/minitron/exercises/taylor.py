"""The exercise minitron.taylor, "What the loss would lose": its cases and its named mistakes.

Dimension key: D width, F neurons.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Scores = tuple[Tensor, Tensor]


def _of_product(formula: Callable[[Tensor, Tensor], Tensor], dim: int = 0) -> Callable[[Tensor, Tensor], Scores]:
    """The answer with something else than w g, over columns."""
    return lambda w, g: (formula(w, g).sum(dim=dim).abs(), formula(w, g).abs().sum(dim=dim))


def _changes(w: Tensor, g: Tensor) -> Tensor:
    return w * g


_taylor = _of_product(_changes)


def _taylor_cases(generator: torch.Generator) -> list[Case]:
    def drawn(width: int, neurons: int) -> tuple[Tensor, Tensor]:
        """Some neurons whose weights cancel and some whose weights agree, large weights with small gradients."""
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
    title="What the loss would lose",
    difficulty=2,
    minutes=8,
    points=3,
    reference=_taylor,
    cases=_taylor_cases,
    library=_library,
    mistakes=(
        Mistake(
            "over the rows",
            "A row is an output of the layer, to which all neurons contribute. A neuron is a column: sum over dim 0.",
            _of_product(_changes, dim=1),
        ),
        Mistake(
            "in the other order",
            "The two are right, but exchanged. First the change of the loss, in which weights may cancel; then the sum "
            "of sizes, in which they cannot.",
            lambda w, g: _taylor(w, g)[::-1],
        ),
        Mistake(
            "nothing cancels in either",
            "Both are sums of sizes. When the whole column becomes zero, the changes of its weights add up with their "
            "signs: sum first, and take the size of the sum.",
            lambda w, g: ((w * g).abs().sum(dim=0),) * 2,
        ),
        Mistake(
            "cancelling in both",
            "Changes cancel in both. For the second score every weight's change counts by its size.",
            lambda w, g: ((w * g).sum(dim=0).abs(),) * 2,
            also=(lambda w, g: ((w * g).sum(dim=0).abs(), (w * g).sum(dim=0)),),
        ),
        Mistake(
            "sign kept",
            "The first score has a sign. A change for the better is a change too: take the absolute value of the sum.",
            lambda w, g: ((w * g).sum(dim=0), (w * g).abs().sum(dim=0)),
            also=(lambda w, g: (-(w * g).sum(dim=0), (w * g).abs().sum(dim=0)),),
        ),
        Mistake(
            "sums with their sign",
            "Both scores are the plain sum of the changes. The first needs the absolute value of that sum; the second "
            "adds up the absolute values, so that changes cannot cancel.",
            lambda w, g: ((w * g).sum(dim=0), (w * g).sum(dim=0)),
        ),
        Mistake(
            "gradient squared",
            "The gradient stands squared here. The first term of Taylor's formula has the gradient itself, times how "
            "far the weight moves: from w to 0.",
            _of_product(lambda w, g: w * g.square()),
        ),
        Mistake(
            "both squared",
            "The products were squared before they were added up. The first term of Taylor's formula is the gradient "
            "times how far the weight moves, without a square.",
            _of_product(lambda w, g: w.square() * g.square()),
        ),
        Mistake(
            "weight squared",
            "The weight stands squared here. It moves from w to 0, so the first term is the gradient times w.",
            _of_product(lambda w, g: w.square() * g),
        ),
        Mistake(
            "sizes of one of the two",
            "The size was taken of the weights, or of the gradients, before the product. The sign of a weight's change "
            "is that of the product of both.",
            _of_product(lambda w, g: w.abs() * g),
            also=(_of_product(lambda w, g: w * g.abs()),),
        ),
        Mistake(
            "one number for all",
            "All neurons were added up. Each has scores of its own.",
            lambda w, g: ((w * g).sum().abs(), (w * g).abs().sum()),
        ),
        Mistake(
            "weights alone",
            "These are the sizes of the weights. What the loss does depends on its gradient too.",
            _of_product(lambda w, g: w),
            also=(lambda w, g: (w.norm(dim=0), w.norm(dim=0)),),
        ),
        Mistake(
            "gradients alone",
            "The gradient says how steep the loss is, not how far the weight moves. Multiply by the weight.",
            _of_product(lambda w, g: g),
        ),
        Mistake(
            "sum before the product",
            "In one of the scores, or in both, weights and gradients were summed or made into norms before they were "
            "multiplied. Each weight moves along its own gradient: multiply first.",
            lambda w, g: ((w.sum(dim=0) * g.sum(dim=0)).abs(), w.abs().sum(dim=0) * g.abs().sum(dim=0)),
            also=(
                lambda w, g: ((w.sum(dim=0) * g.sum(dim=0)).abs(),) * 2,
                lambda w, g: (w.norm(dim=0) * g.norm(dim=0),) * 2,
                lambda w, g: ((w.sum(dim=0) * g.sum(dim=0)).abs(), (w * g).abs().sum(dim=0)),
                lambda w, g: ((w * g).sum(dim=0).abs(), w.abs().sum(dim=0) * g.abs().sum(dim=0)),
            ),
        ),
        Mistake(
            "root of squares",
            "The first score is right, the second is a norm of the changes: the root of the sum of their squares. It "
            "is the sum of their absolute values.",
            lambda w, g: ((w * g).sum(dim=0).abs(), (w * g).norm(dim=0)),
        ),
        Mistake(
            "sum of squares",
            "The first score is right, the second adds up the squares of the changes. It is the sum of their absolute "
            "values.",
            lambda w, g: ((w * g).sum(dim=0).abs(), (w * g).square().sum(dim=0)),
        ),
        Mistake(
            "a norm for the first score",
            "The second score is right, the first is a norm of the changes. When the whole column becomes zero, the "
            "changes add up with their signs: sum first, then take the absolute value.",
            lambda w, g: ((w * g).norm(dim=0), (w * g).abs().sum(dim=0)),
        ),
        Mistake(
            "norms for both scores",
            "Both scores are norms of the changes. The first is the absolute value of their sum, the second the sum of "
            "their absolute values: neither has squares or a root.",
            lambda w, g: ((w * g).norm(dim=0), (w * g).norm(dim=0)),
        ),
        Mistake(
            "mean instead of sum",
            "All weights of the column move at once, so their changes add up: a sum, not a mean.",
            lambda w, g: ((w * g).mean(dim=0).abs(), (w * g).abs().mean(dim=0)),
            also=(lambda w, g: ((w * g).sum(dim=0).abs(), (w * g).abs().mean(dim=0)),),
        ),
        Mistake(
            "weight by weight",
            "There is still a number for every weight. A neuron leaves with its whole column: sum over it.",
            lambda w, g: ((w * g).abs(),) * 2,
            also=(lambda w, g: (w * g, (w * g).abs()),),
        ),
        Mistake(
            "a second term",
            "Half of a squared term was taken along. To first order the change is the gradient times how far the "
            "weight moves, and nothing else.",
            _of_product(lambda w, g: w * g - w.square() * g.square() / 2),
            also=(_of_product(lambda w, g: w * g + w.square() * g.square() / 2),),
        ),
        Mistake(
            "halved",
            "There is no half before the first term of Taylor's formula; it stands before the second, which is left "
            "out.",
            _of_product(lambda w, g: w * g / 2),
        ),
        Mistake(
            "one score of the two",
            "Two scores are asked for: the size of the sum, and the sum of the sizes.",
            lambda w, g: (w * g).sum(dim=0).abs(),
            also=(lambda w, g: (w * g).abs().sum(dim=0),),
        ),
    ),
    also_right=(
        Variant(
            "einsum", lambda w, g: (torch.einsum("df,df->f", w, g).abs(), torch.einsum("df,df->f", w.abs(), g.abs()))
        ),
        Variant("diagonal of a product", lambda w, g: ((w.T @ g).diagonal().abs(), (w.T.abs() @ g.abs()).diagonal())),
        Variant("in place", lambda w, g: (w.mul_(g).sum(0).abs(), w.abs_().sum(0))),
        Variant("stacked", lambda w, g: torch.stack(_taylor(w.double(), g.double()))),
    ),
    hints=(
        "Taylor: the loss at w + δ is the loss at w plus the gradient times δ, summed over all weights that move. What "
        "is δ for a weight that becomes zero?",
        "δ = −w, so weight (i, j) contributes −w_ij g_ij, and neuron j the sum of these over i, its column.",
        "Both scores are made of weight * gradient: one sums and then takes abs(), the other the other way round.",
    ),
)
