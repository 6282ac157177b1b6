"""The exercise sinks.evict, "What the others get": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_grids


def _evict(weights: Tensor, keep: Tensor) -> Tensor:
    left = weights[:, keep]
    return left / left.sum(dim=1, keepdim=True)


def _evict_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[0.6, 0.1, 0.1, 0.2], [0.5, 0.25, 0.15, 0.1]])

    def drawn(queries: int, n: int, leave: list[int], pull: float) -> tuple[Tensor, Tensor]:
        logits, keep = randn(generator, queries, n), torch.ones(n, dtype=torch.bool)
        logits[:, 0] += pull
        keep[leave] = False
        return logits.softmax(-1), keep

    return [
        Case("the first of four leaves: 0.25, 0.25, 0.5", (by_hand, torch.tensor([False, True, True, True]))),
        Case("5 queries, 12 tokens, a sink leaves", drawn(5, 12, [0], 5.0)),
        Case("9 queries, 9 tokens, the sink stays, three others leave", drawn(9, 9, [3, 4, 8], 3.0)),
        Case("all but two leave", drawn(4, 8, [0, 1, 3, 4, 6, 7], 1.0)),
    ]


EVICT = Exercise(
    id="sinks.evict",
    title="What the others get",
    difficulty=2,
    minutes=6,
    points=2,
    reference=_evict,
    cases=_evict_cases,
    picture=lambda case, got, expected: compare_grids(got, expected, "token that stays", "query"),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("from the logits", lambda w, k: w.log()[:, k].softmax(dim=1)),
        Variant("masked", lambda w, k: w.log().masked_fill(~k, float("-inf")).softmax(dim=1)[:, k]),
        Variant("by what left", lambda w, k: w[:, k] / (1 - w.double()[:, ~k].sum(dim=1, keepdim=True))),
    ),
    hints=(
        "softmax(x)_j = e^x_j / Σ e^x. Without a token, its term leaves the sum below; nothing changes above.",
        "Take weights[:, keep] and divide each row by its sum.",
    ),
)
