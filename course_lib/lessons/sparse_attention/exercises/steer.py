"""The exercise sparse_attention.steer, "Steered attention": its cases and its named mistakes.

Dimension key: H heads, Q newest of T tokens, P tokens of the prompt.
"""

from math import log
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

LATER = -1e4  # the logit of a key that comes later than the query: its weight is 0


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(
        torch.as_tensor(got)[:, -1], expected[:, -1], "head", "key; light: what the last query reads"
    )


def _steer(logits: Tensor, highlighted: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    lowered = _lowered(highlighted, logits.shape[2])
    where = lowered & chosen[:, None, None]
    moved = logits + log(alpha) * where
    return moved.softmax(dim=2)


def _lowered(highlighted: Tensor, n_tokens: int) -> Tensor:
    """The prompt's columns that are not highlighted, except for the first."""
    lowered = torch.zeros(n_tokens, dtype=torch.bool)
    lowered[1 : len(highlighted)] = ~highlighted[1:]
    return lowered


def _raised(highlighted: Tensor, n_tokens: int) -> Tensor:
    raised = torch.zeros(n_tokens, dtype=torch.bool)
    raised[: len(highlighted)] = highlighted
    return raised


def _everywhere(highlighted: Tensor, n_tokens: int) -> Tensor:
    """Generated columns too."""
    lowered = ~_raised(highlighted, n_tokens)
    lowered[0] = False
    return lowered


def _first_too(highlighted: Tensor, n_tokens: int) -> Tensor:
    lowered = _lowered(highlighted, n_tokens)
    lowered[0] = ~highlighted[0]
    return lowered


def _scaled(logits: Tensor, where: Tensor, alpha: float) -> Tensor:
    """Weights times α, which do not sum to one."""
    return torch.where(where, alpha, 1.0) * logits.softmax(dim=2)


def _sum_to_one(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=2, keepdim=True)


def _steer_cases(generator: torch.Generator) -> list[Case]:
    def drawn(
        n_heads: int, n_new: int, n_tokens: int, n_prompt: int, alpha: float, marked: float = 0.4
    ) -> tuple[Tensor, Tensor, Tensor, float]:
        logits = torch.randn(n_heads, n_new, n_tokens, generator=generator)
        logits[:, :, 0] += 2.5  # a sink
        later = torch.arange(n_tokens) > torch.arange(n_tokens - n_new, n_tokens)[:, None]
        highlighted = torch.rand(n_prompt, generator=generator) < marked
        highlighted[:3] = torch.tensor([False, True, False])
        chosen = torch.arange(n_heads) % 2 == 1
        return logits.masked_fill(later, LATER), highlighted, chosen, alpha

    quarters = torch.full((2, 1, 4), log(0.25))
    by_hand = quarters, torch.tensor([False, True, False]), torch.tensor([True, False]), 0.5
    logits, highlighted, chosen, _ = drawn(4, 3, 9, 7, 0.1)
    first = highlighted.clone()
    first[0] = True
    turned = drawn(3, 4, 8, 6, 0.05)
    return [
        Case("2 heads by hand, 3 tokens of the prompt and 1 new one: 2/7, 2/7, 1/7, 2/7", by_hand),
        Case("4 heads, 3 newest of 9 tokens, α = 0.1", (logits, highlighted, chosen, 0.1)),
        Case("α = 1 changes nothing", (logits, highlighted, chosen, 1.0)),
        Case("the prompt alone, all of its queries, α = 0.01", drawn(3, 8, 8, 8, 0.01)),
        Case("the first token is highlighted", (logits, first, chosen, 0.2)),
        Case("all heads, one new query", (*drawn(5, 1, 12, 8, 0.02)[:2], torch.ones(5, dtype=torch.bool), 0.02)),
        Case("no head", (logits, highlighted, chosen & False, 0.1)),
        Case("α above 1", drawn(4, 2, 7, 6, 3.0)),
        Case("not contiguous", (turned[0].transpose(0, 2).contiguous().transpose(0, 2), *turned[1:])),
    ]


def _library(logits: Tensor, highlighted: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    from course_lib.lessons.sparse_attention.steps import steered_weights

    return steered_weights(logits, highlighted, chosen, alpha)


STEER = Exercise(
    id="sparse_attention.steer",
    title="Steered attention",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_steer,
    cases=_steer_cases,
    picture=_picture,
    library=_library,
    trivial=(Trivial("not steering at all", lambda logits, *others: logits.softmax(dim=2)),),
    mistakes=read_mistakes(globals(), steps_of=_steer),
    also_right=(
        Variant("weights times α, divided by the new sum", lambda *given: _divided(*given)),
        Variant("row by row", lambda *given: _in_loops(*given)),
        Variant("everything else raised", lambda *given: _others_raised(*given)),
        Variant("in place, in a copy", lambda *given: _in_place(*given)),
    ),
    hints=(
        "First make a mask over the T keys: True for what is lowered. Which of them come after the prompt, and "
        "which is token 0?",
        "exp(l + log α) = α · exp(l). So add log α to the lowered columns of the chosen heads, and take one softmax.",
        "mask & chosen[:, None, None] has shape (H, 1, T) and goes with the logits.",
    ),
)


def _in_loops(logits: Tensor, highlighted: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    weights = logits.softmax(dim=2).clone()
    for head in range(len(logits)):
        if chosen[head]:
            for key in range(1, len(highlighted)):
                if not highlighted[key]:
                    weights[head, :, key] *= alpha
            weights[head] /= weights[head].sum(dim=1, keepdim=True)
    return weights


def _others_raised(logits: Tensor, highlighted: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    others = ~_lowered(highlighted, logits.shape[2]) & chosen[:, None, None]
    return (logits - log(alpha) * others).softmax(dim=2)


def _in_place(logits: Tensor, highlighted: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    steered, keys = logits.clone(), [k for k, marked in enumerate(highlighted.tolist()) if k and not marked]
    for head in chosen.nonzero()[:, 0].tolist():
        steered[head, :, keys] += log(alpha)
    return steered.softmax(dim=-1)


def _divided(logits: Tensor, highlighted: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    where = _lowered(highlighted, logits.shape[2]) & chosen[:, None, None]
    return _sum_to_one(_scaled(logits, where, alpha))
