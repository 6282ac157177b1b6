"""The exercise sinks.gate, "A sink for any attention kernel": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes


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
    title="A sink for any attention kernel",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_gate,
    cases=_gate_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
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
        "Multiply by e^lse / (e^lse + e^sink) = σ(lse − sink): one number per head and query.",
    ),
)
