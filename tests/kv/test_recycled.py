"""Recycled attention: a naive loop, and where it must be the stock cache exactly."""

import pytest
import torch
from test_kv_oracles import IDS, Recorder

from course_lib.kv.policies.window import Window
from course_lib.kv.recycled import Recycled, _check, recycling
from course_lib.models import tiny_model

BATCH = torch.randint(3, 97, (2, 20), generator=torch.Generator().manual_seed(2))
ASKED = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}


def naive(rows, n_prompt, budget, every):
    """Working sets after each step, of one key-value head: what the newest query reads most; one in, one out."""
    n, working, since = IDS.shape[1], None, 0
    for i in range(n_prompt - 1, n):
        since += 1
        full = working is None or (every is not None and since >= every)
        read = list(range(i + 1)) if full else [*working, i]
        weights = torch.tensor(rows(read, i)).mean(dim=0).tolist()
        worth = {j: weight for j, weight in zip(read, weights, strict=True) if j != i}
        best = sorted(worth, key=worth.get, reverse=True)[: budget - 1]
        working, since = sorted([*best, i]), 0 if full else since
        yield working


@pytest.mark.parametrize("every", [None, 1, 4])
@torch.no_grad()
def test_the_working_set_is_that_of_the_loop(every):
    model = tiny_model()
    recorded = Recorder(model)
    expected = [list(naive(recorded.rows(head), 10, 5, every)) for head in range(2)]
    with recycling(model, Recycled(budget=5, every=every)) as cache:
        for step, (start, end) in enumerate([(0, 10), *((i, i + 1) for i in range(10, IDS.shape[1]))]):
            model(IDS[:, start:end], past_key_values=cache, use_cache=True)
            kept = cache.slots[0].position[0].sort(dim=1).values.tolist()
            assert kept == [expected[head][step] for head in range(2)]
    n_steps = IDS.shape[1] - 10
    assert cache.n_full == [1 + (n_steps // every if every else 0)] * 2


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": 3, "every": 1},
        {"budget": 1.0, "every": None},
        {"budget": 40, "every": 7},
        {"budget": 3, "similarity": 1.0, "check": 1},
    ],
    ids=["each step is full", "all is worked with", "room for all", "no query is as the last"],
)
@pytest.mark.parametrize("beams", [1, 3])
def test_where_nothing_is_left_out_the_tokens_are_those_of_the_stock_cache(settings, beams):
    model = tiny_model()
    mask = torch.stack([torch.arange(20) >= 0, torch.arange(20) >= 6]).long()
    asked = ASKED | {"num_beams": beams, "attention_mask": mask}
    expected = model.generate(BATCH, **asked)
    with recycling(model, Recycled(**settings)) as cache:
        assert torch.equal(model.generate(BATCH, past_key_values=cache, **asked), expected)


def test_queries_that_resemble_the_last_ones_need_no_full_step():
    model = tiny_model()
    with recycling(model, Recycled(budget=4, similarity=-1.0, check=1)) as cache:
        model.generate(BATCH, past_key_values=cache, attention_mask=torch.ones_like(BATCH), **ASKED)
    assert cache.n_full == [1, 1]
    assert all(slots.n == 4 for slots in cache.slots)


def test_the_check_comes_every_few_steps():
    settings, up, down = Recycled(similarity=0.5, check=3), torch.ones(1, 2, 1, 4), -torch.ones(1, 2, 1, 4)
    assert [settings.is_due(n, down, up) for n in range(1, 7)] == [False, False, True, False, False, True]
    assert not settings.is_due(3, up, up)
    half = torch.cat([up[:, :1], down[:, :1]], dim=1)  # cosines 1 and -1: 0 on average
    assert settings.is_due(3, half, up)
    assert Recycled(similarity=-0.5, check=3).is_due(3, half, up) is False
    two = torch.cat([up, half])
    assert settings.is_due(3, two, torch.cat([up, up]))  # one sequence is enough


def test_it_needs_more_memory_and_says_so():
    model = tiny_model()
    with recycling(model, Recycled(budget=6)) as cache, torch.no_grad():
        model(BATCH, past_key_values=cache, use_cache=True)
        a_token = 2 * 2 * 8 * 4  # keys and values, 2 heads of 8 float32
        assert cache.bytes_held == 2 * 2 * (20 + 6) * a_token
        assert cache.bytes_of_all == 2 * 2 * 20 * a_token
        cache.reset()
        assert cache.bytes_held == 0
        model(BATCH[:1], past_key_values=cache, use_cache=True)
        assert cache.n_full == [1, 1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"every": 0}, "got every 0; expected a whole number of steps"),
        ({"every": 2.5}, "got every 2.5"),
        ({"check": 0}, "got check 0"),
        ({"similarity": 2.0}, "got similarity 2.0; expected a cosine"),
        ({"budget": 0}, "got a budget of 0"),
    ],
)
def test_settings_that_mean_nothing(settings, said):
    with pytest.raises((ValueError, TypeError), match=f"{said}|{next(iter(settings))}"):
        Recycled(**settings)


def test_a_policy_does_not_recycle():
    with pytest.raises(ValueError, match=r"expected Recycled\(budget=...\)"):
        _check(Window(4))
