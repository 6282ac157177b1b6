"""The exercise sinks.positions, "Places in the cache": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
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
    title="Places in the cache",
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
    mistakes=(
        Mistake(
            "turned the wrong way",
            "This is position − place. A key stands at `position` and must go to its place: place − position.",
            lambda p: -_positions(p),
        ),
        Mistake(
            "the place itself",
            "These are the places. RoPE has turned the key to `position` already: only the difference is left to turn.",
            lambda p: p.argsort(dim=1).argsort(dim=1),
        ),
        Mistake(
            "the slot's number",
            "A slot's number says nothing of the order of the text: new tokens may fill the slots of old ones. Rank "
            "the positions.",
            lambda p: torch.arange(p.shape[1]) - p,
        ),
        Mistake(
            "sorted once",
            "argsort says which slot comes at place 0, 1, 2 …; asked is the place of each slot, the inverse of that. "
            "Sort once more.",
            lambda p: p.argsort(dim=1) - p,
        ),
        Mistake(
            "counted from 1",
            "The first token in the cache has place 0, as the first token of a text has position 0.",
            lambda p: _positions(p) + 1,
        ),
        Mistake(
            "all turned alike",
            "Every key was turned by what the newest needs. RoPE sees differences: the distance to the sinks stays as "
            "large as before.",
            lambda p: (p.shape[1] - 1 - p.max(dim=1, keepdim=True).values).expand(p.shape),
        ),
        Mistake(
            "ranked over all heads",
            "Heads may keep different tokens: rank each row by itself.",
            lambda p: p.flatten().argsort().argsort().reshape(p.shape) - p,
            also=(lambda p: p.argsort(dim=0).argsort(dim=0) - p,),
        ),
        Mistake(
            "counted from the newest",
            "The oldest token of a row has place 0, the newest the last one. Here they are counted from behind.",
            lambda p: (-p).argsort(dim=1).argsort(dim=1) - p,
        ),
        Mistake(
            "keys brought into order",
            "The rows were sorted, so that the answers stand in other slots than the keys. Each slot keeps its own.",
            lambda p: torch.arange(p.shape[1]) - p.sort(dim=1).values,
        ),
        Mistake(
            "the oldest to place 0",
            "Every key was turned by what the oldest needs. Gaps between the others stay as they are.",
            lambda p: (-p.min(dim=1, keepdim=True).values).expand(p.shape),
        ),
        Mistake(
            "every key to place 0",
            "Every key was turned back to where a text begins. Each goes to its own place: how many tokens of its row "
            "came before it?",
            lambda p: -p,
        ),
    ),
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
