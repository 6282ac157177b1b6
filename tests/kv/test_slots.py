"""Slots: what leaves, what moves into its place, and that everything of a token moves along."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kv.quantized import Quantized
from course_lib.kv.rotation import RollingSlots
from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FREE


def slots_of(n_sequences, n_heads, n_tokens, padding=None):
    """Keys and values that say whose token they are: 100·sequence + 10·head + token, values the negative."""
    name = 100 * torch.arange(n_sequences)[:, None, None] + 10 * torch.arange(n_heads)[None, :, None]
    keys = (name + torch.arange(n_tokens))[..., None].float().repeat(1, 1, 1, 2)
    valid = torch.ones(n_sequences, n_tokens, dtype=torch.bool) if padding is None else padding
    rotation = torch.arange(n_tokens).expand(n_sequences, -1)
    return RollingSlots.empty(keys).append_(keys, -keys, NewTokens.of(valid, rotation))


def test_the_lowest_leaves_and_the_last_takes_its_place():
    slots = slots_of(1, 1, 4).remember_({"mass": torch.tensor([[[5.0, 1.0, 3.0, 4.0]]])})
    kept = slots.keep_best_(slots.memory("mass"), torch.tensor([[3]]))
    assert kept.n == 3
    assert kept.position.tolist() == [[[0, 3, 2]]]  # slot 1 was the lowest
    assert kept.keys[0, 0, :, 0].tolist() == [0, 3, 2]
    assert kept.values[0, 0, :, 0].tolist() == [0, -3, -2]
    assert kept.rotation.tolist() == [[[0, 3, 2]]]
    assert kept.memory("mass").tolist() == [[[5, 4, 3]]]
    assert not kept.has_free


def test_each_head_keeps_its_own_and_a_smaller_one_has_free_slots():
    slots = slots_of(1, 2, 3)
    score = torch.tensor([[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]])
    kept = slots.keep_best_(score, torch.tensor([[2, 1]]))
    assert sorted(kept.position[0, 0].tolist()) == [1, 2]
    assert sorted(kept.position[0, 1].tolist()) == [0, FREE]
    assert kept.has_free
    assert kept.occupied.sum(dim=2).tolist() == [[2, 1]]


def test_padding_leaves_first():
    padding = torch.tensor([[False, False, True, True], [True, True, True, True]])
    slots = slots_of(2, 1, 4, padding)
    assert slots.n_seen.tolist() == [2, 4]
    kept = slots.keep_best_(torch.tensor([[[9.0, 9.0, 1.0, 2.0]], [[1.0, 2.0, 3.0, 4.0]]]), torch.tensor([[2], [2]]))
    assert [sorted(row[0].tolist()) for row in kept.position] == [[0, 1], [2, 3]]
    assert kept.keys[0, 0, :, 0].sort().values.tolist() == [2, 3]
    assert not kept.has_free


def test_a_token_that_comes_has_no_memory_even_where_one_left():
    slots = slots_of(1, 1, 3).remember_({"mass": torch.tensor([[[1.0, 2.0, 3.0]]])})
    slots = slots.keep_best_(slots.memory("mass"), torch.tensor([[2]]))
    key = torch.full((1, 1, 1, 2), 7.0)
    slots = slots.append_(key, key, NewTokens.of(torch.ones(1, 1, dtype=torch.bool), n_seen=slots.n_seen))
    assert slots.position[0, 0].tolist() == [2, 1, 3]
    assert slots.memory("mass")[0, 0].tolist() == [3, 2, 0]


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 12), st.data())
def test_what_stays_is_what_sorting_says_and_is_whole(n_sequences, n_heads, n_tokens, data):
    seed = data.draw(st.integers(0, 10**6))
    n_places = n_sequences * n_heads
    sizes = torch.tensor(data.draw(st.lists(st.integers(1, 13), min_size=n_places, max_size=n_places)))
    sizes = sizes.view(n_sequences, n_heads)
    n_padding = data.draw(st.lists(st.integers(0, n_tokens - 1), min_size=n_sequences, max_size=n_sequences))
    valid = torch.arange(n_tokens) >= torch.tensor(n_padding)[:, None]
    score = torch.randperm(n_sequences * n_heads * n_tokens, generator=torch.Generator().manual_seed(seed))
    score = score.view(n_sequences, n_heads, n_tokens).float()
    kept = slots_of(n_sequences, n_heads, n_tokens, valid).keep_best_(score, sizes)
    for b in range(n_sequences):
        for h in range(n_heads):
            mine = [(score[b, h, j].item(), j) for j in range(n_padding[b], n_tokens)]
            expected = sorted(j for _, j in sorted(mine, reverse=True)[: int(sizes[b, h])])
            taken = kept.occupied[b, h]
            name = 100 * b + 10 * h
            assert sorted((kept.keys[b, h, taken, 0] - name).int().tolist()) == expected
            assert sorted((kept.position[b, h, taken] + n_padding[b]).tolist()) == expected
            torch.testing.assert_close(kept.values[b, h, taken], -kept.keys[b, h, taken])
    assert kept.has_free == bool((~kept.occupied).any())


def test_other_sequences_take_everything_with_them():
    slots = slots_of(2, 1, 3, torch.tensor([[False, True, True], [True, True, True]]))
    chosen = slots.select(torch.tensor([1, 1, 0]))
    assert chosen.n_seen.tolist() == [3, 3, 2]
    assert chosen.keys[:, 0, 1, 0].tolist() == [101, 101, 1]


@pytest.mark.parametrize("n_steps", [1, 200])
def test_storage_grows_without_losing_anything(n_steps):
    slots = slots_of(1, 1, 3)
    for step in range(n_steps):
        key = torch.full((1, 1, 1, 2), 3.0 + step)
        slots = slots.append_(key, -key, NewTokens.of(torch.ones(1, 1, dtype=torch.bool), n_seen=slots.n_seen))
    assert slots.keys[0, 0, :, 0].tolist() == list(range(3 + n_steps))
    assert slots.position[0, 0].tolist() == list(range(3 + n_steps))


def test_methods_with_an_underscore_write_in_place_and_copies_are_on_their_own():
    """What happens to the slots afterwards does not reach a copy, its notes or its newest vectors."""
    keys, valid = torch.arange(8.0).view(1, 1, 4, 2), torch.ones(1, 4, dtype=torch.bool)
    slots = Slots.empty(keys, Quantized(residual=4, group=2)).append_(keys, -keys, NewTokens.of(valid))
    slots.per_head["share"] = torch.ones(1, 1)
    everything = torch.arange(4)[None, None]
    copies = [slots.take(everything), slots.select(torch.tensor([0]))]
    slots.per_head["share"] = torch.zeros(1, 1)
    assert slots.remember_({"mass": torch.ones(1, 1, 4)}) is slots
    assert slots.overwrite_(everything, keys + 9, keys + 9) is slots
    assert slots.keep_best_(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), torch.tensor([[3]])) is slots
    assert slots.position.tolist() == [[[3, 1, 2]]]
    assert slots.keys[0, 0, 0].tolist() == [15, 16]
    for copy in copies:
        assert copy.position.tolist() == [[[0, 1, 2, 3]]]
        assert torch.equal(copy.keys, keys)
        assert copy.per_head["share"].tolist() == [[1]]
        assert "mass" not in copy.storage
