"""The exercise start.sparsity, "The sparsity of a tensor": its cases and its named mistakes."""

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _sparsity_cases(generator: torch.Generator) -> list[Case]:
    """The random tensors have fewer zeros than other entries, so their mean, 1/2 and 1/3 are wrong answers."""
    by_hand = torch.tensor([[0.0, 2.0, 0.0, -1.0], [3.0, 0.0, -0.0, 5.0], [1.0, 1.0, 1.0, 1.0]])
    tiny = torch.tensor([[1e-30, 0.0], [-1e-6, 1.0]])
    three_axes = _with_zeros(torch.ones(2, 3, 5), generator, 11, 14)
    uniform = _with_zeros(1 + torch.rand(7, 11, generator=generator), generator, 20, 32)
    return [
        Case("3 × 4, four zeros, one of them negative", (by_hand,)),
        Case("tiny numbers that are not zero", (tiny,)),
        Case("three axes", (three_axes,)),
        Case("all zeros", (torch.zeros(4, 2),)),
        Case("random, about a third zero", (uniform,)),
    ]


def _with_zeros(tensor: torch.Tensor, generator: torch.Generator, least: int, limit: int) -> torch.Tensor:
    """Set between `least` and `limit` - 1 random entries to zero."""
    order = torch.randperm(tensor.numel(), generator=generator).reshape(tensor.shape)
    return tensor * (order >= whole(generator, least, limit))


def _sparsity_picture(case: Case, got: object, expected: float) -> "matplotlib.figure.Figure":
    from course_lib.lessons.start.plots import zeros_marked

    return zeros_marked(case.arguments[0], got, expected)


SPARSITY = Exercise(
    id="start.sparsity",
    title="The sparsity of a tensor",
    difficulty=1,
    minutes=3,
    points=1,
    reference=lambda tensor: (tensor == 0).double().mean().item(),
    cases=_sparsity_cases,
    picture=_sparsity_picture,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("count of the other entries", lambda tensor: 1 - torch.count_nonzero(tensor).item() / tensor.numel()),
        Variant("a tensor with one entry", lambda tensor: (tensor == 0).float().mean()),
        Variant("a loop", lambda tensor: sum(x == 0 for x in tensor.flatten().tolist()) / tensor.numel()),
    ),
    hints=(
        "If you compare a tensor with 0, you get True or False for every entry.",
        "True counts as 1, so the mean of the comparison is the fraction of zeros. mean() needs a float dtype.",
    ),
)
