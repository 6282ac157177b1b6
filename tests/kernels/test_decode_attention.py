"""One token over a cache: by hand, against the library's attention, keys turned on, parts, gaps, views, refusals."""

import math

import numpy
import pytest
import torch
from course_lib.kernels.cache import decode_attention
from course_lib.kernels.cache.decode_attention import bytes_moved, example
from kernel_device import on_device

from course_lib.kv.attend import attend_
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.rotation import RollingSlots, Rotation
from course_lib.kv.slots import NewTokens
from course_lib.kv.vectors import FREE

launch = on_device(decode_attention.launch)


def test_two_slots_by_hand():
    """The exponentials of the logits are 1 and 3 to the first head, 1 and 1 to the second."""
    query = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    keys, values = torch.tensor([[[[0.0, 5.0], [math.log(3), 0.0]]]]), torch.tensor([[[[4.0, 8.0], [0.0, 16.0]]]])
    read = launch(query, keys, values, torch.tensor([1]), torch.tensor([[[1, 0]]]), 1.0)
    torch.testing.assert_close(read.output, torch.tensor([[[1.0, 14.0], [2.0, 12.0]]]))
    torch.testing.assert_close(read.mass, torch.tensor([[[0.75, 1.25]]]))


def test_a_quarter_turn_by_hand():
    """Turned by 90 degrees, (ln 3, 0) is (0, ln 3): the exponentials are 3 and 1."""
    query = torch.tensor([[[0.0, 1.0]]])
    keys = torch.tensor([[[[math.log(3), 0.0], [math.log(3), 0.0]]]])
    turns, frequencies = torch.tensor([[[2, 0]]]), torch.tensor([math.pi / 4])
    at = torch.tensor([[[0, 1]]])
    read = launch(query, keys, keys, torch.tensor([1]), at, 1.0, turns, frequencies)
    torch.testing.assert_close(read.mass, torch.tensor([[[0.75, 0.25]]]))
    torch.testing.assert_close(read.output, torch.tensor([[[math.log(3), 0.0]]]))  # values are not turned


def cache(generator, n_tokens=90):
    """Slots after an eviction and one more token: scrambled, FREE ones where a head keeps less, one left-padded row."""
    keys, values = torch.randn(2, 2, 2, n_tokens, 8, generator=generator)
    valid = torch.ones(2, n_tokens, dtype=torch.bool)
    valid[1, :30] = False
    rotation = torch.where(valid, valid.cumsum(dim=1) - 1, 1)
    slots = RollingSlots.empty(keys)
    slots.append_(keys[:, :, :-1], values[:, :, :-1], NewTokens.of(valid[:, :-1], rotation[:, :-1]))
    slots.keep_best_(torch.rand(2, 2, n_tokens - 1, generator=generator), torch.tensor([[70, 40], [70, 40]]))
    slots.append_(keys[:, :, -1:], values[:, :, -1:], NewTokens.of(valid[:, -1:], rotation[:, -1:], slots.n_seen))
    assert slots.has_free
    assert slots.storage["keys"].shape[2] > slots.n  # so that keys is a view of something larger
    return slots, rotation[:, -1].contiguous()


@pytest.mark.parametrize("rolling", [False, True])
def test_equals_the_librarys_attention(rolling, generator):
    slots, position = cache(generator)
    query = torch.randn(2, 6, 1, 8, generator=generator)
    rotation = Rotation(torch.tensor([1.0, 0.3, 0.05, 0.001]))
    expected = attend_(query, slots, position[:, None], 0.35, H2O(), rotation if rolling else None)
    turned, asks = (), query[:, :, 0]
    if rolling:  # here every key goes to its place and the query to its own; the library keeps the query where it is
        place = slots.position.argsort(dim=2).argsort(dim=2)
        turned = ((place - slots.rotation).contiguous(), rotation.frequencies)
        by = (slots.occupied.sum(dim=2) - 1 - position[:, None]).repeat_interleave(3, 1)
        asks = rotation.turn(asks, by)
    read = launch(asks, slots.keys, slots.values, position, slots.position, 0.35, *turned)
    torch.testing.assert_close(read.output, expected[:, :, 0])
    torch.testing.assert_close(read.mass, slots.memory("mass"))


def test_turning_far_is_as_exact_as_float32_angles(generator):
    """8000 positions on, an angle of 8000 is off by 2^-12 at most: half a unit of its last place."""
    query, keys, values, position, slot_position, scaling, turns, frequencies = example(
        generator, torch.float32, "cpu", (1, 2, 3, 70, 8), turned=True
    )
    turns = turns - 8000
    angle = turns[..., None].double() * frequencies.double()
    complex_keys = torch.complex(*keys.double().chunk(2, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    turned = torch.cat([complex_keys.real, complex_keys.imag], dim=-1).float()
    expected = launch(query, turned, values, position, slot_position, scaling)
    read = launch(query, keys, values, position, slot_position, scaling, turns, frequencies)
    torch.testing.assert_close(read.mass, expected.mass, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(read.output, expected.output, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("furthest", [10.0, 8192.0, 200_000.0])
def test_whole_turns_taken_off_an_angle_leave_it_as_it_was(furthest, generator):
    """What a compiled kernel does before the GPU's own sine, in numpy: a fused product and sum is rounded once."""
    angle = ((2 * torch.rand(20_000, generator=generator) - 1) * furthest).numpy()
    assert angle.dtype == numpy.float32
    n_turns = (angle * numpy.float32(1 / (2 * math.pi)) + numpy.float32(1.5 * 2**23)) - numpy.float32(1.5 * 2**23)
    left = angle
    for part in decode_attention.WHOLE_TURN:
        assert numpy.float32(part) == part
        left = (left.astype(numpy.float64) - n_turns.astype(numpy.float64) * part).astype(numpy.float32)
    assert numpy.abs(left).max() < 3.2  # where sin.approx and cos.approx are 2^-20.5 off
    left, angle = left.astype(numpy.float64), angle.astype(numpy.float64)
    assert numpy.abs(numpy.sin(left) - numpy.sin(angle)).max() < 2**-22
    assert numpy.abs(numpy.cos(left) - numpy.cos(angle)).max() < 2**-22


def test_only_the_distance_of_query_and_keys_matters(generator):
    query, keys, values, position, slot_position, scaling, turns, frequencies = example(
        generator, torch.float32, "cpu", (2, 1, 3, 70, 8), turned=True
    )
    expected = launch(query, keys, values, position, slot_position, scaling, turns, frequencies)
    by = torch.full(query.shape[:2], 37)
    query = Rotation(frequencies).turn(query, by)
    read = launch(query, keys, values, position, slot_position, scaling, turns + 37, frequencies)
    torch.testing.assert_close(read.output, expected.output, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_programs", [1, 4, 1000])
def test_any_number_of_parts_gives_the_same(n_programs, generator, monkeypatch):
    arguments = example(generator, torch.float32, "cpu", (1, 2, 3, 321, 8), gaps=False)
    expected = decode_attention.reference(*arguments)
    monkeypatch.setattr(decode_attention, "PROGRAMS", n_programs)
    read = launch(*arguments)
    torch.testing.assert_close(read.output, expected.output)
    torch.testing.assert_close(read.mass, expected.mass)


def test_more_parts_than_are_joined_at_a_time(generator, monkeypatch):
    """69 parts of 32 slots."""
    arguments = example(generator, torch.float32, "cpu", (1, 1, 3, 2200, 8))
    expected = decode_attention.reference(*arguments)
    monkeypatch.setattr(decode_attention, "PROGRAMS", 1000)
    read = launch(*arguments)
    torch.testing.assert_close(read.output, expected.output)
    torch.testing.assert_close(read.mass, expected.mass)


def test_logits_that_exp_cannot_hold(generator):
    """One slot has a logit of 900 and lies in the last part; the maximum of all parts has to reach the first."""
    query, keys, values, position, slot_position, _ = example(generator, torch.float32, "cpu", (1, 1, 3, 130, 8))[:6]
    query[:], keys[0, 0, 129] = 1.0, 900 / 8
    read = launch(query, keys, values, position, slot_position, 1.0)
    torch.testing.assert_close(read.output, values[:, :, 129].expand(-1, 3, -1))
    assert read.mass[0, 0].tolist() == [0.0] * 129 + [3.0]


def test_weights_of_a_group_add_up_to_its_heads(generator):
    arguments = example(generator, torch.float32, "cpu", (2, 2, 3, 70, 8), gaps=True)
    read = launch(*arguments)
    torch.testing.assert_close(read.mass.sum(dim=2), torch.tensor([[3.0, 3.0], [0.0, 0.0]]))
    assert read.output[1].eq(0).all()  # padding
    assert read.mass[arguments[4] == FREE].eq(0).all()


def test_nothing_is_read_of_slots_that_are_not_seen(generator):
    query, keys, values, position, slot_position, scaling, turns, frequencies = example(
        generator, torch.float32, "cpu", (2, 2, 3, 70, 8), gaps=True, turned=True
    )
    slot_position[:, :, 7] = 1000  # later than the token
    expected = launch(query, keys, values, position, slot_position, scaling, turns, frequencies)
    hidden = slot_position > position[:, None, None]
    assert hidden.sum() > 20
    keys[hidden] = values[hidden] = torch.nan
    read = launch(query, keys, values, position, slot_position, scaling, turns, frequencies)
    assert torch.equal(read.output, expected.output)
    assert torch.equal(read.mass, expected.mass)
    assert not read.output.isnan().any()


def test_the_first_slots_of_larger_caches(generator):
    """Each with room of its own; behind the 20 lie NaN, and turns and positions that would change the result."""
    query, keys, values, position, slot_position, scaling, turns, frequencies = example(
        generator, torch.float32, "cpu", (2, 2, 3, 20, 8), turned=True
    )
    views = []
    for extra, tensor in enumerate((keys, values, slot_position, turns), start=1):
        larger = tensor.new_full((2, 2, 20 + extra, *tensor.shape[3:]), torch.nan if tensor.is_floating_point() else 3)
        larger[:, :, :20] = tensor
        views.append(larger[:, :, :20])
    expected = launch(query, keys, values, position, slot_position, scaling, turns, frequencies)
    read = launch(query, *views[:2], position, views[2], scaling, views[3], frequencies)
    assert torch.equal(read.output, expected.output)
    assert torch.equal(read.mass, expected.mass)


def test_a_token_that_sees_nothing_reads_zeros(generator):
    query, keys, values, position, slot_position, scaling = example(generator, torch.float32, "cpu", (1, 2, 3, 5, 8))[
        :6
    ]
    read = launch(query, keys, values, position - 1000, slot_position, scaling)
    assert read.output.eq(0).all()
    assert read.mass.eq(0).all()


def test_positions_may_be_of_either_width(generator):
    query, keys, values, position, slot_position, *rest, turns, frequencies = example(
        generator, torch.float32, "cpu", (1, 2, 3, 5, 8), turned=True
    )
    expected = launch(query, keys, values, position, slot_position, *rest, turns, frequencies)
    read = launch(query, keys, values, position.int(), slot_position.long(), *rest, turns.long(), frequencies)
    assert torch.equal(read.output, expected.output)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"turns": None}, "turns without frequencies or the reverse: expected both or neither; pass both"),
        ({"frequencies": None}, "turns without frequencies or the reverse"),
        ({"query": torch.ones(2, 5, 8)}, "a multiple of heads and an even size; take one token"),
        ({"query": torch.ones(2, 6, 1, 8)}, "a multiple of heads and an even size; take one token"),
        ({"query": torch.ones(2, 6, 7), "keys": torch.ones(2, 2, 12, 7)}, "an even size"),
        ({"values": torch.ones(2, 2, 12, 16)[..., :8]}, "values has strides .*: expected a contiguous tensor; call"),
    ],
    ids=["frequencies alone", "turns alone", "heads", "two tokens", "odd", "view"],
)
def test_what_does_not_fit_is_refused(spoil, message, generator):
    names = ("query", "keys", "values", "position", "slot_position", "scaling", "turns", "frequencies")
    arguments = dict(zip(names, example(generator, torch.float32, "cpu", (2, 2, 3, 12, 8), turned=True), strict=True))
    with pytest.raises(ValueError, match=message):
        launch(**arguments | spoil)


def test_tiles_of_large_keys_hold_fewer_slots():
    """32 slots of 128 numbers in bfloat16 are 8 KiB; in float32 half as many fit, and 80 numbers take up 128."""
    tiles = [
        (size, kind, decode_attention._most_slots(torch.empty(1, 1, 1, size, dtype=kind)))
        for size, kind in [(8, torch.float32), (128, torch.bfloat16), (80, torch.float32), (512, torch.float32)]
    ]
    assert [tile for _, _, tile in tiles] == [32, 32, 16, 16]


def test_bytes_by_hand(generator):
    arguments = example(generator, torch.float16, "cpu", (1, 1, 2, 8, 16), turned=True)
    # 2 queries and 2 outputs, 8 keys and 8 values of 32 bytes; a position of 8, 8 of 4, 8 turns, 8 frequencies, 8 sums
    assert bytes_moved(*arguments) == (4 + 16) * 32 + 8 + 4 * 8 * 4
