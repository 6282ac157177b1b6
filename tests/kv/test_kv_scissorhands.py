"""Scissorhands against a loop over every query and token, and a head counted by hand."""

from copy import deepcopy

import pytest
import torch
from kv_naive import FirstLayer, kept_by, passes_of, run, sharp_model

from course_lib.kv.cache import evicting
from course_lib.kv.policies.scissorhands import Scissorhands, rising
from course_lib.kv.policy import Observed
from course_lib.kv.slots import NewTokens, Slots
from course_lib.models import tiny_model

IDS = torch.randint(3, 97, (1, 60), generator=torch.Generator().manual_seed(1))


def naive(first, head, passes, policy):
    """Kept tokens of one key-value head after each pass. Liu and others, Algorithms 1 and 2.

    `low[j]` lists the queries i that gave token j less than 1/i, i counted from 1, on average over the query heads.
    """
    kept, low, eighth = [], {}, policy.window // 8
    for tokens in passes:
        for i in tokens:
            kept.append(i)
            low[i] = []
            for j, weight in zip(kept, first.rows(head, i, first.key[head, kept]).mean(dim=0).tolist(), strict=True):
                if weight < 1 / (i + 1):
                    low[j].append(i)
        if len(kept) > policy.budget:
            since = (i // eighth - 7) * eighth  # the eighth that is under way and the seven before it
            old = [j for j in kept if policy.sinks <= j <= i - policy.recent]
            lows = {j: sum(query >= since for query in low[j]) for j in old}
            n_leave = len(kept) - (policy.budget - int(policy.dropped * policy.budget))
            leaving = sorted(old, key=lambda j: (-lows[j], j))[:n_leave]  # of equal ones the oldest
            kept = [j for j in kept if j not in leaving]
        yield list(kept)


@pytest.mark.parametrize("sizes", [(1,), (25, 1), (7,), (30, 4, 1, 1, 9)], ids=str)
@pytest.mark.parametrize("window", [16, 40, 400])
def test_it_keeps_what_the_loop_keeps_after_every_pass(window, sizes):
    model, policy = sharp_model(), Scissorhands(budget=11, recent=3, window=window)
    first, passes = FirstLayer(model, IDS[0]), passes_of(60, sizes)
    expected = [list(naive(first, head, passes, policy)) for head in range(2)]
    with evicting(model, policy) as cache:
        for tokens, *heads in zip(passes, *expected, strict=True):
            run(model, cache, IDS, tokens)
            assert kept_by(cache.slots[0]) == heads


@pytest.mark.parametrize(("dropped", "sinks"), [(0.0, 0), (0.3, 2), (0.9, 1)])
def test_other_shares_and_sinks(dropped, sinks):
    """0.9 of 11 slots would leave 2, but a sink and three recent tokens stay."""
    model, policy = sharp_model(), Scissorhands(budget=11, recent=3, window=16, dropped=dropped, sinks=sinks)
    first, passes = FirstLayer(model, IDS[0]), passes_of(60, (1,))
    expected = [list(naive(first, head, passes, policy)) for head in range(2)]
    with evicting(model, policy) as cache:
        for tokens, *heads in zip(passes, *expected, strict=True):
            run(model, cache, IDS, tokens)
            assert kept_by(cache.slots[0]) == heads


def five_tokens(*rows_of_heads):
    """A key-value head of two query heads, after five queries with these weights."""
    keys = torch.zeros(1, 1, 5, 2)
    slots = Slots.empty(keys).append_(keys, keys, NewTokens.of(torch.ones(1, 5, dtype=torch.bool)))
    weights = torch.tensor(rows_of_heads).view(1, 1, 2, 5, 5)
    return slots, Observed(weights, torch.arange(5)[None], torch.tensor([4]))


FIRST = [[1, 0, 0, 0, 0], [0.4, 0.6, 0, 0, 0], [0.2, 0.5, 0.3, 0, 0], [0.1, 0.5, 0.2, 0.2, 0], [0, 0.6, 0.1, 0.1, 0.2]]
OTHER = [[1, 0, 0, 0, 0], [0.4, 0.6, 0, 0, 0], [0.2, 0.7, 0.1, 0, 0], [0.1, 0.3, 0.4, 0.2, 0], [0, 0.2, 0.5, 0.1, 0.2]]


def test_a_hand_made_head():
    """Means of the two heads: token 0 is low for queries 2, 3, 4, 5 (.4 < 1/2, .2 < 1/3, .1, 0); token 1 never
    (.6, .6, .4, .4); token 2 for query 3 alone (.2 < 1/3; then .3, .3); token 3 for 4 and 5 (.2, .1); token 4 never
    (.2 is not below 1/5). Of four slots two are dropped at once: tokens 4, recent, and 1 stay."""
    slots, seen = five_tokens(FIRST, OTHER)
    policy = Scissorhands(budget=4, recent=1, window=8)
    slots = slots.remember_(policy.remember(slots, seen))
    assert slots.memory("low", 8).sum(dim=3).tolist() == [[[4, 0, 1, 2, 0]]]
    assert slots.memory("low", 8)[0, 0, 0].tolist() == [0, 1, 1, 1, 1, 0, 0, 0]  # an eighth of 8 is one query
    assert kept_by(policy.shrink(deepcopy(slots), 0)) == [[1, 4]]
    assert kept_by(Scissorhands(budget=4, recent=1, window=8, dropped=0.25).shrink(slots, 0)) == [[1, 2, 4]]


def test_of_equal_counts_the_oldest_leaves():
    slots, _ = five_tokens(FIRST, OTHER)
    policy = Scissorhands(budget=4, recent=1, window=8)
    slots = slots.remember_({"low": torch.ones(1, 1, 5, 8)})
    assert kept_by(policy.shrink(slots, 0)) == [[3, 4]]


def test_a_head_within_its_budget_loses_nothing():
    slots, _ = five_tokens(FIRST, OTHER)
    assert kept_by(Scissorhands(budget=5, recent=1).shrink(slots, 0)) == [[0, 1, 2, 3, 4]]


def test_later_layers_get_more():
    assert rising(3) == (0.5, 1.0, 1.5)
    assert rising(2, last=1.2) == pytest.approx((0.8, 1.2))
    assert rising(1) == (1.0,)
    assert sum(rising(30)) == pytest.approx(30)
    model, passes = tiny_model(), passes_of(60, (40, 1))
    with evicting(model, Scissorhands(budget=10, recent=3, window=16, by_layer=rising(2))) as cache:
        run(model, cache, IDS, passes[0])
    assert [slots.n for slots in cache.slots] == [5 - 2, 15 - 7]


@pytest.mark.parametrize("settings", [{"window": 0}, {"window": 12}, {"dropped": 1.0}], ids=str)
def test_settings_that_do_not_fit(settings):
    with pytest.raises(ValueError, match="expected"):
        Scissorhands(**settings)
