"""The exercise sinks.gate, "A sink for any attention": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _gate(output: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    return output * (lse - sink[:, None]).sigmoid()[..., None]


def _gate_cases(generator: torch.Generator) -> list[Case]:
    # three tokens with logit 0 and values 2, 4, 6: the output is 4 and lse = log 3. A sink of 0 leaves 3/4 of it.
    by_hand = torch.tensor([[[4.0]]]), torch.tensor([[3.0]]).log(), torch.zeros(1)

    def drawn(heads: int, queries: int, size: int, level: float) -> tuple[Tensor, Tensor, Tensor]:
        lse = level + randn(generator, heads, queries)
        return randn(generator, heads, queries, size), lse, level + randn(generator, heads)

    return [
        Case("three tokens with logit 0, a sink with logit 0: 4 becomes 3", by_hand),
        Case("3 heads, 5 queries, size 4", drawn(3, 5, 4, 1.0)),
        Case("as many queries as heads", drawn(4, 4, 4, 0.0)),
        Case("logits near 150", drawn(2, 6, 3, 150.0)),
    ]


def _library(output: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    from course_lib.attention.sink_softmax import with_sink

    return with_sink(output[None], lse[None], sink)[0]


GATE = Exercise(
    id="sinks.gate",
    title="A sink for any attention",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_gate,
    cases=_gate_cases,
    library=_library,
    mistakes=(
        Mistake(
            "the share of the sink",
            "σ(sink − lse) is what the sink takes. What is left for the tokens is σ(lse − sink).",
            lambda o, lse, s: o * (s[:, None] - lse).sigmoid()[..., None],
        ),
        Mistake(
            "a ratio of two sums",
            "e^(lse − sink) is tokens over sink. The share is tokens over tokens and sink: the sigmoid of that "
            "difference.",
            lambda o, lse, s: o * (lse - s[:, None]).exp()[..., None],
        ),
        Mistake(
            "the sink of another head",
            "Broadcasting put sink[h] beside query h. It belongs to a head: sink[:, None].",
            lambda o, lse, s: o * (lse - s).sigmoid()[..., None],
            also=(lambda o, lse, s: o * (lse - s[: lse.shape[1]]).sigmoid()[..., None],),
        ),
        Mistake(
            "one sink for all heads",
            "Every head has a sink of its own: sink[h] belongs to head h.",
            lambda o, lse, s: _gate(o, lse, s[:1].expand(len(s))),
            also=(lambda o, lse, s: _gate(o, lse, s.mean().expand(len(s))),),
        ),
        Mistake(
            "off by one whatever the sink",
            "σ(lse) is the gate of a sink with logit 0. Here the sink's logit is given.",
            lambda o, lse, s: o * lse.sigmoid()[..., None],
        ),
        Mistake(
            "overflow",
            "e^lse is more than float32 holds when logits are large. σ(lse − sink) needs only the difference.",
            lambda o, lse, s: o * (lse.exp() / (lse.exp() + s.exp()[:, None]))[..., None],
        ),
        Mistake(
            "the logarithm counted as the sum",
            "lse is the logarithm of the sum of exponentials: lse / (lse + sink) divides logarithms.",
            lambda o, lse, s: o * (lse / (lse + s[:, None]))[..., None],
        ),
        Mistake(
            "divided instead of multiplied",
            "The sink takes a share away: the output shrinks.",
            lambda o, lse, s: o / (lse - s[:, None]).sigmoid()[..., None],
        ),
        Mistake(
            "added instead of subtracted",
            "A large sink takes more: the gate is σ(lse − sink), a difference.",
            lambda o, lse, s: o * (lse + s[:, None]).sigmoid()[..., None],
        ),
        Mistake(
            "the sink without the tokens",
            "The share depends on both: on the sink, and on the log-sum-exp of the tokens of each query.",
            lambda o, lse, s: o * (-s[:, None, None]).sigmoid(),
        ),
        Mistake(
            "sink over tokens",
            "e^(sink − lse) is sink over tokens. The share is tokens over tokens and sink.",
            lambda o, lse, s: o * (s[:, None] - lse).exp()[..., None],
        ),
        Mistake(
            "subtracted from the output",
            "The sink takes a share: multiply by what is left.",
            lambda o, lse, s: o - (s[:, None] - lse).sigmoid()[..., None],
        ),
        Mistake(
            "a softmax over the queries",
            "Each query shares its own attention with the sink: a sigmoid for each, not a softmax over them.",
            lambda o, lse, s: o * (lse - s[:, None]).softmax(dim=1)[..., None],
        ),
    ),
    also_right=(
        Variant("one over one plus", lambda o, lse, s: o / (1 + (s[:, None] - lse).exp())[..., None]),
        Variant(
            "two logits", lambda o, lse, s: o * torch.stack([lse, s[:, None].expand_as(lse)], 2).softmax(2)[..., :1]
        ),
        Variant(
            "in float64",
            lambda o, lse, s: o * (lse.double() - torch.logaddexp(lse.double(), s.double()[:, None])).exp()[..., None],
        ),
    ),
    hints=(
        "The output is a sum over e^x_j v_j, divided by e^lse. With the sink it is divided by e^lse + e^sink instead.",
        "Multiply by e^lse / (e^lse + e^sink) = σ(lse − sink): one number a head and query.",
    ),
)
