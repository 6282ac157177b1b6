"""The exercise minitron.aggregate, "One score from many tokens": its cases and its named mistakes.

Dimension key: N windows, T tokens in each, F neurons.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _agree_up_to_a_factor(got: Any, expected: Tensor, case: Case) -> str | None:
    """Accept scores up to one common factor: the ranking is the same, within a layer and in sums over norms."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    got, expected = got.double(), expected.double()
    factor = expected.sum() / got.sum()
    if not (got.isfinite().all() and factor.isfinite() and factor > 0):
        return close(got, expected) or "the scores are not above zero"
    difference = close(got * factor, expected)
    return f"scaled to the same sum, {difference}" if difference else None


def _first_neurons(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    n = min(12, len(expected))
    got, expected = (torch.as_tensor(x).double() for x in (got, expected))
    fig = compare_bars(got[:n], got.sum() / expected.sum() * expected[:n], tuple(map(str, range(n))), "score")
    fig.axes[0].set_xlabel("neuron; expected scores, scaled to the sum of yours")
    return fig


def _aggregate_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, tokens: int, neurons: int) -> Tensor:
        """Return windows, tokens and neurons of different sizes, with signs."""
        loud = [0.1 + 2 * torch.rand(shape, generator=generator) ** 2 for shape in ((n, 1, 1), (n, tokens, 1))]
        of_neurons = 0.2 + torch.rand(neurons, generator=generator)
        return torch.randn(n, tokens, neurons, generator=generator) * loud[0] * loud[1] * of_neurons

    by_hand = torch.tensor([[[4.0, -5.0, 0.0], [-2.0, 5.0, -1.0]], [[8.0, 12.0, 2.0], [0.0, -12.0, 0.0]]])
    by_hand = torch.cat([by_hand, torch.tensor([[[3.0], [3.0]], [[-4.0], [-4.0]]])], dim=2)
    return [
        Case("2 windows of 2 tokens, 4 neurons, by hand", (by_hand,)),
        Case("5 windows of 11 tokens, 37 neurons", (drawn(5, 11, 37),)),
        Case("as many windows as tokens as neurons", (drawn(6, 6, 6),)),
        Case(
            "not contiguous: neurons first in memory", (drawn(4, 9, 12).permute(2, 0, 1).contiguous().permute(1, 2, 0),)
        ),
        Case("8 windows of 3 tokens", (drawn(8, 3, 5),)),
        Case("one token in each window", (drawn(7, 1, 9),)),
    ]


def _library(activations: Tensor) -> Tensor:
    from course_lib.pruning.structured.activations import Norms

    norms = Norms()
    norms.add(activations.abs())
    return norms.of("l2", "mean")


AGGREGATE = Exercise(
    id="minitron.aggregate",
    title="One score from many tokens",
    difficulty=1,
    minutes=5,
    points=2,
    reference=lambda x: x.abs().mean(dim=1).norm(dim=0),
    cases=_aggregate_cases,
    agree=_agree_up_to_a_factor,
    picture=_first_neurons,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("sum over the tokens", lambda x: x.abs().sum(dim=1).square().sum(dim=0).sqrt()),
        Variant("root mean square over windows", lambda x: x.abs().mean(1).pow(2).mean(0).sqrt()),
        Variant("float64", lambda x: x.double().abs().mean(dim=-2).norm(dim=0)),
        Variant("in place", lambda x: x.abs_().mean(dim=1).square_().sum(dim=0).sqrt_()),
        Variant("a loop over neurons", lambda x: [x[..., j].abs().mean(1).norm() for j in range(x.shape[-1])]),
    ),
    hints=(
        "Aggregate over two of the three axes, one after the other. Which comes first, and what comes before the mean?",
        "x.abs().mean(dim=1) is (N, F). Aggregate over one more axis.",
    ),
)
