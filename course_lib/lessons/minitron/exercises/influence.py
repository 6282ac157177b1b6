"""The exercise minitron.influence, "Block influence": its cases and its named mistakes.

Dimension key: L blocks, T tokens, D width.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


def _agree_on_influence(got: Any, expected: Tensor, case: Case) -> str | None:
    """Up to rounding. One minus a cosine near one is as exact as the cosine: float32 leaves about 1e-6 of it."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    near = torch.isclose(got.double(), expected.double(), rtol=1e-4, atol=3e-6, equal_nan=True)
    return None if near.all() else close(torch.where(near, expected.double(), got.double()), expected)


def _bars(case: Case, got: Any, expected: Tensor) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    names = tuple(str(block) for block in range(len(expected)))
    fig = compare_bars(torch.as_tensor(got), expected, names, "influence")
    fig.axes[0].set_xlabel("block")
    return fig


def _by_pair(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Build the answer with another formula for the input and output of a block, both (T, D)."""
    return lambda states: torch.stack([formula(before, after) for before, after in pairwise(states)])


def _cosine(before: Tensor, after: Tensor) -> Tensor:
    return cosine_similarity(before, after, dim=-1)


def _influence(states: Tensor) -> Tensor:
    return (1 - _cosine(states[:-1], states[1:])).mean(dim=1)


def _influence_cases(generator: torch.Generator) -> list[Case]:
    def stream(blocks: int, tokens: int, width: int, moves: float = 0.8) -> Tensor:
        """Return a stream to which every block adds something, with a first token far larger than the others."""
        size = torch.rand(tokens, 1, generator=generator) + 0.5
        size[0] = 25
        state = torch.randn(tokens, width, generator=generator)
        states = [state]
        for _ in range(blocks):
            part = moves * torch.rand(tokens, 1, generator=generator)
            state = state + part * torch.randn(tokens, width, generator=generator)
            states.append(state * (0.5 + torch.rand((), generator=generator)))
        return torch.stack(states) * size

    by_hand = torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[8.0, 6.0], [0.0, 2.0]], [[4.0, 3.0], [0.0, -5.0]]])
    opposed = stream(3, 6, 10)
    opposed[2] = 0.1 * opposed[2] - opposed[1]
    return [
        Case("2 blocks, 2 tokens, width 2, by hand: 0.52 and 1", (by_hand,)),
        Case("5 blocks, 13 tokens of which the first is large", (stream(5, 13, 24),)),
        Case("as many blocks as tokens as channels, and one more state", (stream(6, 6, 6),)),
        Case("8 blocks that change little", (stream(8, 9, 40, 0.3),)),
        Case("a block that reverses most tokens", (opposed,)),
        Case("not contiguous", (stream(4, 7, 12).permute(2, 0, 1).contiguous().permute(1, 2, 0),)),
    ]


def _library(states: Tensor) -> Tensor:
    from course_lib.pruning.structured.activations import turned

    return turned(states[:-1], states[1:]).mean(dim=1)


INFLUENCE = Exercise(
    id="minitron.influence",
    title="Block influence",
    difficulty=1,
    minutes=5,
    points=2,
    reference=_influence,
    cases=_influence_cases,
    agree=_agree_on_influence,
    picture=_bars,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("block by block", _by_pair(lambda a, b: 1 - _cosine(a, b).mean())),
        Variant(
            "by hand", lambda s: 1 - ((s[:-1] * s[1:]).sum(-1) / (s[:-1].norm(dim=-1) * s[1:].norm(dim=-1))).mean(1)
        ),
        Variant("unit vectors", lambda s: 1 - (normalize(s, dim=2)[:-1] * normalize(s, dim=2)[1:]).sum(2).mean(1)),
        Variant("their distance", lambda s: normalize(s.double(), dim=2).diff(dim=0).square().sum(2).mean(1) / 2),
    ),
    hints=(
        "states[:-1] are the inputs of the blocks, states[1:] are their outputs.",
        "torch.cosine_similarity(a, b, dim=-1) returns one number per block and token: (L, T).",
    ),
)
