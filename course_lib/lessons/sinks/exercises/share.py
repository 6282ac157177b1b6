"""The exercise sinks.share, "What each token receives": its cases and its named mistakes.

Dimension key: L layers, H heads, T tokens of a text.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "by a visibility matrix",
            lambda w, s: torch.einsum("lhij->lhj", w[:, :, s:].double()) / _seen(w.shape[2], s),
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
        "weights[l, h, i, j] is the weight that query i gives to token j. "
        "The weights that token j receives are column j.",
        "Sum the columns of weights[:, :, start:] over the queries. By how many queries is token j seen, when j lies "
        "before `start`, and when it lies after it?",
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
