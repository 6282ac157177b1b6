"""The exercise dejavu.lookahead, "One block ahead": its cases and its named mistakes.

Dimension key: L blocks, T tokens, D width, F neurons; n blocks ahead.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, short, tensor_like
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int], Any]


def _agree_on_pairs(got: Any, expected: Any, case: Case) -> str | None:
    """Inputs and labels, each said by its name; where a predictor reads a wrong place, the block is said too."""
    if not isinstance(expected, tuple):
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != 2:
        return f"got {short(got)}, expected 2 values: the inputs and the labels"
    for name, mine, right in zip(("inputs", "labels"), got, expected, strict=True):
        mine, problem = tensor_like(mine, right)
        problem = problem or close(mine, right)
        if problem:
            return f"{name}: {problem}"
    return None


def _places(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    """At which place of the stream each predictor reads, in both answers; what is at no place is left out."""
    from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label

    stream, _, ahead = case.arguments
    read: list[set[tuple[int, int]]] = []
    fig, (panel,) = figure(width=6.0, height=3.0)
    for inputs, colour, marker, size, who in zip(
        (expected[0], got[0]), (COLOURS[4], COLOURS[0]), MARKERS, (11, 5), ("expected", "yours"), strict=False
    ):
        inputs = torch.as_tensor(inputs) if isinstance(inputs, Tensor) else torch.stack(inputs)
        block, place = (inputs[:, None] == stream[None]).flatten(2).all(dim=2).nonzero().T
        read.append(set(zip(block.tolist(), place.tolist(), strict=True)))
        panel.plot(place, block + ahead, linestyle="", marker=marker, markersize=size, color=colour, label=who)
    panel.set_xticks(range(len(stream)), ["embedding", *["attention", "MLP"] * (len(stream) // 2)], rotation=90)
    panel.locator_params(axis="y", integer=True)
    panel.legend(frameon=False, loc="lower right")
    title = f"{len(read[0] & read[1])} of {len(read[0])} predictors read where they should"
    label(panel, title, "state of the stream: after this part", "block that is predicted")
    return fig


def _pairs(stream: Tensor, active: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    n_pairs = active.shape[0] - ahead
    return stream[1::2][:n_pairs], active[ahead:]


def _reading(place: Callable[[int, int], int]) -> Answer:
    """The answer with another place of the stream for the block l that is predicted: (l, n) -> place."""

    def answer(stream: Tensor, active: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
        blocks = range(ahead, len(active))
        return torch.stack([stream[place(block, ahead)] for block in blocks]), active[ahead:]

    return answer


def _labelled(labels: Callable[[Tensor, int], Tensor]) -> Answer:
    """The right inputs with other labels: (active, n) -> labels."""
    return lambda stream, active, ahead: (_pairs(stream, active, ahead)[0], labels(active, ahead))


def _for_every_block(place: Callable[[int, int], int]) -> Answer:
    """A predictor for every block, also for those that have nothing so early."""
    return lambda stream, active, ahead: (
        torch.stack([stream[place(block, ahead)] for block in range(len(active))]),
        active,
    )


def _tokens_later(stream: Tensor, active: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    n_pairs = stream.shape[1] - ahead
    return stream[1::2, :n_pairs], active[:, ahead:]


def _cut_from_behind(stream: Tensor, active: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    return stream[1::2][:-ahead], active[ahead:]


def _lookahead_cases(generator: torch.Generator) -> list[Case]:
    def drawn(blocks: int, tokens: int, width: int, neurons: int) -> tuple[Tensor, Tensor]:
        """A stream to which every half of a block adds something, and a set of neurons for each block."""
        steps = torch.randn(2 * blocks + 1, tokens, width, generator=generator)
        return steps.cumsum(dim=0), torch.rand(blocks, tokens, neurons, generator=generator) < 0.3

    told = torch.arange(7.0)[:, None, None]  # each state is the number of its place
    tells = torch.tensor([[[True, False, False]], [[False, True, False]], [[False, False, True]]])
    turned = [tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0) for tensor in drawn(4, 5, 3, 7)]
    return [
        Case("3 blocks, 1 token, by hand: states 1 and 3 predict blocks 1 and 2", (told, tells, 1)),
        Case("6 blocks, 5 tokens, one ahead", (*drawn(6, 5, 8, 11), 1)),
        Case("7 blocks, 4 tokens, two ahead", (*drawn(7, 4, 6, 9), 2)),
        Case("9 blocks, 3 tokens, four ahead", (*drawn(9, 3, 5, 6), 4)),
        Case("5 blocks, none ahead: each reads what its own MLP reads", (*drawn(5, 6, 4, 8), 0)),
        Case("as many blocks as tokens as channels as neurons", (*drawn(6, 6, 6, 6), 3)),
        Case("not contiguous", (*turned, 1)),
    ]


def _library(stream: Tensor, active: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.dejavu.steps import pairs

    return pairs(stream, active, ahead)


LOOKAHEAD = Exercise(
    id="dejavu.lookahead",
    title="One block ahead",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_pairs,
    cases=_lookahead_cases,
    agree=_agree_on_pairs,
    picture=_places,
    library=_library,
    trivial=(Trivial("always one block ahead", lambda s, a, n: (s[1:-2:2], a[1:])),),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("block by block", _reading(lambda b, n: 2 * (b - n) + 1)),
        Variant("lists of tensors", lambda s, a, n: tuple(list(x) for x in _pairs(s, a, n))),
        Variant("labels as zeros and ones", _labelled(lambda a, n: a[n:].float())),
        Variant("counted in places", lambda s, a, n: (s[1 : 2 * (len(a) - n) : 2], a.narrow(0, n, len(a) - n))),
    ),
    hints=(
        "Number the states of the stream: 0 is the embedding, 1 comes after the attention of block 0. Which state does "
        "the MLP of block l read?",
        "The first block that has a predictor is block n, and its predictor reads what the MLP of block 0 reads. What "
        "does that of the last block, L − 1, read?",
        "stream[1::2] holds what each block's MLP reads, (L, T, D). Row i of the result pairs block i's with block "
        "i + n's neurons.",
    ),
)
