"""The exercise sparse_attention.lines, "Columns and diagonals": its cases and its named mistakes.

Dimension key: R last queries, T tokens.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.checking.near import all_near

Answer = Callable[[Tensor], Any]
Part = Callable[[Tensor], Tensor]
ROUNDING = 1e-6  # of a mean of at most 100 float32 weights that sum to one


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    return all_near(got, expected, {"vertical": ROUNDING, "slash": ROUNDING})


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    mine = torch.stack([torch.as_tensor(each) for each in got])
    return compare_matrices(mine, torch.stack(list(expected)), "0: vertical, 1: slash", "key, or distance (tokens)")


def _vertical(weights: Tensor) -> Tensor:
    return weights.mean(dim=0)


def _summed(weights: Tensor, distance: Callable[[Tensor, Tensor, int, int], Tensor]) -> Tensor:
    """Σ of the weights at each distance: (row, key, R, T) -> distance, taken modulo T."""
    n_last, n_tokens = weights.shape
    row, key = torch.arange(n_last)[:, None], torch.arange(n_tokens)
    at = distance(row, key, n_last, n_tokens) % n_tokens
    return weights.new_zeros(n_tokens).scatter_add(0, at.expand_as(weights).flatten(), weights.flatten())


def _sums(weights: Tensor) -> Tensor:
    return _summed(weights, lambda row, key, r, t: t - r + row - key)


def _slash(weights: Tensor) -> Tensor:
    return _sums(weights) / len(weights)


def _counts(weights: Tensor) -> Tensor:
    """How many of the queries have a key at each distance."""
    n_last, n_tokens = weights.shape
    allowed = torch.arange(n_tokens) <= torch.arange(n_tokens - n_last, n_tokens)[:, None]
    return _sums(allowed.to(weights.dtype))


def _with(vertical: Part = _vertical, slash: Part = _slash) -> Answer:
    return lambda weights: (vertical(weights), slash(weights))


def _at(distance: Callable[[Tensor, Tensor, int, int], Tensor]) -> Answer:
    return _with(slash=lambda weights: _summed(weights, distance) / len(weights))


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


def _diagonal_means(weights: Tensor) -> Tensor:
    counts = _counts(weights)
    return torch.where(counts > 0, _sums(weights) / counts.clamp(min=1), 0)


LINES = Exercise(
    id="sparse_attention.lines",
    title="Columns and diagonals",
    difficulty=3,
    minutes=9,
    points=3,
    reference=_with(),
    cases=_lines_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    mistakes=(
        Mistake(
            "queries counted from the beginning",
            "The R rows are the last queries: row r belongs to token T − R + r. Here row r was taken for token r, so "
            "that every distance is too small by T − R, and some fall off the end.",
            _at(lambda row, key, r, t: row - key),
            also=(
                _with(slash=lambda w: _sums_of_allowed(w, lambda row, key, r, t: row - key) / len(w)),
                _at(lambda row, key, r, t: (row - key).abs()),
            ),
        ),
        Mistake(
            "key minus query",
            "The distance has the wrong sign: query less key, so that 0 is the query's own token and T − 1 the "
            "farthest.",
            _at(lambda row, key, r, t: key - (t - r + row)),
            also=(
                _with(slash=lambda w: _slash(w).flip(0)),
                _with(slash=lambda w: _sums_of_allowed(w, lambda row, key, r, t: key - (t - r + row)) / len(w)),
            ),
        ),
        Mistake(
            "one off",
            "Each distance is off by one. A query's own token is at distance 0.",
            _at(lambda row, key, r, t: t - r + row - key + 1),
            also=(
                _at(lambda row, key, r, t: t - r + row - key - 1),
                _with(slash=lambda w: _sums_of_allowed(w, lambda row, key, r, t: t - r + row - key + 1) / len(w)),
                _with(slash=lambda w: _sums_of_allowed(w, lambda row, key, r, t: t - r + row - key - 1) / len(w)),
            ),
        ),
        Mistake(
            "the other diagonals",
            "Entries were added up along the diagonals on which query plus key is the same. On a slash it is query "
            "less key.",
            _at(lambda row, key, r, t: t - r + row + key),
            also=(_at(lambda row, key, r, t: row + key),),
        ),
        Mistake(
            "divided by the entries on the diagonal",
            "Long distances occur for few queries, and each diagonal was divided by how many there are. Divide by R: "
            "then the slashes sum to one, as attention does, and a share of them is a share of the attention.",
            _with(slash=_diagonal_means),
            also=(
                _with(slash=lambda w: _sums(w) / _counts(w)),
                _with(lambda w: w.sum(dim=0) / (w > 0).sum(dim=0).clamp(min=1), _diagonal_means),
            ),
        ),
        Mistake(
            "divided by T",
            "A sum over the queries was divided by the number of tokens, T. There are R queries: divide by R.",
            _with(slash=lambda w: _sums(w) / w.shape[1]),
            also=(
                _with(lambda w: w.sum(dim=0) / w.shape[1], lambda w: _sums(w) / w.shape[1]),
                _with(lambda w: w.sum(dim=0) / w.shape[1]),
            ),
        ),
        Mistake(
            "sums, not means",
            "The vertical sums or the slashes sum to R, one for each query. Divide both by the number of queries.",
            _with(lambda w: w.sum(dim=0), _sums),
            also=(_with(lambda w: w.sum(dim=0)), _with(slash=_sums)),
        ),
        Mistake(
            "along the wrong axis",
            "The vertical sums went along the row. A column is one key, and all queries in it.",
            _with(lambda w: w.mean(dim=1)),
            also=(_with(lambda w: w.sum(dim=1)),),
        ),
        Mistake(
            "the largest, not the mean",
            "The largest entry of a line instead of their mean. One query that looks there is not a line.",
            _with(lambda w: w.amax(dim=0), lambda w: _largest(w)),
            also=(_with(lambda w: w.amax(dim=0)), _with(slash=lambda w: _largest(w))),
        ),
        Mistake(
            "the last query alone",
            "Only the last row was looked at.",
            _with(lambda w: w[-1], lambda w: w[-1].flip(0)),
            also=(_with(lambda w: w[-1]), _with(slash=lambda w: w[-1].flip(0))),
        ),
        Mistake(
            "the two the wrong way round",
            "First the vertical sums, then the slashes.",
            lambda w: (_slash(w), _vertical(w)),
        ),
        Mistake(
            "divided by what there is twice",
            "The lines were made to sum to one once more, or a softmax was taken of them. The weights are a softmax "
            "already.",
            _with(lambda w: _vertical(w).softmax(0), lambda w: _slash(w).softmax(0)),
        ),
        Mistake(
            "not two values",
            "Two values are asked for: what each key gets, and what each distance gets, both of length T.",
            _vertical,
            also=(
                _slash,
                lambda w: (_vertical(w), _slash(w)[: len(w)]),
                lambda w: (_vertical(w), _sums(w)[: w.shape[1] - 1] / len(w)),
                lambda w: torch.cat([_vertical(w), _slash(w)]),
            ),
        ),
    ),
    also_right=(
        Variant("in loops", lambda w: _in_loops(w)),
        Variant("torch.diagonal", lambda w: _by_diagonals(w)),
        Variant("each row turned round and moved", lambda w: _moved(w)),
        Variant("lists", lambda w: [each.tolist() for each in _with()(w)]),
    ),
    hints=(
        "Which token is row r? The last row is token T − 1, so row r is token T − R + r.",
        "Key j of row r is at distance (T − R + r) − j. torch.diagonal(weights, offset) has all of one distance.",
        "The offset of distance δ is T − R − δ. Sum what it holds and divide by R, however few entries there are.",
    ),
)


def _sums_of_allowed(weights: Tensor, distance: Callable[[Tensor, Tensor, int, int], Tensor]) -> Tensor:
    """As _summed, but what would be at a negative distance, or at T and beyond, is dropped."""
    n_last, n_tokens = weights.shape
    at = distance(torch.arange(n_last)[:, None], torch.arange(n_tokens), n_last, n_tokens).expand_as(weights)
    kept = torch.where((at >= 0) & (at < n_tokens), weights, 0)
    return weights.new_zeros(n_tokens).scatter_add(0, at.clamp(0, n_tokens - 1).flatten(), kept.flatten())


def _largest(weights: Tensor) -> Tensor:
    n_last, n_tokens = weights.shape
    at = torch.arange(n_tokens - n_last, n_tokens)[:, None] - torch.arange(n_tokens)
    kept, at = torch.where(at >= 0, weights, 0), at.clamp(min=0)
    return weights.new_zeros(n_tokens).scatter_reduce(0, at.flatten(), kept.flatten(), "amax")


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
