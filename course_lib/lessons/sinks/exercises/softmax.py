"""The exercise sinks.softmax, "A softmax with a sink": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.common.masks import compare_grids


def _softmax(logits: Tensor, sink: Tensor) -> Tensor:
    column = sink[:, None, None].expand(-1, logits.shape[1], 1)
    return torch.cat([logits, column], dim=2).softmax(dim=2)[:, :, :-1]


def _softmax_cases(generator: torch.Generator) -> list[Case]:
    # e^0 = 1 three times, and e^sink = 1 or 2: each weight is 1/4 or 1/5
    by_hand = torch.zeros(2, 1, 3), torch.tensor([1.0, 2.0]).log()
    # e^0 / (e^0 + e^0) in the first row; next to 200 or 1000 a sink of 0 takes nothing
    uneven = torch.tensor([[[0.0, -1000.0], [200.0, 200.0], [1000.0, 100.0]]])
    masked = randn(generator, 2, 5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    # A query that may look at no token gives everything to the sink
    unseen = torch.tensor([[[float("-inf")] * 3, [0.0, float("-inf"), 1.0]]])
    return [
        Case("logits of 0, sinks log 1 and log 2: 1/4 and 1/5", by_hand),
        Case("3 heads, 4 queries, 7 tokens", (randn(generator, 3, 4, 7), 1 + randn(generator, 3))),
        Case("causal, as many queries as heads see tokens", (masked, torch.tensor([0.5, -2.0]))),
        Case("rows at 0, 200 and 1000, a sink of 0: 1/2 0, 1/2 1/2, 1 0", (uneven, torch.zeros(1))),
        Case("a row of nothing but −inf: 0 everywhere", (unseen, torch.zeros(1))),
        Case("rows near 1000 and near 0, sinks near 0", (_apart(generator, 1000, 0), randn(generator, 4))),
        Case("logits near −1000, sinks too", (randn(generator, 2, 4, 5) - 1000, randn(generator, 2) - 1000)),
        Case("rows near −500 and near 500", (_apart(generator, -500, 500), randn(generator, 4) - 500)),
    ]


def _apart(generator: torch.Generator, one: int, other: int) -> Tensor:
    """Four heads, in each of which neighbouring queries have logits around one number and around another."""
    return torch.tensor([one, other] * 2)[:, None] + randn(generator, 4, 4, 6)


def _less(logits: Tensor, sink: Tensor, shift: Tensor) -> Tensor:
    """Everything less a shift that is not the row's own maximum."""
    e = (logits - shift).exp()
    return e / ((sink[:, None, None] - shift).exp() + e.sum(dim=2, keepdim=True))


def _less_largest(logits: Tensor, sink: Tensor, added: Tensor) -> Tensor:
    """Subtract the largest of logits and sink, and add one number per head to the denominator."""
    e = (logits - torch.maximum(logits.amax(2), sink[:, None])[..., None]).exp()
    return e / (e.sum(dim=2, keepdim=True) + added[:, None, None])


def _nan_where_nothing_is_seen(logits: Tensor, sink: Tensor) -> Tensor:
    """Each row less its own largest logit, −inf where it sees nothing; the sink is shifted alike."""
    most = logits.amax(dim=2, keepdim=True)
    e = (logits - most).exp()
    return e / (e.sum(dim=2, keepdim=True) + (sink[:, None, None] - most).exp())


def _shifted(logits: Tensor, sink: Tensor) -> Tensor:
    """The maximum is taken from the logits, and not from the sink."""
    e = (logits - logits.max(dim=2, keepdim=True).values).exp()
    return e / (sink.exp()[:, None, None] + e.sum(dim=2, keepdim=True))


def _library(logits: Tensor, sink: Tensor) -> Tensor:
    from course_lib.attention.sink_softmax import sink_softmax

    return sink_softmax(logits[None], sink)[0]


SOFTMAX = Exercise(
    id="sinks.softmax",
    title="A softmax with a sink",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_softmax,
    cases=_softmax_cases,
    picture=lambda case, got, expected: compare_grids(torch.as_tensor(got)[0], expected[0], "token, head 0", "query"),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "by the log of the sum", lambda x, s: (x - torch.logaddexp(x.logsumexp(2), s[:, None])[..., None]).exp()
        ),
        Variant(
            "softmax times a gate",
            lambda x, s: (x.softmax(2) * (x.logsumexp(2) - s[:, None]).sigmoid()[..., None]).nan_to_num(0.0),
        ),
        Variant("sink first, float64", lambda x, s: _sink_first(x.double(), s.double())),
    ),
    hints=(
        "Which sum is in the denominator? What would a softmax over the tokens and one more entry have there?",
        "Treat the sink as one more token: its logit is one more column, torch.cat([logits, column], dim=2), where "
        "column is sink[:, None, None] expanded to (H, Q, 1).",
        "Take one softmax over all of these, then drop the sink's column. Do not divide again: rows sum to less than "
        "1.",
    ),
)


def _sink_first(logits: Tensor, sink: Tensor) -> Tensor:
    column = sink.repeat_interleave(logits.shape[1]).reshape(len(sink), -1, 1)
    return torch.cat([column, logits], dim=2).softmax(dim=2)[:, :, 1:]
