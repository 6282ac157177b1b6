"""The exercise sparse_attention.lines, "Columns and diagonals": its cases and its named mistakes.

Dimension key: R last queries, T tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near

ROUNDING = 1e-6  # of a mean of at most 100 float32 weights that sum to one


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    return all_near(got, expected, {"vertical": ROUNDING, "slash": ROUNDING})


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    mine = torch.stack([torch.as_tensor(each) for each in got])
    return compare_matrices(mine, torch.stack(list(expected)), "0: vertical, 1: slash", "key, or distance (tokens)")


def _lines(weights: Tensor) -> tuple[Tensor, Tensor]:
    n_last, n_tokens = weights.shape
    row, key = torch.arange(n_last)[:, None], torch.arange(n_tokens)
    distance = n_tokens - n_last + row - key
    vertical = weights.mean(dim=0)
    slash = _summed(weights, distance) / len(weights)
    return vertical, slash


def _summed(weights: Tensor, distance: Tensor) -> Tensor:
    """Σ of the weights at each distance, taken modulo T."""
    at = (distance % weights.shape[1]).expand_as(weights)
    return weights.new_zeros(weights.shape[1]).scatter_add(0, at.flatten(), weights.flatten())


def _counts(weights: Tensor, distance: Tensor) -> Tensor:
    """How many of the queries have a key at each distance."""
    return _summed((distance >= 0).to(weights.dtype), distance)


def _lines_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_last: int, n_tokens: int, sharp: float = 2.0) -> Tensor:
        logits = sharp * torch.randn(n_last, n_tokens, generator=generator)
        logits[:, 0] += 2  # a sink
        later = torch.arange(n_tokens) > torch.arange(n_tokens - n_last, n_tokens)[:, None]
        return logits.masked_fill(later, -torch.inf).softmax(dim=1)

    by_hand = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.5, 0.0, 0.25, 0.25]])
    return [
        Case("2 queries of 4 tokens by hand: half of the attention to key 0, a quarter to distance 1", (by_hand,)),
        Case("4 queries of 9 tokens", (drawn(4, 9),)),
        Case("all queries of 7 tokens", (drawn(7, 7),)),
        Case("a single query", (drawn(1, 6),)),
        Case("30 queries of 100 tokens", (drawn(30, 100),)),
        Case("not contiguous", (drawn(5, 8).T.contiguous().T,)),
    ]


def _library(weights: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.attention.prefill.lines import on_columns, slashes

    return on_columns(weights[None], block_size=1)[0], slashes(weights[None])[0]


def _diagonal_means(weights: Tensor, distance: Tensor) -> Tensor:
    counts = _counts(weights, distance)
    return torch.where(counts > 0, _summed(weights, distance) / counts.clamp(min=1), 0)


LINES = Exercise(
    id="sparse_attention.lines",
    title="Columns and diagonals",
    difficulty=3,
    minutes=9,
    points=3,
    reference=_lines,
    cases=_lines_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_lines),
    also_right=(
        Variant("in loops", lambda w: _in_loops(w)),
        Variant("torch.diagonal", lambda w: _by_diagonals(w)),
        Variant("each row turned round and moved", lambda w: _moved(w)),
        Variant("lists", lambda w: [each.tolist() for each in _lines(w)]),
    ),
    hints=(
        "Which token is row r? The last row is token T − 1, so row r is token T − R + r.",
        "Key j of row r is at distance (T − R + r) − j. torch.diagonal(weights, offset) has all of one distance.",
        "The offset of distance δ is T − R − δ. Sum what it holds and divide by R, however few entries there are.",
    ),
)


def _sums_of_allowed(weights: Tensor, distance: Tensor) -> Tensor:
    """As _summed, but what would be at a negative distance, or at T and beyond, is dropped."""
    at, n_tokens = distance.expand_as(weights), weights.shape[1]
    kept = torch.where((at >= 0) & (at < n_tokens), weights, 0)
    return weights.new_zeros(n_tokens).scatter_add(0, at.clamp(0, n_tokens - 1).flatten(), kept.flatten())


def _largest(weights: Tensor, distance: Tensor) -> Tensor:
    kept, at = torch.where(distance >= 0, weights, 0), distance.clamp(min=0)
    return weights.new_zeros(weights.shape[1]).scatter_reduce(0, at.flatten(), kept.flatten(), "amax")


def _in_loops(weights: Tensor) -> tuple[list[float], list[float]]:
    n_last, n_tokens = weights.shape
    vertical, slash = [0.0] * n_tokens, [0.0] * n_tokens
    for r, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row[: n_tokens - n_last + r + 1]):
            vertical[j] += weight / n_last
            slash[n_tokens - n_last + r - j] += weight / n_last
    return vertical, slash


def _by_diagonals(weights: Tensor) -> tuple[Tensor, Tensor]:
    n_last, n_tokens = weights.shape
    slash = [torch.diagonal(weights, n_tokens - n_last - delta).sum() / n_last for delta in range(n_tokens)]
    return weights.mean(dim=0), torch.stack(slash)


def _moved(weights: Tensor) -> tuple[Tensor, Tensor]:
    n_last, n_tokens = weights.shape
    rows = [pad(row[: n_tokens - n_last + r + 1].flip(0), (0, n_last - 1 - r)) for r, row in enumerate(weights)]
    return weights.sum(dim=0) / n_last, torch.stack(rows).sum(dim=0) / n_last
