"""The exercise sinks.share, "The share of the first token": its cases and its named mistakes.

Dimension key: L layers, H heads, T tokens of a text.
"""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_grids
from course_lib.lessons.sinks.exercises.common import randn


def _causal(generator: torch.Generator, layers: int, heads: int, n: int, pull: float) -> Tensor:
    """Softmax rows of queries that see what came before, the first token favoured by `pull`."""
    logits = 1.5 * randn(generator, layers, heads, n, n)
    logits[..., 0] += pull * torch.rand(layers, heads, 1, generator=generator)
    return logits.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)


def _share(weights: Tensor, start: int) -> Tensor:
    return weights[:, :, start:, 0].mean(dim=2)


def _share_cases(generator: torch.Generator) -> list[Case]:
    # from query 1 on: (0.75 + 0.6) / 2 and (0.25 + 0.1) / 2
    first = [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.6, 0.3, 0.1]]
    second = [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.1, 0.1, 0.8]]
    return [
        Case("one layer, two heads, three tokens: 0.675 and 0.175", (torch.tensor([[first, second]]), 1)),
        Case("2 layers, 3 heads, 9 tokens, from query 4 on", (_causal(generator, 2, 3, 9, 3.0), 4)),
        Case("as many heads as layers, a strong sink", (_causal(generator, 4, 4, 20, 8.0), 10)),
        Case("attention that prefers nothing", (_causal(generator, 3, 2, 14, 0.0), 5)),
    ]


def _library(weights: Tensor, start: int) -> Tensor:
    from course_lib.attention.windowed import first_share

    return first_share(weights, start)


SHARE = Exercise(
    id="sinks.share",
    title="The share of the first token",
    difficulty=1,
    minutes=5,
    points=1,
    reference=_share,
    cases=_share_cases,
    picture=lambda case, got, expected: compare_grids(got, expected, "head", "layer"),
    library=_library,
    mistakes=(
        Mistake(
            "every query counted",
            "The first query sees one token only, itself, with weight 1, and the next ones few. Begin at `start`.",
            lambda w, s: w[:, :, :, 0].mean(dim=2),
        ),
        Mistake(
            "what the first token reads",
            "This is row 0: what the first query reads of others, which is nothing. What it receives is column 0.",
            lambda w, s: w[:, :, 0, s:].mean(dim=2),
        ),
        Mistake(
            "a sum instead of a mean",
            "A sum grows with the length of the text. A share is a mean over the queries.",
            lambda w, s: w[:, :, s:, 0].sum(dim=2),
        ),
        Mistake(
            "averaged over the heads",
            "The mean ran over the heads, and the queries are still there. Heads differ: keep them apart.",
            lambda w, s: w[:, :, s:, 0].mean(dim=1),
        ),
        Mistake(
            "one number a layer",
            "The mean ran over heads and queries. Heads differ: keep them apart.",
            lambda w, s: w[:, :, s:, 0].mean(dim=(1, 2)),
        ),
        Mistake(
            "one query too late",
            "Query `start` itself counts too.",
            lambda w, s: w[:, :, s + 1 :, 0].mean(dim=2),
        ),
        Mistake(
            "the newest token",
            "Index −1 is the last token of the text. The sink is the first one.",
            lambda w, s: w[:, :, s:, -1].mean(dim=2),
        ),
        Mistake(
            "its share of the column",
            "The mean was taken over all tokens as well, and every row sums to 1: this is 1/T whatever the model does.",
            lambda w, s: w[:, :, s:].mean(dim=(2, 3)),
        ),
        Mistake(
            "one query too early",
            "Queries count from `start` on, not from the one before it.",
            lambda w, s: w[:, :, s - 1 :, 0].mean(dim=2),
        ),
        Mistake(
            "divided by all queries",
            "The sum over the queries from `start` on was divided by the number of all. Divide by those that count.",
            lambda w, s: w[:, :, s:, 0].sum(dim=2) / w.shape[2],
        ),
        Mistake(
            "the queries before `start`",
            "These are the first queries, which see few tokens. The others count, from `start` on.",
            lambda w, s: w[:, :, :s, 0].mean(dim=2),
        ),
        Mistake(
            "one query for all",
            "One query was taken, the largest or the middle one. What is asked is the mean.",
            lambda w, s: w[:, :, s:, 0].amax(dim=2),
            also=(lambda w, s: w[:, :, s:, 0].median(dim=2).values,),
        ),
        Mistake(
            "not averaged",
            "Each query still has a number of its own: take the mean over the last axis.",
            lambda w, s: w[:, :, s:, 0],
        ),
    ),
    also_right=(
        Variant("einsum, in float64", lambda w, s: torch.einsum("lhq->lh", w[:, :, s:, 0].double()) / (w.shape[2] - s)),
        Variant("head by head", lambda w, s: torch.stack([torch.stack([h[s:, 0].mean() for h in x]) for x in w])),
        Variant("as lists", lambda w, s: [[sum(h[s:, 0].tolist()) / (len(h) - s) for h in x] for x in w]),
    ),
    hints=(
        "weights[l, h, i, j] is what query i reads of token j. What token 0 receives is a column.",
        "Take weights[:, :, start:, 0], shape (L, H, queries), and the mean over its last axis.",
    ),
)
