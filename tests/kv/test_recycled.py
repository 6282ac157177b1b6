"""Recycled attention: a naive loop, and where it must be the stock cache exactly."""

import pytest
import torch
from kv_naive import kept_by, run
from test_kv_oracles import IDS, Recorder

from course_lib.kv.policies.window import Window
from course_lib.kv.recycled import Recycled, _check, recycling
from course_lib.models import blocks, tiny_model

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


def due(settings, n_steps, query, last_query):
    return settings.is_due(torch.tensor(n_steps), query, last_query).tolist()


def test_the_check_comes_every_few_steps():
    settings, up, down = Recycled(similarity=0.5, check=3), torch.ones(1, 2, 1, 4), -torch.ones(1, 2, 1, 4)
    found = [due(settings, [n], down, up) for n in range(1, 7)]
    assert found == [[False], [False], [True], [False], [False], [True]]
    assert due(settings, [3], up, up) == [False]
    half = torch.cat([up[:, :1], down[:, :1]], dim=1)  # cosines 1 and -1: 0 on average
    assert due(settings, [3], half, up) == [True]
    assert due(Recycled(similarity=-0.5, check=3), [3], half, up) == [False]
    assert due(Recycled(every=4), [3, 4], torch.cat([up, half]), torch.cat([up, up])) == [False, True]


def test_each_sequence_is_due_for_itself():
    settings, up = Recycled(similarity=0.5, check=3), torch.ones(1, 2, 1, 4)
    turned = torch.cat([up, -up, -up])
    assert due(settings, [3, 3, 4], turned, torch.cat([up] * 3)) == [False, True, False]


TEXTS = torch.randint(3, 97, (3, 26), generator=torch.Generator().manual_seed(4))
PADDING = (0, 5, 14)
WAYS = {
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 3},
    "sampled beams": {"do_sample": True, "num_beams": 3, "num_return_sequences": 3},
    "several samples": {"do_sample": True, "num_return_sequences": 3},
}


def discerning_model():
    """Tokens look at few others, and yet no weight is so small that float32 has none for it: equal scores tie."""
    model = tiny_model()
    with torch.no_grad():
        for block in blocks(model):
            block.self_attn.q_proj.weight *= 20
    return model


@torch.no_grad()
def alone(model, settings, prompt, answer):
    """The log-probabilities of an answer when one sequence is fed by itself, token by token."""
    with recycling(model, settings) as cache:
        logits = [model(prompt[None], past_key_values=cache, use_cache=True).logits[0, -1]]
        for token in answer[:-1]:
            logits.append(model(token[None, None], past_key_values=cache, use_cache=True).logits[0, -1])
    return torch.stack(logits).log_softmax(dim=1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "settings",
    [
        {"budget": 7, "similarity": 0.9, "check": 1},
        {"budget": 0.3, "similarity": 0.3, "check": 2, "dropped": 0.4},
        {"budget": 0.3, "every": 4},
    ],
    ids=str,
)
def test_in_a_batch_each_sequence_is_as_it_would_be_alone(way, settings, monkeypatch):
    """Left padding, beams that are reordered, samples: float32 sums in another order differ by 3e-5 at most."""
    model, mask = discerning_model(), (torch.arange(26) >= torch.tensor(PADDING)[:, None]).long()
    asked = {"max_new_tokens": 10, "eos_token_id": None, "attention_mask": mask, "return_dict_in_generate": True}
    due, is_due = [], Recycled.is_due
    monkeypatch.setattr(Recycled, "is_due", lambda *args: due.append(is_due(*args)) or due[-1])
    torch.manual_seed(0)
    with recycling(model, Recycled(**settings)) as cache:
        out = model.generate(TEXTS, past_key_values=cache, output_logits=True, **asked, **WAYS[way])
    assert any(rows.any() and not rows.all() for rows in due) == ("similarity" in settings)  # some, and not all
    for i, sequence in enumerate(out.sequences):
        beams = out.beam_indices[i].tolist() if "beams" in way else [i] * 10
        found = torch.stack([logits[beam] for logits, beam in zip(out.logits, beams, strict=True)])
        expected = alone(model, Recycled(**settings), TEXTS[i // 3, PADDING[i // 3] :], sequence[26:])
        torch.testing.assert_close(found.log_softmax(dim=1), expected, rtol=0, atol=3e-5)


@torch.no_grad()
def test_sequences_of_a_batch_work_with_what_each_would_hold_alone():
    model, settings = discerning_model(), Recycled(budget=0.3, similarity=0.9, check=2)
    mask = (torch.arange(26) >= torch.tensor(PADDING)[:, None]).long()
    with recycling(model, settings) as together:
        for part in (slice(0, 16), *(slice(i, i + 1) for i in range(16, 26))):
            run(model, together, TEXTS, range(part.start, part.stop), mask)
    for row, n in enumerate(PADDING):
        ids = TEXTS[row : row + 1, n:]
        with recycling(model, settings) as own:
            for part in (range(16 - n), *(range(i, i + 1) for i in range(16 - n, 26 - n))):
                run(model, own, ids, part)
        for both, one in zip(together.slots, own.slots, strict=True):
            assert kept_by(both, row) == kept_by(one)


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
