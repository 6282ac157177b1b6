"""The exercise sinks.positions, "Positions in the cache": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_grids


def _positions(position: Tensor) -> Tensor:
    return position.argsort(dim=1).argsort(dim=1) - position


def _kept(generator: torch.Generator, heads: int, n: int, seen: int) -> Tensor:
    """What each head has kept of a text, in no order."""
    return torch.stack([torch.randperm(seen, generator=generator)[:n] for _ in range(heads)])


def _library(position: Tensor) -> Tensor:
    from course_lib.kv.rotation import way_to_place

    return way_to_place(position)


POSITIONS = Exercise(
    id="sinks.positions",
    title="Positions in the cache",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_positions,
    picture=lambda case, got, expected: compare_grids(got, expected, "slot", "head"),
    library=_library,
    cases=lambda generator: [
        Case("one head kept 0, 7, 8, 9, in order: 0, −6, −6, −6", (torch.tensor([[0, 7, 8, 9]]),)),
        Case("the same tokens in other slots", (torch.tensor([[8, 0, 9, 7]]),)),
        Case("3 heads that kept different tokens", (_kept(generator, 3, 7, 40),)),
        Case("as many heads as slots", (_kept(generator, 5, 5, 30),)),
        Case("one head, 12 of 1000 tokens", (_kept(generator, 1, 12, 1000),)),
    ],
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("count who came before", lambda p: (p[:, None, :] < p[:, :, None]).sum(dim=2) - p),
        Variant(
            "binary search", lambda p: torch.searchsorted(p.sort(dim=1).values, p.contiguous()) - p.to(torch.float64)
        ),
        Variant("lists", lambda p: [[sorted(row).index(x) - x for x in row] for row in p.tolist()]),
    ),
    hints=(
        "The place of a token is the number of tokens in its row that came before it.",
        "position.argsort(dim=1).argsort(dim=1) ranks each row. Then: from where to where is a key turned?",
    ),
)
