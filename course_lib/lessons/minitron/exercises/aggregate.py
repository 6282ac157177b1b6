"""The exercise minitron.aggregate, "One score from many tokens": its cases and its named mistakes.

Dimension key: N sequences, T tokens in each, F neurons.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _agree_up_to_a_factor(got: Any, expected: Tensor, case: Case) -> str | None:
    """Scores that are all larger by one and the same factor rank alike, within a layer and between sums of norms."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    got, expected = got.double(), expected.double()
    factor = expected.sum() / got.sum()
    if not (got.isfinite().all() and factor.isfinite() and factor > 0):
        return close(got, expected) or "the scores are not above zero"
    difference = close(got * factor, expected)
    return f"brought to the same sum, {difference}" if difference else None


def _first_neurons(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    n = min(12, len(expected))
    got, expected = (torch.as_tensor(x).double() for x in (got, expected))
    fig = compare_bars(got[:n], got.sum() / expected.sum() * expected[:n], tuple(map(str, range(n))), "score")
    fig.axes[0].set_xlabel("neuron; expected scores brought to the sum of yours")
    return fig


def _aggregate_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n: int, tokens: int, neurons: int) -> Tensor:
        """Loud and quiet sequences, tokens and neurons, with signs."""
        loud = [0.1 + 2 * torch.rand(shape, generator=generator) ** 2 for shape in ((n, 1, 1), (n, tokens, 1))]
        of_neurons = 0.2 + torch.rand(neurons, generator=generator)
        return torch.randn(n, tokens, neurons, generator=generator) * loud[0] * loud[1] * of_neurons

    by_hand = torch.tensor([[[4.0, -5.0, 0.0], [-2.0, 5.0, -1.0]], [[8.0, 12.0, 2.0], [0.0, -12.0, 0.0]]])
    by_hand = torch.cat([by_hand, torch.tensor([[[3.0], [3.0]], [[-4.0], [-4.0]]])], dim=2)
    return [
        Case("2 sequences of 2 tokens, 4 neurons, by hand", (by_hand,)),
        Case("5 sequences of 11 tokens, 37 neurons", (drawn(5, 11, 37),)),
        Case("as many sequences as tokens as neurons", (drawn(6, 6, 6),)),
        Case(
            "not contiguous: neurons first in memory", (drawn(4, 9, 12).permute(2, 0, 1).contiguous().permute(1, 2, 0),)
        ),
        Case("8 sequences of 3 tokens", (drawn(8, 3, 5),)),
        Case("one token in each sequence", (drawn(7, 1, 9),)),
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
    mistakes=(
        Mistake(
            "axes exchanged",
            "Here the mean is over sequences and the norm over tokens, as it would be right for Megatron's layout "
            "(tokens, sequences, neurons). These activations are (sequences, tokens, neurons): the mean is over dim 1.",
            lambda x: x.abs().mean(dim=0).norm(dim=0),
        ),
        Mistake(
            "signed mean",
            "Positive and negative activations cancel in this mean. What counts is how large they are: |x| first.",
            lambda x: x.mean(dim=1).norm(dim=0),
        ),
        Mistake(
            "signed mean, axes exchanged",
            "Two things are wrong. The mean is over sequences and the norm over tokens; it is the other way round. And "
            "positive and negative activations cancel in this mean: |x| first.",
            lambda x: x.mean(dim=0).norm(dim=0),
        ),
        Mistake(
            "one norm over both",
            "This is the norm over all tokens of all sequences, or its root mean square. The text asks for the mean "
            "within a sequence, and the norm over sequences only.",
            lambda x: x.norm(dim=(0, 1)),
        ),
        Mistake(
            "mean over both",
            "This is the mean of |x|, or its sum, over all tokens of all sequences. Over sequences the text asks for "
            "the L2 norm: square, add up, root.",
            lambda x: x.abs().mean(dim=(0, 1)),
        ),
        Mistake(
            "signed mean over both",
            "This is the mean of x over all tokens of all sequences. Positive and negative activations cancel in it: "
            "|x| first. And over sequences the text asks for the L2 norm.",
            lambda x: x.mean(dim=(0, 1)),
            also=(lambda x: x.mean(dim=(0, 1)).abs(),),
        ),
        Mistake(
            "the two exchanged",
            "Here the L2 norm is over the tokens and the mean over sequences. It is the other way round.",
            lambda x: x.norm(dim=1).mean(dim=0),
        ),
        Mistake(
            "norm before the mean",
            "Here the norm over sequences is taken at each place of a sequence, and the mean over places comes last. "
            "First the mean within each sequence, then the norm over sequences.",
            lambda x: x.norm(dim=0).mean(dim=0),
        ),
        Mistake(
            "root forgotten",
            "These are squares of the norm. Within a layer they rank alike, but a width channel's score is a sum over "
            "many norms, in which squares weigh otherwise: take the root.",
            lambda x: x.abs().mean(dim=1).square().sum(dim=0),
        ),
        Mistake(
            "squares averaged",
            "Within a sequence squares were averaged. The text asks for the mean of |x|; squares come with the norm "
            "over sequences.",
            lambda x: x.square().mean(dim=1).norm(dim=0),
        ),
        Mistake(
            "mean square of all",
            "This is the mean square, or the sum of squares, over all tokens of all sequences. The text asks for the "
            "mean of |x| within a sequence, and for squares only in the L2 norm over sequences.",
            lambda x: x.square().mean(dim=(0, 1)),
        ),
        Mistake(
            "over the neurons",
            "The last axis holds the neurons. Each keeps a score of its own: mean and norm are over the other two axes."
            "",
            lambda x: x.abs().mean(dim=2).norm(dim=0),
            also=(
                lambda x: x.abs().mean(dim=2).norm(dim=1),
                lambda x: x.abs().mean(dim=1).norm(dim=-1),
                lambda x: x.norm(dim=2).mean(dim=0),
            ),
        ),
        Mistake(
            "one number for all",
            "All of it became one number. Each neuron has a score of its own.",
            lambda x: x.abs().mean(dim=1).norm(),
            also=(lambda x: x.abs().mean(dim=1).norm().expand(x.shape[-1]), lambda x: x.norm().expand(x.shape[-1])),
        ),
        Mistake(
            "sequences left apart",
            "There is still one row for each sequence: the norm over them is missing.",
            lambda x: x.abs().mean(dim=1),
        ),
        Mistake(
            "largest or median instead of mean",
            "Within a sequence one token decides, the loudest or the middle one. The text asks for the mean.",
            lambda x: x.abs().amax(dim=1).norm(dim=0),
            also=(lambda x: x.abs().median(dim=1).values.norm(dim=0),),
        ),
        Mistake(
            "largest sequence",
            "Only the loudest sequence is counted. The L2 norm takes all of them.",
            lambda x: x.abs().mean(dim=1).amax(dim=0),
        ),
        Mistake(
            "largest activation",
            "Only the largest activation of all tokens is counted. The text asks for a mean over the tokens of each "
            "sequence, and then for the L2 norm over sequences.",
            lambda x: x.abs().amax(dim=(0, 1)),
        ),
        Mistake(
            "one sequence or token",
            "Only one sequence, or one token of each, is counted. All of them are.",
            lambda x: x[0].abs().mean(dim=0),
            also=(
                lambda x: x[-1].abs().mean(dim=0),
                lambda x: x[:, -1].abs().norm(dim=0),
            ),
        ),
        Mistake(
            "spread instead of size",
            "A standard deviation takes the mean away, and a neuron that always gives the same is large all the same.",
            lambda x: x.std(dim=1, correction=0).norm(dim=0),
            also=(
                lambda x: x.abs().mean(dim=1).std(dim=0),
                lambda x: x.std(dim=(0, 1)),
            ),
        ),
        Mistake(
            "below zero",
            "The scores are turned round: a large activation scores low here. High scores stay.",
            lambda x: -x.abs().mean(dim=1).norm(dim=0),
        ),
        Mistake(
            "negative ones cut off",
            "Negative activations were taken for zero. Their size counts like that of positive ones.",
            lambda x: x.clamp(min=0).mean(dim=1).norm(dim=0),
        ),
    ),
    also_right=(
        Variant("sum over the tokens", lambda x: x.abs().sum(dim=1).square().sum(dim=0).sqrt()),
        Variant("root mean square over sequences", lambda x: x.abs().mean(1).pow(2).mean(0).sqrt()),
        Variant("float64", lambda x: x.double().abs().mean(dim=-2).norm(dim=0)),
        Variant("in place", lambda x: x.abs_().mean(dim=1).square_().sum(dim=0).sqrt_()),
        Variant("a loop over neurons", lambda x: [x[..., j].abs().mean(1).norm() for j in range(x.shape[-1])]),
    ),
    hints=(
        "Two of the three axes go, one after the other. Which is the first, and what happens before the mean?",
        "x.abs().mean(dim=1) is (N, F). One axis is left to go.",
    ),
)
