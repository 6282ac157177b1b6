"""The exercise minitron.influence, "How much a block turns the stream": its cases and its named mistakes.

Dimension key: L blocks, T tokens, D width.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


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
    """The answer with another formula for what a block reads and gives, both (T, D)."""
    return lambda states: torch.stack([formula(before, after) for before, after in pairwise(states)])


def _cosine(before: Tensor, after: Tensor) -> Tensor:
    return cosine_similarity(before, after, dim=-1)


def _influence(states: Tensor) -> Tensor:
    return (1 - _cosine(states[:-1], states[1:])).mean(dim=1)


def _influence_cases(generator: torch.Generator) -> list[Case]:
    def stream(blocks: int, tokens: int, width: int, moves: float = 0.8) -> Tensor:
        """A stream to which every block adds something, with a first token that is far larger than the others."""
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
        Case("as many blocks as tokens as channels, and one state more", (stream(6, 6, 6),)),
        Case("8 blocks that turn little", (stream(8, 9, 40, 0.3),)),
        Case("a block that turns most tokens round", (opposed,)),
        Case("not contiguous", (stream(4, 7, 12).permute(2, 0, 1).contiguous().permute(1, 2, 0),)),
    ]


def _library(states: Tensor) -> Tensor:
    from course_lib.pruning.structured.activations import turned

    return turned(states[:-1], states[1:]).mean(dim=1)


INFLUENCE = Exercise(
    id="minitron.influence",
    title="How much a block turns the stream",
    difficulty=1,
    minutes=5,
    points=2,
    reference=_influence,
    cases=_influence_cases,
    agree=_agree_on_influence,
    picture=_bars,
    library=_library,
    mistakes=(
        Mistake(
            "the cosine itself",
            "Here a block that changes nothing scores highest, and would stay longest. One minus the cosine is high "
            "for a block that does much.",
            _by_pair(lambda a, b: _cosine(a, b).mean()),
            also=(lambda s: -_influence(s),),
        ),
        Mistake(
            "minus the cosine",
            "The blocks rank as they should, but the one is missing: a block that changes nothing scores 0, which is "
            "one minus the cosine.",
            _by_pair(lambda a, b: -_cosine(a, b).mean()),
        ),
        Mistake(
            "cosine of means",
            "The tokens were averaged, or added up, before the cosine, and differences between them cancel. First the "
            "cosine of each token, then the mean.",
            _by_pair(lambda a, b: 1 - _cosine(a.mean(dim=0), b.mean(dim=0))),
        ),
        Mistake(
            "over the wrong axis",
            "This cosine runs over the tokens of each channel. A token is a vector of D channels: dim=-1.",
            lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=1)).mean(dim=1),
        ),
        Mistake(
            "over the blocks",
            "This cosine runs over the blocks, axis 0. A token is a vector of D channels, the last axis: dim=-1.",
            lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=0)).mean(dim=1),
            also=(lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=0)).mean(),),
        ),
        Mistake(
            "all tokens as one vector",
            "The whole block was one long vector, in which the first token, far larger than the others, decides alone. "
            "Each token has a cosine of its own.",
            _by_pair(lambda a, b: 1 - _cosine(a.flatten(), b.flatten())),
        ),
        Mistake(
            "tokens weighted by their lengths",
            "The inner products and the products of lengths were summed over the tokens before the division, so a long "
            "token counts more than a short one. Divide for each token, then take the mean.",
            _by_pair(lambda a, b: 1 - (a * b).sum() / (a.norm(dim=1) * b.norm(dim=1)).sum()),
        ),
        Mistake(
            "not divided by the lengths",
            "This is the inner product. The cosine divides it by the lengths of both vectors.",
            _by_pair(lambda a, b: 1 - (a * b).sum(dim=1).mean()),
        ),
        Mistake(
            "divided by one length",
            "The inner product was divided by the length of one of the two, or by a square. The cosine divides by "
            "both: ‖before‖ · ‖after‖.",
            _by_pair(lambda a, b: (1 - (a * b).sum(1) / a.square().sum(1)).mean()),
            also=(
                _by_pair(lambda a, b: (1 - (a * b).sum(1) / b.square().sum(1)).mean()),
                _by_pair(lambda a, b: (1 - (a * b).sum(1) / b.norm(dim=1)).mean()),
            ),
        ),
        Mistake(
            "a distance",
            "This is how far the vectors move, and their lengths count. Only how much they turn is asked: one minus "
            "the cosine.",
            _by_pair(lambda a, b: (b - a).norm(dim=1).mean()),
            also=(
                _by_pair(lambda a, b: ((b - a).norm(dim=1) / a.norm(dim=1)).mean()),
                _by_pair(lambda a, b: (b - a).square().mean()),
            ),
        ),
        Mistake(
            "what the block adds",
            "Compared is what the block reads with what it adds. Compare it with what it gives: the state behind it.",
            _by_pair(lambda a, b: (1 - _cosine(a, b - a)).mean()),
        ),
        Mistake(
            "from the first state on",
            "Every state was compared with the first. What a block reads is what the one before it gave.",
            lambda s: (1 - _cosine(s[:1].expand_as(s[1:]), s[1:])).mean(dim=1),
        ),
        Mistake(
            "an angle",
            "This is the angle. Asked is one minus its cosine.",
            _by_pair(lambda a, b: _cosine(a, b).clamp(-1, 1).acos().mean()),
        ),
        Mistake(
            "a sine",
            "This is the sine of the angle. The exercise asks for one minus its cosine.",
            _by_pair(lambda a, b: (1 - _cosine(a, b).square()).clamp(min=0).sqrt().mean()),
        ),
        Mistake(
            "sign of the cosine lost",
            "The cosine was squared, or its absolute value taken, so a vector that points the other way counts like "
            "one that does not move. The cosine keeps its sign, and one minus it goes up to two.",
            _by_pair(lambda a, b: (1 - _cosine(a, b).abs()).mean()),
            also=(_by_pair(lambda a, b: (1 - _cosine(a, b).square()).mean()),),
        ),
        Mistake(
            "twice or half of it",
            "The scores rank alike, but each is twice, or half, of what is asked: one minus the cosine, and nothing "
            "else.",
            lambda s: 2 * _influence(s),
            also=(lambda s: _influence(s) / 2,),
        ),
        Mistake(
            "tokens added up",
            "A sum grows with the length of the text. Take the mean over tokens.",
            _by_pair(lambda a, b: (1 - _cosine(a, b)).sum()),
            also=(_by_pair(lambda a, b: 1 - _cosine(a, b).sum()),),
        ),
        Mistake(
            "tokens left apart",
            "There is still one number for each token: take their mean.",
            lambda s: 1 - _cosine(s[:-1], s[1:]),
        ),
        Mistake(
            "some tokens",
            "Only one token is counted (the last, or the one that turns most), or the first is left out. The mean is "
            "over all of them.",
            _by_pair(lambda a, b: 1 - _cosine(a[-1], b[-1])),
            also=(
                _by_pair(lambda a, b: (1 - _cosine(a[1:], b[1:])).mean()),
                _by_pair(lambda a, b: (1 - _cosine(a, b)).amax()),
            ),
        ),
        Mistake(
            "one number for all blocks",
            "The mean was taken over blocks as well. Each block has a score of its own.",
            lambda s: _influence(s).mean(),
        ),
        Mistake(
            "mean over the blocks",
            "The mean was taken over the blocks instead of the tokens, so there is a number for each token. Each block "
            "has a score: mean(dim=1).",
            lambda s: (1 - _cosine(s[:-1], s[1:])).mean(dim=0),
        ),
    ),
    also_right=(
        Variant("block by block", _by_pair(lambda a, b: 1 - _cosine(a, b).mean())),
        Variant(
            "by hand", lambda s: 1 - ((s[:-1] * s[1:]).sum(-1) / (s[:-1].norm(dim=-1) * s[1:].norm(dim=-1))).mean(1)
        ),
        Variant("unit vectors", lambda s: 1 - (normalize(s, dim=2)[:-1] * normalize(s, dim=2)[1:]).sum(2).mean(1)),
        Variant("their distance", lambda s: normalize(s.double(), dim=2).diff(dim=0).square().sum(2).mean(1) / 2),
    ),
    hints=(
        "states[:-1] is what the blocks read, states[1:] is what they give.",
        "torch.cosine_similarity(a, b, dim=-1) gives one number for each block and token: (L, T).",
    ),
)
