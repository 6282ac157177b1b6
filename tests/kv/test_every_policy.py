"""What every eviction policy promises, for every file of course_lib/kv/policies."""

import dataclasses
import inspect
import re
from types import SimpleNamespace

import pytest
import torch

from course_lib import discover
from course_lib.kv import policies
from course_lib.kv.cache import evicting
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.vectors import FREE, pick
from course_lib.models import tiny_model

POLICIES = discover.subclasses(policies, EvictionPolicy)
SHRINKING = [policy for policy in POLICIES if policy.__name__ != "Full"]
STEADY = [policy for policy in SHRINKING if policy.always_full]
IDS = torch.randint(3, 97, (3, 40), generator=torch.Generator().manual_seed(0))
names = {"ids": lambda policy: policy.__name__}


def made(policy, **settings):
    """With every layer under the budget, also where a policy spares some by default."""
    if "spared" in {field.name for field in dataclasses.fields(policy)}:
        settings["spared"] = ()
    return policy(**settings)


def small(policy, budget=12):
    return made(policy, budget=budget, sinks=policy(budget=1.0).sinks, recent=4)


def logits_of(model, cache, ids, chunk, mask=None):
    """Logits at every token, fed in chunks."""
    found, positions = [], ((torch.ones_like(ids) if mask is None else mask).cumsum(dim=1) - 1).clamp(min=0)
    with torch.no_grad():
        for start in range(0, ids.shape[1], chunk):
            end = min(start + chunk, ids.shape[1])
            out = model(
                ids[:, start:end],
                attention_mask=None if mask is None else mask[:, :end],
                position_ids=positions[:, start:end],
                past_key_values=cache,
                use_cache=True,
            )
            found.append(out.logits)
    return torch.cat(found, dim=1)


def test_there_are_policies():
    names = {policy.__name__ for policy in POLICIES}
    assert {"D2O", "EMS", "Full", "H2O", "Scissorhands", "SnapKV"} <= names
    assert {"StreamingH2O", "StreamingLLM", "TOVA", "Window"} <= names


@pytest.mark.parametrize("policy", POLICIES, **names)
def test_it_says_where_it_comes_from_and_is_short(policy):
    module = inspect.getmodule(policy)
    assert policy.__name__ == "Full" or re.search(r"\d{4}, https://", module.__doc__.splitlines()[0])
    assert policy.__doc__
    assert len(inspect.getsource(module).splitlines()) <= 70


@pytest.mark.parametrize("positions", ["original", "rolling"])
@pytest.mark.parametrize("policy", POLICIES, **names)
def test_without_eviction_the_tokens_are_those_of_the_stock_cache(policy, positions):
    model = tiny_model()
    asked = {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    expected = model.generate(IDS, **asked)
    with evicting(model, policy(budget=1.0), positions) as cache:
        assert torch.equal(model.generate(IDS, past_key_values=cache, **asked), expected)
    assert cache.bytes_held == cache.bytes_of_all == 2 * 2 * 3 * 51 * 2 * 8 * 4  # the last token was never cached


@pytest.mark.parametrize("chunk", [1, 7, 40])
@pytest.mark.parametrize("policy", POLICIES, **names)
def test_without_eviction_chunks_do_not_matter(policy, chunk):
    model = tiny_model()
    expected = model(IDS).logits
    with evicting(model, policy(budget=1.0)) as cache:
        found = logits_of(model, cache, IDS, chunk)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)  # sums in another order


@pytest.mark.parametrize("chunk", [1, 5, 40])
@pytest.mark.parametrize("policy", SHRINKING, **names)
def test_the_budget_holds_after_every_pass_and_the_newest_stay(policy, chunk):
    model, settings = tiny_model(), small(policy)
    with evicting(model, settings) as cache:
        for start in range(0, 40, chunk):
            logits_of(model, cache, IDS[:, start : start + chunk], chunk)
            seen = min(start + chunk, 40)
            held = [int(slots.occupied.sum()) for slots in cache.slots]
            if policy.always_full:
                assert held == [3 * 2 * min(seen, 12)] * 2
            elif chunk > 1:
                assert sum(held) <= 2 * 3 * 2 * min(seen, 12)
            for slots in cache.slots:
                kept = slots.position.sort(dim=2).values
                assert (kept[:, :, 1:] > kept[:, :, :-1]).logical_or(kept[:, :, 1:] == FREE).all()  # nobody twice
                for token in (*range(max(0, seen - 4), seen), *range(min(settings.sinks, seen))):
                    assert (kept == token).any(dim=2).all()
    if policy.always_full:
        assert cache.n_evicted == 2 * (40 - 12)
        assert cache.bytes_held == 2 * 2 * 3 * 12 * 2 * 8 * 4
    assert cache.n_evicted or chunk == 1


@pytest.mark.parametrize("policy", STEADY, **names)
def test_a_share_of_the_budget_may_leave_at_once(policy):
    """A quarter of 12 slots: the thirteenth token takes three more with it. One that is protected stays."""
    model, settings = tiny_model(), dataclasses.replace(small(policy), dropped=0.25)
    with evicting(model, settings) as cache:
        held = []
        for token in range(40):
            logits_of(model, cache, IDS[:, token : token + 1], 1)
            held.append(cache.slots[0].n)
            assert (
                cache.slots[0].position.sort(dim=2).values[:, :, -min(4, held[-1]) :][..., 0] == max(0, token - 3)
            ).all()
    assert held == [*range(1, 13), *[9, 10, 11, 12] * 7]
    most = dataclasses.replace(small(policy), dropped=0.99)
    with evicting(model, most) as cache:
        logits_of(model, cache, IDS, 40)
    assert [slots.n for slots in cache.slots] == [most.sinks + 4] * 2


@pytest.mark.parametrize("positions", ["original", "rolling"])
@pytest.mark.parametrize("chunk", [1, 6, 40])
@pytest.mark.parametrize("policy", POLICIES, **names)
def test_padding_on_the_left_changes_nothing(policy, chunk, positions):
    if policy.allocates_layers and chunk < 40:
        pytest.skip("it plans on the first pass, which must hold a prompt and not its padding alone")
    model = tiny_model()
    n_padding = (0, 3, 11)
    mask = torch.stack([(torch.arange(40) >= n).long() for n in n_padding])
    settings = small(policy) if policy in SHRINKING else policy()
    with evicting(model, settings, positions) as cache:
        together = logits_of(model, cache, IDS, chunk, mask)
    for row, n in enumerate(n_padding):
        starts = [max(start - n, 0) for start in range(0, 40, chunk)]  # the same tokens in the same passes
        with evicting(model, settings, positions) as alone:
            found = [
                logits_of(model, alone, IDS[row : row + 1, n + start : n + end], 40)
                if not start
                else step(model, alone, IDS[row : row + 1, n + start : n + end], start)
                for start, end in zip(starts, [*starts[1:], 40 - n], strict=True)
                if end > start
            ]
        for layer, (mine, its) in enumerate(zip(cache.slots, alone.slots, strict=True)):
            assert_same_tokens(mine.select(row_of(row)), its, f"layer {layer}, {n} padding tokens on the left")
        torch.testing.assert_close(together[row : row + 1, n:], torch.cat(found, dim=1), rtol=1e-4, atol=1e-5)
        for mine, its in zip(cache.slots, alone.slots, strict=True):
            by_token, alone_by_token = (each.position.argsort(dim=2) for each in (mine.select(row_of(row)), its))
            n_kept = its.n
            for name in mine.storage.keys() - {"keys", "values", "rotation"}:
                found, expected = mine.storage[name][row : row + 1, :, : mine.n], its.storage[name][:, :, :n_kept]
                found = pick(found, by_token)[:, :, :n_kept]
                torch.testing.assert_close(found, pick(expected, alone_by_token), rtol=1e-4, atol=1e-5)


def row_of(row):
    return torch.tensor([row])


def assert_same_tokens(padded, alone, where):
    """Compare the tokens of every head of a sequence in a padded batch with those that are kept without padding."""
    heads = zip(*(each.position[0].sort(dim=1).values[:, : alone.n].tolist() for each in (padded, alone)), strict=True)
    for head, (found, expected) in enumerate(heads):
        assert found == expected, (
            f"{where}, head {head}: got the tokens {found}, expected {expected}, which are kept without padding. "
            "Padding may change neither scores nor their order. Between equal scores the position of the token has to "
            "decide, since padding changes the place of its slot."
        )


def test_other_tokens_with_padding_are_named():
    padded, alone = (SimpleNamespace(position=torch.tensor([[kept]]), n=2) for kept in ([5, 0, FREE], [0, 4]))
    with pytest.raises(AssertionError, match=r"layer 1, head 0: got the tokens \[0, 5\], expected \[0, 4\]"):
        assert_same_tokens(padded, alone, "layer 1")


def step(model, cache, ids, start):
    positions = torch.arange(start, start + ids.shape[1])[None]
    with torch.no_grad():
        return model(ids, position_ids=positions, past_key_values=cache, use_cache=True).logits


@pytest.mark.parametrize("policy", STEADY, **names)
def test_budgets_by_layer_and_head(policy):
    model = tiny_model()
    settings = policy(budget=12, sinks=2, recent=2, by_layer=(0.5, 1.5), by_head=(1.0, 0.75))
    with evicting(model, settings) as cache:
        logits_of(model, cache, IDS, 8)
    assert [slots.occupied.sum(dim=2).tolist() for slots in cache.slots] == [[[6, 4]] * 3, [[18, 13]] * 3]
    assert cache.bytes_held == 3 * (6 + 4 + 18 + 13) * 2 * 8 * 4


@pytest.mark.parametrize("policy", STEADY, **names)
def test_a_fraction_is_of_what_has_been_seen(policy):
    model = tiny_model()
    with evicting(model, policy(budget=0.3, sinks=1, recent=1)) as cache:
        for n_seen, expected in ((20, 6), (30, 9), (40, 12)):
            logits_of(model, cache, IDS[:, : n_seen - cache.get_seq_length()], 40)
            assert {slots.n for slots in cache.slots} == {expected}


@pytest.mark.parametrize("policy", POLICIES, **names)
def test_sequences_of_a_batch_do_not_see_each_other(policy):
    model = tiny_model()
    settings = small(policy) if policy in SHRINKING else policy()
    with evicting(model, settings) as cache:
        together = logits_of(model, cache, IDS, 10)
    with evicting(model, settings) as cache:
        alone = logits_of(model, cache, IDS[1:2], 10)
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", POLICIES, **names)
def test_beams_take_their_slots_along(policy):
    """Beam search over the evicting cache is beam search over the stock one while nothing leaves."""
    model = tiny_model()
    asked = {"num_beams": 3, "max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    asked["attention_mask"] = torch.ones_like(IDS)
    expected = model.generate(IDS, **asked)
    with evicting(model, policy(budget=1.0)) as cache:
        assert torch.equal(model.generate(IDS, past_key_values=cache, **asked), expected)


@pytest.mark.parametrize("policy", POLICIES, **names)
def test_a_cache_of_one_block_knows_nothing_of_the_last(policy):
    model = tiny_model()
    settings = small(policy) if policy in SHRINKING else policy()
    found = []
    for _ in range(2):
        with evicting(model, settings) as cache:
            found.append(logits_of(model, cache, IDS, 6))
            cache.reset()
            found.append(logits_of(model, cache, IDS, 6))
    assert all(torch.equal(found[0], other) for other in found[1:])
