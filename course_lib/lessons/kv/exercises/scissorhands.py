"""The exercise kv.scissorhands, "Count how often attention is low": its cases and its named mistakes.

Dimension key: G heads of a group, W queries, N slots.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.kv.exercises.common import as_mask, keep_newest, mask_picture, recent_ones, shuffled

RANKING = "ranking"  # what a mistake returns instead of a mask: counts, and how many of the highest are evicted


def _scissorhands(weights: Tensor, query_position: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    mean = weights.mean(dim=0)
    threshold = 1 / (query_position + 1)
    asked = position <= query_position[:, None]
    count = ((mean < threshold[:, None]) & asked).sum(dim=0)
    order = count.double().masked_fill(keep_newest(position, recent), float("-inf"))
    n_drop = _half_drop(len(position), budget) if len(position) > budget else 0
    return _first_leave(order, n_drop)


def _half_drop(n: int, budget: int) -> int:
    """Return how many tokens to evict so that half of the budget is kept, whether or not there is room."""
    return max(0, n - (budget - budget // 2))


def _first_leave(order: Tensor, n_drop: int) -> Tensor:
    """Return the mask after evicting the highest; among equal slots the first is evicted."""
    leaving = order.sort(descending=True, stable=True).indices[:n_drop]
    return torch.ones(len(order), dtype=torch.bool).index_fill(0, leaving, False)


def _any_leave(order: Tensor, n_drop: int) -> tuple[str, Tensor, int]:
    """Describe the same mistake for any order of equal slots, since the order is not part of the mistake."""
    return RANKING, order, n_drop


def _history(
    generator: torch.Generator, n_group: int, n_queries: int, n: int, n_seen: int, n_close: int = 0
) -> tuple[Tensor, ...]:
    """Return attention of the last queries over n kept tokens of a text: three in five of the old ones are important.

    The newest tokens are not important, and few queries could see them. `n_close` old tokens get a little more than 1/t
    from every query, but less than 1/(t − 1); three others get a little less than 1/t, but more than 1/(t + 1).
    """
    old = torch.randperm(n_seen - n_queries, generator=generator)[: n - n_queries]
    position = shuffled(generator, torch.cat([old, torch.arange(n_seen - n_queries, n_seen)]), 1)[0]
    asked_at = torch.arange(n_seen - n_queries, n_seen)
    future = position > asked_at[:, None]
    important = (torch.rand(n, generator=generator) < 0.6) & (position < n_seen - n_queries // 2)
    important = important * (2.5 + 2 * torch.rand(n, generator=generator))
    logits = important + 1.5 * torch.randn(n_group, n_queries, n, generator=generator)
    weights = logits.masked_fill(future, float("-inf")).softmax(dim=-1)
    t, above, below = (asked_at + 1)[:, None], torch.isin(position, old[:n_close]), torch.isin(position, old[-3:])
    fixed = above * (0.5 / (t - 1) + 0.5 / t) + below * (0.5 / t + 0.5 / (t + 1))
    rest = weights.masked_fill(above | below, 0)
    rest = rest / rest.sum(dim=-1, keepdim=True) * (1 - fixed.sum(dim=-1, keepdim=True))
    return torch.where(above | below, fixed, rest), asked_at, position


def _own_queries(generator: torch.Generator, n_old: int, n_new: int) -> tuple[Tensor, ...]:
    """Return attention in which old tokens are low once, and three in four new ones twice, the fourth once.

    The three are low for their own query and for the newest one. A low weight is a little less than 1/t, the other
    weights of the fourth are a little more. Of two heads, one adds what the other subtracts. Three older tokens are
    evicted.
    """
    position = 3 + shuffled(generator, torch.arange(n_old + n_new + 1), 1)[0]
    asked_at = 3 + torch.arange(n_old, n_old + n_new + 1)
    query, t, newest, is_new = asked_at[:, None], asked_at[:, None] + 1, int(position.max()), position >= 3 + n_old
    is_fourth = is_new & ((position - 3 - n_old) % 4 == 1)
    low = is_new & ~is_fourth & (position < newest) & ((position == query) | (query == newest))
    low |= ~is_new & (query == 3 + n_old + position % n_new) | is_fourth & (position == query)
    visible = position <= query
    fixed = (low * (0.5 / t + 0.5 / (t + 1)) + (is_fourth & ~low) * (0.5 / t + 0.5 / (t - 1))) * visible
    rest = visible & (fixed == 0)
    mean = fixed + rest * (1 - fixed.sum(dim=1, keepdim=True)) / rest.sum(dim=1, keepdim=True)
    u = torch.rand(mean.shape, generator=generator)
    # We subtract the weighted mean of u, so rows still sum to one, and no weight falls below a tenth of its mean.
    apart = 0.9 * mean * (u - (mean * u).sum(dim=1, keepdim=True))
    return torch.stack([mean + apart, mean - apart]), asked_at, position


def _scissorhands_cases(generator: torch.Generator) -> list[Case]:
    # Two heads, three queries at 3, 4 and 5 of slots that hold tokens 0, 2, 3, 4 and 5. Means below 1/4, 1/5 and 1/6:
    # never, 3 times, once, once and (token 5, one query) never. Token 5 is recent, and one more of five can be kept.
    by_hand = torch.tensor(
        [
            [[0.60, 0.10, 0.30, 0.00, 0.00], [0.50, 0.05, 0.15, 0.30, 0.00], [0.30, 0.10, 0.20, 0.10, 0.30]],
            [[0.40, 0.20, 0.40, 0.00, 0.00], [0.40, 0.15, 0.15, 0.30, 0.00], [0.30, 0.10, 0.20, 0.10, 0.30]],
        ]
    )
    positions = torch.tensor([0, 2, 3, 4, 5])
    # Token 0 gets between 1/5 and 1/4, then between 1/6 and 1/5: never low. Token 1 is low once and is evicted.
    close = torch.tensor([[[0.22, 0.58, 0.10, 0.10, 0.00], [0.18, 0.05, 0.10, 0.07, 0.60]]])
    few = torch.tensor([0, 1, 2, 4, 5])
    # Queries at 3 and 7. Token 0 gets exactly 1/4, then exactly 1/8, and is never low; token 1 is low once, evicted.
    exact = torch.tensor([[[0.25, 0.5, 0.15, 0.1, 0.0], [0.125, 0.1, 0.05, 0.05, 0.675]]])
    five = torch.tensor([0, 1, 2, 3, 7])
    # The newest token is low for itself; it is kept with one of the two that are never low
    never = torch.tensor([[[0.22, 0.58, 0.1, 0.1, 0.0], [0.22, 0.5, 0.1, 0.1, 0.08]]])
    # The first slot is low in the mean never, the second in the middle head never, the third in the fewest heads
    first = [[0.70, 0.13, 0.15, 0.02, 0.00], [0.02, 0.13, 0.80, 0.05, 0.00], [0.02, 0.00, 0.93, 0.05, 0.00]]
    last = [[0.60, 0.13, 0.15, 0.02, 0.10], [0.02, 0.13, 0.01, 0.05, 0.79], [0.02, 0.00, 0.01, 0.05, 0.92]]
    three = torch.tensor([first, first, last]).transpose(0, 1)
    return [
        Case("two heads, three queries, five slots, by hand", (by_hand, torch.tensor([3, 4, 5]), positions, 4, 1)),
        Case("one head whose weights lie close to 1/t", (close, torch.tensor([4, 5]), few, 4, 1)),
        Case("one head, one of whose weights is exactly 1/t", (exact, torch.tensor([3, 7]), five, 4, 1)),
        Case("one head, two tokens that are never low", (never, torch.tensor([4, 5]), few, 4, 1)),
        Case("three heads that disagree", (three, torch.tensor([8, 9, 10]), torch.tensor([5, 0, 7, 2, 10]), 4, 1)),
        Case("31 slots of 100 tokens, a budget of 30", (*_history(generator, 3, 12, 31, 100, 7), 30, 4)),
        Case("40 slots of 60 tokens, a budget of 36", (*_history(generator, 3, 16, 40, 60, 7), 36, 5)),
        Case("one head, an odd budget of 25", (*_history(generator, 1, 10, 26, 80), 25, 3)),
        Case("tokens that give themselves little attention", (*_own_queries(generator, 3, 12), 15, 2)),
        Case("more such tokens", (*_own_queries(generator, 3, 16), 18, 2)),
        Case("fewer such tokens", (*_own_queries(generator, 2, 11), 13, 2)),
        Case("as many slots as the budget: all are kept", (*_history(generator, 2, 6, 20, 70), 20, 3)),
        Case("five slots, a budget of eight: all are kept", (by_hand, torch.tensor([3, 4, 5]), positions, 8, 1)),
    ]


def _times_overlooked(weights: Tensor, asked_at: Tensor, position: Tensor) -> Tensor:
    """Return (N,): the number of queries that could see a token, minus those that gave it 1/t or more."""
    n_after = (position <= asked_at[:, None]).sum(dim=0)
    shared = weights.mean(dim=0) >= 1 / (asked_at[:, None] + 1)
    return n_after - (shared & (position <= asked_at[:, None])).sum(dim=0)


def _as_ranked(got: Any, expected: tuple[str, Tensor, int]) -> str | None:
    """Compare a mask with those that the counts of a mistake allow, or a ranking with another one."""
    kind, count, n_drop = expected
    if isinstance(got, tuple) and len(got) == 3 and got[0] == kind:
        return close(got, expected)
    got, problem = as_mask(got, torch.zeros(len(count), dtype=torch.bool))
    if problem:
        return problem
    stay = count.sort().values[: len(count) - n_drop]
    same = int(got.sum()) == len(stay) and torch.allclose(count[got].sort().values, stay, rtol=1e-6, atol=1e-7)
    return None if same else "other slots are kept"


def _agree_on_counts(got: Any, expected: Any, case: Case) -> str | None:
    """Compare the number of kept slots, the recent ones among them, and their counts; ties may fall either way."""
    if isinstance(expected, tuple):
        return _as_ranked(got, expected)
    got, problem = as_mask(got, expected)
    if problem:
        return problem
    expected = expected.bool()
    if got.sum() != expected.sum():
        return f"{int(got.sum())} of {len(got)} slots are kept, expected {int(expected.sum())}"
    weights, asked_at, position, _, recent = case.arguments
    newest = recent_ones(position, recent)
    if (got & newest).sum() != (expected & newest).sum():
        n_kept, n_expected = (int((mask & newest).sum()) for mask in (got, expected))
        return f"{n_kept} of the {recent} newest tokens are kept, expected {n_expected}"
    count = _times_overlooked(weights.double(), asked_at, position)
    mine, right = (count[keep].sort().values for keep in (got, expected))
    if torch.equal(mine, right):
        return None
    return f"the kept tokens were low {int(mine.sum())} times in all, expected {int(right.sum())}"


SCISSORHANDS = Exercise(
    id="kv.scissorhands",
    title="Count how often attention is low",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_scissorhands,
    cases=_scissorhands_cases,
    agree=_agree_on_counts,
    picture=lambda case, got, expected: mask_picture(
        case, got, expected, right=_agree_on_counts(got, expected, case) is None
    ),
    mistakes=read_mistakes(globals(), steps_of=_scissorhands),
    also_right=(
        Variant("query by query", lambda w, q, p, b, r: _scissorhands_by_query(w, q, p, b, r)),
        Variant("ties from the end", lambda w, q, p, b, r: _scissorhands(w.flip(2), q, p.flip(0), b, r).flip(0)),
        Variant("zeros and ones", lambda w, q, p, b, r: _scissorhands(w, q, p, b, r).float()),
    ),
    hints=(
        "A table of queries and slots: is the group's mean below 1/t, and could the query see the token?",
        "t = query_position + 1, one threshold for each query: compare with 1 / (query_position[:, None] + 1).",
        "Count the True entries of each column, set the recent ones to −1, and keep the lowest budget − budget // 2.",
    ),
)


def _scissorhands_by_query(weights: Tensor, asked_at: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    keep, n = torch.ones(len(position)), len(position)
    if n <= budget:
        return keep
    count = [0] * n
    for row, at in zip(weights.mean(0).tolist(), asked_at.tolist(), strict=True):
        for slot in range(n):
            count[slot] += position[slot] <= at and row[slot] * (at + 1) < 1
    old = sorted(range(n), key=position.tolist().__getitem__)[: n - recent]
    for slot in sorted(old, key=count.__getitem__)[budget - budget // 2 - recent :]:
        keep[slot] = 0
    return keep
