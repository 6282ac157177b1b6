"""The exercise sinks.share, "What each token receives": its cases and its named mistakes.

Dimension key: L layers, H heads, T tokens of a text.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_grids


def _causal(generator: torch.Generator, layers: int, heads: int, n: int, pull: float) -> Tensor:
    """Softmax rows of queries that see what came before, the first token favoured by `pull`."""
    logits = 1.5 * randn(generator, layers, heads, n, n)
    logits[..., 0] += pull * torch.rand(layers, heads, 1, generator=generator)
    return logits.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)


def _share(weights: Tensor, start: int) -> Tensor:
    n_tokens = weights.shape[2]
    return weights[:, :, start:].sum(dim=2) / (n_tokens - torch.arange(n_tokens).clamp(min=start))


def _share_cases(generator: torch.Generator) -> list[Case]:
    # from query 1 on token 0 is seen twice, token 1 twice, token 2 once: (0.75 + 0.6) / 2, (0.25 + 0.3) / 2, 0.1
    first = [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.6, 0.3, 0.1]]
    second = [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.1, 0.1, 0.8]]
    by_hand = "two heads, three tokens: 0.675 0.275 0.1, and 0.175 0.425 0.8"
    # token 1 is seen by three queries, two of which give it nothing; token 0 gets nothing from the last
    nothing = [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]
    return [
        Case(by_hand, (torch.tensor([[first, second]]), 1)),
        Case("a weight of 0 counts where a query can see the token", (torch.tensor([[nothing]]), 1)),
        Case("2 layers, 3 heads, 9 tokens, from query 4 on", (_causal(generator, 2, 3, 9, 3.0), 4)),
        Case("as many heads as layers, a strong sink", (_causal(generator, 4, 4, 20, 8.0), 10)),
        Case("attention that prefers nothing", (_causal(generator, 3, 2, 14, 0.0), 5)),
    ]


def _library(weights: Tensor, start: int) -> Tensor:
    from course_lib.attention.windowed import received_share

    return received_share(weights, start)


SHARE = Exercise(
    id="sinks.share",
    title="What each token receives",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_share,
    cases=_share_cases,
    picture=lambda case, got, expected: compare_grids(torch.as_tensor(got)[0], expected[0], "token, layer 0", "head"),
    library=_library,
    mistakes=(
        Mistake(
            "divided by the same number for all",
            "A token behind `start` is seen by fewer queries than the first one. Divided by the number of all queries, "
            "it looks as if nobody wanted it. Divide each sum by the number of queries that see that token.",
            lambda w, s: w[:, :, s:].mean(dim=2),
        ),
        Mistake(
            "every query counted",
            "The first query sees one token only, itself, with weight 1, and the next ones few. Begin at `start`.",
            lambda w, s: _share(w, 0),
            also=(lambda w, s: w.mean(dim=2),),
        ),
        Mistake(
            "what a token reads",
            "The mean ran along the rows, over what a query reads. What a token receives stands in its column.",
            lambda w, s: w[:, :, s:].mean(dim=3),
            also=(lambda w, s: w.mean(dim=3),),
        ),
        Mistake(
            "a sum instead of a mean",
            "A sum grows with the number of queries, and early tokens have more of them. Divide it.",
            lambda w, s: w[:, :, s:].sum(dim=2),
            also=(lambda w, s: w.sum(dim=2),),
        ),
        Mistake(
            "averaged over the heads",
            "Heads, or layers too, were averaged. They differ, so keep them apart: the mean runs over the queries.",
            lambda w, s: _share(w, s).mean(dim=1),
            also=(lambda w, s: w[:, :, s:].mean(dim=1), lambda w, s: _share(w, s).mean(dim=(0, 1))),
        ),
        Mistake(
            "one query too late",
            "Query `start` itself counts too.",
            lambda w, s: _share(w, s + 1),
        ),
        Mistake(
            "one query too early",
            "Queries count from `start` on, not from the one before it.",
            lambda w, s: _share(w, s - 1),
        ),
        Mistake(
            "the first token alone",
            "Asked is what every token receives, (L, H, T): whether the first one gets the most is to be seen.",
            lambda w, s: w[:, :, s:, 0].mean(dim=2),
        ),
        Mistake(
            "a token does not see itself",
            "A query sees its own token: token j is seen by the queries j, j + 1, … and there are T − j of them.",
            lambda w, s: w[:, :, s:].sum(dim=2) / (w.shape[2] - 1 - torch.arange(w.shape[2]).clamp(min=s)).clamp(min=1),
        ),
        Mistake(
            "queries before `start` among those who see it",
            "Of the queries from `start` on a token before it is seen by all, T − start; T − j would count those that "
            "were left out.",
            lambda w, s: w[:, :, s:].sum(dim=2) / (w.shape[2] - torch.arange(w.shape[2])),
        ),
        Mistake(
            "the queries before `start`",
            "These are the first queries, which see few tokens. The others count, from `start` on.",
            lambda w, s: w[:, :, :s].mean(dim=2),
        ),
        Mistake(
            "one query for all",
            "One query was taken, the one that looks most. What is asked is the mean.",
            lambda w, s: w[:, :, s:].amax(dim=2),
        ),
        Mistake(
            "zeros not counted",
            "Only queries that give the token a weight above 0 were counted. A query that can see a token and gives it "
            "a weight of 0 counts as well, with 0.",
            lambda w, s: w[:, :, s:].sum(dim=2) / (w[:, :, s:] > 0).sum(dim=2).clamp(min=1),
            also=(lambda w, s: w[:, :, s:].sum(dim=2) / (w[:, :, s:] > 0).sum(dim=2),),
        ),
        Mistake(
            "shares of shares",
            "The means were divided by their sum. Each is a share already, of what the queries that see it give away.",
            lambda w, s: _share(w, s) / _share(w, s).sum(dim=2, keepdim=True),
        ),
    ),
    also_right=(
        Variant(
            "by who sees whom", lambda w, s: torch.einsum("lhij->lhj", w[:, :, s:].double()) / _seen(w.shape[2], s)
        ),
        Variant("zeros left out", lambda w, s: _without_zeros(w, s)),
        Variant(
            "as lists",
            lambda w, s: [
                [[sum(h[max(s, j) :, j].tolist()) / (len(h) - max(s, j)) for j in range(len(h))] for h in x] for x in w
            ],
        ),
    ),
    hints=(
        "weights[l, h, i, j] is what query i reads of token j. What token j receives is column j.",
        "Sum the columns of weights[:, :, start:] over the queries. By how many queries is token j seen, when j lies "
        "before `start`, and when it lies behind it?",
        "By T − max(j, start). A row of T such numbers divides all heads and layers at once.",
    ),
)


def _seen(n_tokens: int, start: int) -> Tensor:
    """How many of the queries see each token."""
    return torch.ones(n_tokens, n_tokens).tril()[start:].sum(dim=0)


def _without_zeros(weights: Tensor, start: int) -> Tensor:
    """NaN where a query cannot look, and the mean of the rest."""
    hidden = torch.ones(weights.shape[2:], dtype=torch.bool).triu(1)
    return weights.masked_fill(hidden, float("nan"))[:, :, start:].nanmean(dim=2)
