"""The exercise kv.scissorhands, "Count how often nobody looks": its cases and its named mistakes.

Dimension key: G heads of a group, W queries, N slots.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.kv.exercises.common import as_mask, keep_newest, mask_picture, recent_ones, shuffled

RANKING = "ranking"  # what a mistake returns in place of a mask: counts, and how many of the highest leave


def _low_counts(weights: Tensor, asked_at: Tensor, position: Tensor) -> Tensor:
    """(N,): of how many queries that could see the token its weight, averaged over the group, was below 1/t."""
    low = weights.mean(dim=0) < 1 / (asked_at[:, None] + 1)
    return (low & (position <= asked_at[:, None])).sum(dim=0)


def _below(weights: Tensor, asked_at: Tensor, position: Tensor, threshold: Tensor) -> Tensor:
    """(N,): the same with another threshold, (W,)."""
    return ((weights.mean(dim=0) < threshold[:, None]) & (position <= asked_at[:, None])).sum(dim=0)


def _without_its_own(weights: Tensor, asked_at: Tensor, position: Tensor) -> Tensor:
    low = weights.mean(dim=0) < 1 / (asked_at[:, None] + 1)
    return (low & (position < asked_at[:, None])).sum(dim=0)


def _first_leave(slots_worth: Callable) -> Callable:
    """The mask of a mistake; of equal slots the first leave. slots_worth: (...) -> (count of each slot, how many "
    "leave)."""

    def answer(*given: Any) -> Tensor:
        count, n_drop = slots_worth(*given)
        leaving = count.sort(descending=True, stable=True).indices[:n_drop]
        return torch.ones(len(count), dtype=torch.bool).index_fill(0, leaving, False)

    return answer


def _any_leave(slots_worth: Callable) -> Callable:
    """The same mistake whichever of equal slots leave: what each slot counts, and how many leave."""

    def answer(*given: Any) -> tuple[str, Tensor, int]:
        return RANKING, *slots_worth(*given)

    return answer


def _protected(count: Tensor, position: Tensor, recent: int) -> Tensor:
    """Counts by which the newest never leave."""
    return count.double().masked_fill(keep_newest(position, recent), float("-inf"))


def _counted(count: Callable) -> Callable:
    """Another count: (weights, asked_at, position) -> (N,)."""
    return lambda w, q, p, b, r: (_protected(count(w, q, p), p, r), _n_drop(p, b))


def _dropping(n_drop: Callable[[int, int, int], int]) -> Callable:
    """Another number that leave: (slots, budget, recent) -> how many."""
    return lambda w, q, p, b, r: (_protected(_low_counts(w, q, p), p, r), n_drop(len(p), b, r))


def _half_drop(n: int, budget: int) -> int:
    """How many leave so that half of the budget stays, whether or not there is room."""
    return max(0, n - (budget - budget // 2))


def _mistake(name: str, explanation: str, *ways: Callable) -> Mistake:
    """Each way is (...) -> (count of each slot, how many leave); which of equal ones leave is no part of a mistake."""
    first, *others = [make(way) for way in ways for make in (_first_leave, _any_leave)]
    return Mistake(name, explanation, first, also=tuple(others))


def _n_drop(position: Tensor, budget: int) -> int:
    """Nothing within the budget; beyond it, all but the half that stays."""
    return _half_drop(len(position), budget) if len(position) > budget else 0


def _scissorhands(weights: Tensor, asked_at: Tensor, position: Tensor, budget: int, recent: int) -> Tensor:
    return _first_leave(_counted(_low_counts))(weights, asked_at, position, budget, recent)


def _history(
    generator: torch.Generator, n_group: int, n_queries: int, n: int, n_seen: int, n_close: int = 0
) -> tuple[Tensor, ...]:
    """Attention of the last queries of a text of which n tokens are left: three in five of the old ones are important.

    The newest half of the tokens that came meanwhile are not, and few queries could see them. `n_close` old tokens get
    a little more than an even share from every query, less than if it had seen one token fewer; three others get a
    little less, more than if it had seen one token more.
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
    """Old tokens are low once; three in four of the new ones twice, to themselves and to the newest, the fourth once.

    What is low gets a little less than 1/t, and the fourth otherwise a little more. Of two heads, the one gives where
    the other takes. Three older tokens have left.
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
    # The mean of u by a row's weights taken off, heads still sum to one, and no weight falls below a tenth of its mean.
    apart = 0.9 * mean * (u - (mean * u).sum(dim=1, keepdim=True))
    return torch.stack([mean + apart, mean - apart]), asked_at, position


def _scissorhands_cases(generator: torch.Generator) -> list[Case]:
    # Two heads, three queries at 3, 4 and 5 of slots that hold tokens 0, 2, 3, 4 and 5. Means below 1/4, 1/5 and 1/6:
    # never, 3 times, once, once and (token 5, asked once) never. Token 5 is recent, and one more of five may stay.
    by_hand = torch.tensor(
        [
            [[0.60, 0.10, 0.30, 0.00, 0.00], [0.50, 0.05, 0.15, 0.30, 0.00], [0.30, 0.10, 0.20, 0.10, 0.30]],
            [[0.40, 0.20, 0.40, 0.00, 0.00], [0.40, 0.15, 0.15, 0.30, 0.00], [0.30, 0.10, 0.20, 0.10, 0.30]],
        ]
    )
    positions = torch.tensor([0, 2, 3, 4, 5])
    # Token 0 gets between 1/5 and 1/4, then between 1/6 and 1/5: never low. Token 1 is low once, and leaves.
    close = torch.tensor([[[0.22, 0.58, 0.10, 0.10, 0.00], [0.18, 0.05, 0.10, 0.07, 0.60]]])
    few = torch.tensor([0, 1, 2, 4, 5])
    # Queries at 3 and 7. Token 0 gets exactly 1/4, then exactly 1/8, and is never low; token 1 is low once, and leaves.
    exact = torch.tensor([[[0.25, 0.5, 0.15, 0.1, 0.0], [0.125, 0.1, 0.05, 0.05, 0.675]]])
    five = torch.tensor([0, 1, 2, 3, 7])
    # The newest token is low to itself; it stays beside one of the two that are never low
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
        Case("tokens that do not look at themselves", (*_own_queries(generator, 3, 12), 15, 2)),
        Case("more such tokens", (*_own_queries(generator, 3, 16), 18, 2)),
        Case("fewer such tokens", (*_own_queries(generator, 2, 11), 13, 2)),
        Case("as many slots as the budget: all stay", (*_history(generator, 2, 6, 20, 70), 20, 3)),
        Case("five slots, a budget of eight: all stay", (by_hand, torch.tensor([3, 4, 5]), positions, 8, 1)),
    ]


def _times_overlooked(weights: Tensor, asked_at: Tensor, position: Tensor) -> Tensor:
    """(N,): of the queries after a token, those that are left when the ones that gave it its share are taken away."""
    n_after = (position <= asked_at[:, None]).sum(dim=0)
    shared = weights.mean(dim=0) >= 1 / (asked_at[:, None] + 1)
    return n_after - (shared & (position <= asked_at[:, None])).sum(dim=0)


def _as_ranked(got: Any, expected: tuple[str, Tensor, int]) -> str | None:
    """Whether a mask is one of those that a mistake's counts allow; a ranking, whether it is the same."""
    kind, count, n_drop = expected
    if isinstance(got, tuple) and len(got) == 3 and got[0] == kind:
        return close(got, expected)
    got, problem = as_mask(got, torch.zeros(len(count), dtype=torch.bool))
    if problem:
        return problem
    stay = count.sort().values[: len(count) - n_drop]
    same = int(got.sum()) == len(stay) and torch.allclose(count[got].sort().values, stay, rtol=1e-6, atol=1e-7)
    return None if same else "other slots stay"


def _agree_on_counts(got: Any, expected: Any, case: Case) -> str | None:
    """As many stay, the same recent ones among them, with the same counts: which of two equal counts leaves is free."""
    if isinstance(expected, tuple):
        return _as_ranked(got, expected)
    got, problem = as_mask(got, expected)
    if problem:
        return problem
    expected = expected.bool()
    if got.sum() != expected.sum():
        return f"{int(got.sum())} of {len(got)} slots stay, expected {int(expected.sum())}"
    weights, asked_at, position, _, recent = case.arguments
    newest = recent_ones(position, recent)
    if (got & newest).sum() != (expected & newest).sum():
        return (
            f"{int((got & newest).sum())} of the {recent} newest tokens stay, expected {int((expected & newest).sum())}"
        )
    count = _times_overlooked(weights.double(), asked_at, position)
    mine, right = (count[keep].sort().values for keep in (got, expected))
    if torch.equal(mine, right):
        return None
    return f"what stays was low {int(mine.sum())} times together, expected {int(right.sum())}"


SCISSORHANDS = Exercise(
    id="kv.scissorhands",
    title="Count how often nobody looks",
    difficulty=4,
    minutes=12,
    points=4,
    reference=_scissorhands,
    cases=_scissorhands_cases,
    agree=_agree_on_counts,
    picture=lambda case, got, expected: mask_picture(
        case, got, expected, right=_agree_on_counts(got, expected, case) is None
    ),
    mistakes=(
        _mistake(
            "its own query left out",
            "A token's own query sees it as well: those at its position or behind count, position <= query_position.",
            _counted(_without_its_own),
        ),
        _mistake(
            "exactly 1/t counted as low",
            "A weight is low when it is below 1/t. A weight that equals 1/t is not low: compare with <.",
            _counted(lambda w, q, p: ((w.mean(dim=0) <= 1 / (q[:, None] + 1)) & (p <= q[:, None])).sum(dim=0)),
        ),
        _mistake(
            "recent tokens not protected",
            "The newest `recent` tokens stay in any case: their count is of few queries.",
            lambda w, q, p, b, r: (_low_counts(w, q, p).double(), _n_drop(p, b)),
        ),
        _mistake(
            "last slots protected",
            "The newest tokens are those with the highest positions, wherever their slots are.",
            lambda w, q, p, b, r: (_protected(_low_counts(w, q, p), torch.arange(len(p)), r), _n_drop(p, b)),
        ),
        _mistake(
            "the oldest protected",
            "The lowest positions are the oldest tokens. Those with the highest stay in any case.",
            lambda w, q, p, b, r: (_protected(_low_counts(w, q, p), -p, r), _n_drop(p, b)),
        ),
        _mistake(
            "important ones dropped",
            "The tokens that were low most rarely left. A high count of low weights means: drop.",
            _counted(lambda w, q, p: -_low_counts(w, q, p)),
        ),
        _mistake(
            "one head for the group",
            "This counts what one head of the group sees. Average the weights over the group first.",
            _counted(lambda w, q, p: _low_counts(w[:1], q, p)),
            _counted(lambda w, q, p: _low_counts(w[-1:], q, p)),
        ),
        _mistake(
            "heads counted one by one",
            "Each head was compared with 1/t by itself. Average the weights over the group first.",
            _counted(lambda w, q, p: sum(_low_counts(head[None], q, p) for head in w)),
        ),
        _mistake(
            "not the mean of the group",
            "The largest, smallest or middle weight of the group was compared with 1/t. Average the weights instead.",
            _counted(lambda w, q, p: _low_counts(w.amax(dim=0, keepdim=True), q, p)),
            _counted(lambda w, q, p: _low_counts(w.median(dim=0, keepdim=True).values, q, p)),
            _counted(lambda w, q, p: _low_counts(w.amin(dim=0, keepdim=True), q, p)),
        ),
        _mistake(
            "slots instead of tokens seen",
            "1/t is the even share of the t tokens that the query has seen, also of those that have left: t is its "
            "position + 1, not the number of slots.",
            _counted(lambda w, q, p: _below(w, q, p, torch.full((len(q),), 1 / len(p)))),
        ),
        _mistake(
            "evicted although there is room",
            "Up to `budget` slots all stay. Only where a head holds more does it evict, down to half of the budget.",
            _dropping(lambda n, budget, recent: _half_drop(n, budget)),
            _dropping(lambda n, budget, recent: _half_drop(n, budget) if n >= budget else 0),
        ),
        _mistake(
            "t one too small",
            "Positions count from 0: a query at position p has seen p + 1 tokens, itself among them.",
            _counted(lambda w, q, p: _below(w, q, p, 1 / q)),
        ),
        _mistake(
            "t too large",
            "The threshold is too low: 1/t is 1/(p + 1) for a query at position p, and each query has a t of its own.",
            _counted(lambda w, q, p: _below(w, q, p, 1 / (q + 2))),
        ),
        _mistake(
            "a share of the queries",
            "The count was divided by the number of queries that could see the token. The highest counts leave.",
            _counted(lambda w, q, p: _low_counts(w, q, p) / (p <= q[:, None]).sum(dim=0).clamp(min=1)),
        ),
        _mistake(
            "only down to the budget",
            "Then the next token would bring the next eviction. Half of the budget leaves at once, so that it is rare.",
            _dropping(lambda n, budget, recent: max(0, n - budget)),
        ),
        _mistake(
            "recent ones on top",
            "The newest `recent` tokens are among the budget - budget // 2 that stay, not beside them.",
            _dropping(lambda n, budget, recent: max(0, _half_drop(n, budget) - recent) if n > budget else 0),
        ),
        _mistake(
            "mass instead of counts",
            "This is H2O: the lowest sums of attention leave. Scissorhands counts how often a weight is low.",
            _counted(lambda w, q, p: -w.mean(dim=0).sum(dim=0)),
        ),
        _mistake(
            "True where it leaves",
            "The mask is True where a token leaves. In this course True means that it stays.",
            lambda w, q, p, b, r: (-_protected(_low_counts(w, q, p), p, r), len(p) - _n_drop(p, b)),
        ),
        _mistake(
            "not asked yet, counted as low",
            "A query gives no weight to tokens that come after it. That says nothing about them: count how often it "
            "was low, not how often it was high, and only for queries at its position or later.",
            _counted(lambda w, q, p: (w.mean(dim=0) < 1 / (q[:, None] + 1)).sum(dim=0)),
            _counted(lambda w, q, p: -((w.mean(dim=0) >= 1 / (q[:, None] + 1)) & (p <= q[:, None])).sum(dim=0)),
        ),
        # Its counts are nearly all 0, and hardly any slots contradict it: every other name is looked for first.
        _mistake(
            "sum over the group",
            "The sum of a group's heads was compared with 1/t, which is what one head spreads evenly. Take their mean.",
            _counted(lambda w, q, p: _low_counts(w.sum(dim=0, keepdim=True), q, p)),
        ),
    ),
    also_right=(
        Variant("query by query", lambda w, q, p, b, r: _scissorhands_by_query(w, q, p, b, r)),
        Variant("ties from behind", lambda w, q, p, b, r: _scissorhands(w.flip(2), q, p.flip(0), b, r).flip(0)),
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
