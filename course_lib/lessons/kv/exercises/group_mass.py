"""The exercise kv.group_mass, "What a key receives": its cases and its named mistakes.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries, N slots.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.kv.exercises.common import softmax_rows


def _group_mass(weights: Tensor, valid: Tensor, n_key_value: int) -> Tensor:
    return (weights * valid[:, None, :, None]).unflatten(1, (n_key_value, -1)).sum(dim=(2, 3))


def _agree_on_mass(got: Any, expected: Tensor, case: Case) -> str | None:
    """The sum over a group or its mean: they differ by the same factor everywhere and at all times."""
    difference = close(got, expected)
    n_group = case.arguments[0].shape[1] // case.arguments[2]
    return difference if difference and close(got, expected / n_group) else None


def _causal_rows(generator: torch.Generator, batch: int, n_heads: int, n: int) -> Tensor:
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    logits = 1.5 * torch.randn(batch, n_heads, n, n, generator=generator)
    return logits.masked_fill(future, float("-inf")).softmax(dim=-1)


def _group_mass_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25], [0.0, 0.25, 0.75], [0.0, 1.0, 0.0]])[None, :, None]

    def padded(batch: int, n_queries: int) -> Tensor:
        first = torch.arange(1, batch + 1)[:, None]
        return torch.arange(n_queries) >= first

    return [
        Case("one query, 4 heads on 2, by hand", (by_hand, torch.ones(1, 1, dtype=torch.bool), 2)),
        Case("2 sequences with padding, 6 heads on 2", (softmax_rows(generator, 2, 6, 5, 8), padded(2, 5), 2)),
        Case("a prompt: queries and slots are the same tokens", (_causal_rows(generator, 2, 6, 7), padded(2, 7), 3)),
        Case("9 heads on 3, as in SmolLM2, 40 slots", (softmax_rows(generator, 3, 9, 11, 40), padded(3, 11), 3)),
    ]


def _library(weights: Tensor, valid: Tensor, n_key_value: int) -> Tensor:
    from course_lib.lessons.kv.steps import group_mass

    return group_mass(weights, valid, n_key_value)


GROUP_MASS = Exercise(
    id="kv.group_mass",
    title="What a key receives",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_group_mass,
    cases=_group_mass_cases,
    agree=_agree_on_mass,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant(
            "reshape and einsum",
            lambda w, v, h: torch.einsum("bhgqn,bq->bhn", w.reshape(w.shape[0], h, -1, *w.shape[2:]), v.to(w.dtype)),
        ),
        Variant(
            "mean over the group",
            lambda w, v, h: (w * v[:, None, :, None]).sum(dim=2).unflatten(1, (h, -1)).mean(dim=2),
        ),
        Variant(
            "head by head",
            lambda w, v, h: torch.stack(
                [(group * v[:, None, :, None]).sum(dim=(1, 2)) for group in w.chunk(h, dim=1)], dim=1
            ),
        ),
        Variant("float64", lambda w, v, h: _group_mass(w.double(), v, h)),
    ),
    hints=(
        "Sum over the valid queries and over the heads of a group, but not over the keys.",
        "weights.unflatten(1, (n_key_value, -1)) has shape (B, H, G, Q, N).",
        "Multiply by valid[:, None, :, None] first, then sum over axes 2 and 3 of the unflattened tensor.",
    ),
)
