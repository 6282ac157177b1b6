"""Column sums from the log-sum-exp: by hand, against softmax written out, gaps, views of a larger cache, refusals."""

import math

import pytest
import torch
from course_lib.kernels.cache import attention_mass
from course_lib.kernels.cache.attention_mass import bytes_moved, example, log_sum_exp
from kernel_device import on_device

from course_lib.kv.attend import attend_
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FREE

launch = on_device(attention_mass.launch)


def explicit(query, keys, position, slot_position, scaling):
    """Keys repeated for each query head, the whole matrix of weights, and its column sums by group."""
    n_groups = query.shape[1] // keys.shape[1]
    logits = scaling * query @ keys.repeat_interleave(n_groups, 1).transpose(2, 3)
    hidden = slot_position.repeat_interleave(n_groups, 1)[:, :, None] > position[:, None, :, None]
    weights = logits.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return weights.sum(dim=2).unflatten(1, (-1, n_groups)).sum(dim=2)


def test_two_queries_by_hand():
    """The first sees the first key alone. To the second, 1 and 3 are the exponentials: it gives 1/4 and 3/4."""
    query, keys = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]]), torch.tensor([[[[0.0, 5.0], [math.log(3), 0.0]]]])
    lse = torch.tensor([[[0.0, math.log(4)]]])
    at = torch.tensor([[0, 1]])
    torch.testing.assert_close(launch(query, keys, lse, at, at[None], 1.0), torch.tensor([[[1.25, 0.75]]]))
    torch.testing.assert_close(log_sum_exp(query, keys, at, at[None], 1.0), lse)


@pytest.mark.parametrize("key_at", [0, 1, 63, 64, 65, 66])
def test_a_key_is_seen_from_its_own_position_on(key_at):
    """Wherever that lies in a tile of queries. All logits and log-sums are 0, so each of the 67 queries gives 1."""
    query, lse, position = torch.zeros(1, 1, 67, 8), torch.zeros(1, 1, 67), torch.arange(67)[None]
    mass = launch(query, query[:, :, :1].contiguous(), lse, position, torch.tensor([[[key_at]]]), 1.0)
    assert mass.tolist() == [[[67.0 - key_at]]]


def test_is_the_column_sum_of_softmax_over_the_whole_group(generator):
    query, keys, lse, position, slot_position, scaling = example(generator, torch.float32, "cpu", (2, 2, 3, 21, 70, 8))
    expected = explicit(query, keys, position, slot_position, scaling)
    torch.testing.assert_close(launch(query, keys, lse, position, slot_position, scaling), expected)


def test_every_query_that_sees_something_gives_one(generator):
    arguments = example(generator, torch.float32, "cpu", (2, 2, 3, 12, 40, 8), gaps=True)
    given = launch(*arguments).sum(dim=2)
    # Three heads of 12 queries; the first 4 of the second sequence are padding.
    torch.testing.assert_close(given, torch.tensor([[36.0, 36.0], [24.0, 24.0]]))


def test_nothing_is_read_of_free_slots_and_padding(generator):
    query, keys, lse, position, slot_position, scaling = example(
        generator, torch.float32, "cpu", (2, 1, 3, 12, 40, 8), gaps=True
    )
    expected = launch(query, keys, lse, position, slot_position, scaling)
    keys[slot_position == FREE] = torch.nan
    for tensor in (query, lse):
        tensor.transpose(1, 2)[position == FREE] = torch.nan
    got = launch(query, keys, lse, position, slot_position, scaling)
    assert torch.equal(got, expected)
    assert got[slot_position == FREE].eq(0).all()
    again, asks = (
        log_sum_exp(query, keys, position, slot_position, scaling),
        (position != FREE)[:, None].expand(-1, 3, -1),
    )
    assert torch.equal(again[asks], lse[asks])


def test_queries_before_all_keys_give_nothing(generator):
    query, keys, _, position, slot_position, scaling = example(generator, torch.float32, "cpu", (1, 1, 2, 3, 5, 8))
    slot_position = slot_position + 100
    lse = log_sum_exp(query, keys, position, slot_position, scaling)
    assert lse.eq(float("-inf")).all()
    assert launch(query, keys, lse, position, slot_position, scaling).eq(0).all()


def test_no_queries_give_nothing(generator):
    query, keys, lse, position, *rest = example(generator, torch.float32, "cpu", (1, 2, 1, 1, 5, 8))
    got = launch(query[:, :, :0], keys, lse[:, :, :0], position[:, :0], *rest)
    assert torch.equal(got, torch.zeros(1, 2, 5))


def test_positions_may_be_of_either_width(generator):
    query, keys, lse, position, slot_position, scaling = example(generator, torch.float32, "cpu", (1, 1, 2, 3, 5, 8))
    got = launch(query, keys, lse, position.int(), slot_position.long(), scaling)
    assert torch.equal(got, launch(query, keys, lse, position, slot_position, scaling))


@pytest.mark.parametrize(("n_sequences", "n_heads"), [(2, 2), (2, 1), (1, 2), (1, 1)])
def test_the_first_slots_of_a_larger_cache(n_sequences, n_heads, generator):
    query, keys, lse, position, slot_position, scaling = example(
        generator, torch.float32, "cpu", (n_sequences, n_heads, 1, 6, 20, 8)
    )
    room = torch.full((n_sequences, n_heads, 27, 8), torch.nan)
    position_room = torch.full((n_sequences, n_heads, 31), 7, dtype=torch.int32)
    room[:, :, :20], position_room[:, :, :20] = keys, slot_position
    got = launch(query, room[:, :, :20], lse, position, position_room[:, :, :20], scaling)
    assert torch.equal(got, launch(query, keys, lse, position, slot_position, scaling))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda keys: keys[:, :1].expand(-1, 2, -1, -1), "keys has strides .*: expected a contiguous tensor; call"),
        (lambda keys: keys.transpose(1, 2).contiguous().transpose(1, 2), "keys has strides .* first 20 slots"),
        (lambda keys: torch.cat([keys, keys], 1)[:, :2], "keys has strides .* first 20 slots"),
        (lambda keys: keys.repeat_interleave(2, 2)[:, :, ::2], "keys has strides .* first 20 slots"),
        (lambda keys: keys[:, :, 0], "expected .*sequences, key-value heads, slots, size.*; check"),
    ],
    ids=["one head for all", "heads inside", "some of the heads", "every other slot", "one slot"],
)
def test_other_views_are_refused(spoil, message, generator):
    query, keys, *rest = example(generator, torch.float32, "cpu", (2, 2, 3, 6, 20, 8))
    with pytest.raises(ValueError, match=message):
        launch(query, spoil(keys), *rest)


def test_query_heads_must_share_out_evenly(generator):
    query, keys, *rest = example(generator, torch.float32, "cpu", (2, 2, 3, 6, 20, 8))
    with pytest.raises(ValueError, match="a multiple of heads; check which"):
        launch(query[:, :5].contiguous(), keys, *rest)


def test_is_what_h2o_adds_up_over_a_prompt(generator):
    query, keys = torch.randn(2, 6, 33, 8, generator=generator), torch.randn(2, 2, 33, 8, generator=generator)
    valid = torch.ones(2, 33, dtype=torch.bool)
    valid[1, :5] = False
    position = torch.where(valid, valid.cumsum(dim=1) - 1, FREE)
    slots = Slots.empty(keys).append_(keys, keys, NewTokens.of(valid))
    attend_(query, slots, position, 0.35, H2O())
    lse = log_sum_exp(query, keys, position, slots.position, 0.35)
    torch.testing.assert_close(launch(query, keys, lse, position, slots.position, 0.35), slots.memory("mass"))


def test_the_reference_needs_no_more_memory_than_its_chunks(generator, monkeypatch):
    arguments = example(generator, torch.float32, "cpu", (2, 2, 3, 21, 30, 8), gaps=True)
    expected, lse = attention_mass.reference(*arguments), arguments[2]
    sizes, product = [], torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: sizes.append((c := product(a, b)).numel()) or c)
    monkeypatch.setattr(attention_mass, "CHUNK", 4000)
    torch.testing.assert_close(attention_mass.reference(*arguments), expected)
    torch.testing.assert_close(log_sum_exp(*arguments[:2], *arguments[3:]), lse)
    assert len(sizes) == 2 * 2  # 2 x 6 x 30 weights a query: 11 of the 21 at a time, in both functions
    assert max(sizes) <= 4000


def test_bytes_by_hand(generator):
    arguments = example(generator, torch.float16, "cpu", (1, 1, 2, 4, 8, 16))
    # 2 x 4 queries and 8 keys of 32 bytes, 8 log-sums of 4, 4 positions of 8, 8 of 4, and 8 sums of 4
    assert bytes_moved(*arguments) == 8 * 32 + 8 * 32 + 8 * 4 + 4 * 8 + 8 * 4 + 8 * 4
