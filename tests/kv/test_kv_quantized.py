"""Keys and values in few bits: the error, what stays exact, and every policy on top."""

from dataclasses import dataclass

import pytest
import torch
from kv_naive import FirstLayer, kept_by, passes_of, run
from test_every_policy import POLICIES, SHRINKING, names, small

from course_lib.kv.cache import evicting
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.window import Window
from course_lib.kv.quantized import Quantized
from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import VectorFormat
from course_lib.models import tiny_model

IDS = torch.randint(3, 97, (2, 30), generator=torch.Generator().manual_seed(4))


def round_trip(vectors, quantized):
    packed = quantized.pack("keys", vectors)
    return packed, quantized.unpack("keys", packed, vectors.shape[2])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("size", "group"), [(64, 32), (8, 32), (48, 16), (6, 3)])
@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 1.5), (1.0, 1.5), (1.0, 900.0), (3e4, 0.1)])
def test_the_error_is_half_a_step_and_what_float16_adds(bits, size, group, scale, offset):
    """The minimum and the step are float16, 11 bits: 2^-11 of each, the step as often as the largest code says.

    A minimum near 900 is rounded by up to 1/4: more than a step.
    """
    generator = torch.Generator().manual_seed(0)
    vectors = (torch.randn(2, 3, 11, size, generator=generator).clamp(-2, 2) + offset) * scale
    _, found = round_trip(vectors, Quantized(bits=bits, group=group))
    groups = vectors.unflatten(3, (-1, min(group, size)))
    low, high = groups.amin(dim=4, keepdim=True), groups.amax(dim=4, keepdim=True)
    n_steps = 2**bits - 1
    step = ((high - low) / n_steps).clamp(min=2**-14)  # the smallest normal float16
    bound = step / 2 + 2**-11 * (low.abs() + n_steps * step)
    assert (found.view_as(groups) - groups).abs().le(bound * 1.0001).all()


def test_codes_by_hand():
    """0 … 15 in steps of one: code 2 and code 5 share the byte 0x52; 8 bits see steps of 1/17."""
    vectors = torch.tensor([[[[2.0, 5.0, 0.0, 15.0, -8.0, -8.0, 7.0, -1.0]]]])
    packed, found = round_trip(vectors, Quantized(bits=4, group=4))
    assert packed["keys.codes"].tolist() == [[[[0x52, 0xF0, 0x00, 0x7F]]]]
    assert packed["keys.low"].tolist() == [[[[0.0, -8.0]]]]
    assert packed["keys.step"].tolist() == [[[[1.0, 1.0]]]]
    assert torch.equal(found, vectors)
    packed, _ = round_trip(vectors[..., :4], Quantized(bits=8))
    assert packed["keys.codes"].tolist() == [[[[34, 85, 0, 255]]]]


def test_codes_count_from_the_minimum_that_is_stored():
    """float16 near 900 knows halves: 900.2 is stored as 900, the step is 15.2/15, and 907.7 lies 7.6 steps above 900,
    but 7.4 above 900.2.
    """
    packed, _ = round_trip(torch.tensor([[[[900.2, 907.7, 915.2, 900.2]]]]), Quantized(bits=4, group=4))
    assert packed["keys.low"].tolist() == [[[[900.0]]]]
    assert packed["keys.codes"].tolist() == [[[[0x80, 0x0F]]]]


@pytest.mark.parametrize("value", [0.0, -3.5, 65504.0])
def test_a_constant_is_exact(value):
    """When float16 holds it. A step of zero would make codes of 0/0."""
    vectors = torch.full((1, 2, 3, 8), value)
    packed, found = round_trip(vectors, Quantized())
    assert torch.equal(found, vectors)
    assert (packed["keys.step"] > 0).all()


@pytest.mark.parametrize("value", [7e4, -7e4, float("nan"), float("inf")])
def test_what_float16_cannot_hold_is_refused(value):
    """Infinity as a minimum would make every number of the group infinite or none at all."""
    vectors = torch.zeros(1, 1, 2, 8)
    vectors[0, 0, 1] = value
    with pytest.raises(ValueError, match=r"expected .* up to 65504"):
        Quantized().pack("keys", vectors)
    vectors[0, 0, 1] = torch.tensor([0.0, 2e6]).repeat(4)  # a step of 2e6 / 15
    with pytest.raises(ValueError, match=r"got keys of magnitude 2e\+06"):
        Quantized().pack("keys", vectors)
    vectors[0, 0, 1] = torch.tensor([6.5e4, -6.5e4]).repeat(4)
    assert round_trip(vectors, Quantized())[1].isfinite().all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bits": 3}, "got 3 bits; expected 4 or 8"),
        ({"group": 1}, "got group 1; expected a whole number, 2 or more"),
        ({"residual": -1}, "got residual -1; expected a whole number, 0 or more"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit(settings, said):
    with pytest.raises(ValueError, match=said):
        Quantized(**settings)


@pytest.mark.parametrize(("size", "group", "said"), [(7, 32, "even"), (8, 3, "a divisor of 8"), (96, 64, "a divisor")])
def test_heads_that_do_not_divide(size, group, said):
    with pytest.raises(ValueError, match=f"got heads of {size} dimensions.*expected .*{said}"):
        Quantized(group=group).pack("keys", torch.zeros(1, 1, 1, size))


def test_half_precision_comes_back_as_half_precision():
    vectors = torch.randn(1, 1, 3, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert round_trip(vectors, Quantized())[1].dtype == torch.bfloat16


@dataclass(frozen=True)
class RoundTripped(VectorFormat):
    """What Quantized would read back, stored as it is: the oracle for packing, moving, leaving and merging."""

    of: Quantized

    @property
    def residual(self):
        return self.of.residual

    def pack(self, name, vectors):
        return {name: round_trip(vectors, self.of)[1]}

    def unpack(self, name, storage, n):
        return storage[name][:, :, :n].clone()


@pytest.mark.parametrize(
    ("positions", "of"),
    [("original", Quantized(bits=4, residual=3)), ("rolling", Quantized(bits=8, group=4, residual=0))],
    ids=["original-4", "rolling-8"],
)
@pytest.mark.parametrize("policy", POLICIES, **names)
def test_every_policy_reads_what_was_rounded(policy, positions, of):
    """A prompt with padding, single tokens, then several at once; both caches hold the same and say the same."""
    model, passes = tiny_model(), passes_of(30, (18, 1, 1, 1, 6, 1))
    settings = small(policy) if policy in SHRINKING else policy()
    mask = torch.ones_like(IDS)
    mask[1, :5] = 0
    found = []
    for vectors in (of, RoundTripped(of)):
        with evicting(model, settings, positions, vectors) as cache:
            logits = [run(model, cache, IDS, tokens, mask) for tokens in passes]
        found.append((torch.cat(logits, dim=1)[mask.bool()], [kept_by(cache.slots[1], row) for row in range(2)]))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("policy", POLICIES, **names)
def test_while_the_ring_holds_all_nothing_is_rounded(policy):
    """Not the prompt in parts, nor beams, which take their rings along."""
    model, settings = tiny_model(), small(policy) if policy in SHRINKING else policy()
    asked = {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    found = []
    for vectors in ({}, {"vectors": Quantized(residual=64)}):
        with evicting(model, settings, **vectors) as cache:
            parts = [run(model, cache, IDS, tokens) for tokens in passes_of(30, (11,))]
            cache.reset()
            beams = model.generate(IDS, past_key_values=cache, num_beams=3, **asked)
        found.append((torch.cat(parts, dim=1), beams))
    torch.testing.assert_close(*(parts for parts, _ in found), rtol=0, atol=0)
    assert torch.equal(*(beams for _, beams in found))


@pytest.mark.parametrize("policy", [Full(), Window(12)], ids=["Full", "Window"])
def test_the_prompt_is_read_as_it_came(policy):
    model = tiny_model()
    with evicting(model, policy, vectors=Quantized(bits=4, residual=0)) as cache:
        found = run(model, cache, IDS, range(30))
    with torch.no_grad():
        torch.testing.assert_close(found, model(IDS).logits, rtol=1e-4, atol=1e-5)  # sums in another order


@pytest.mark.parametrize("sizes", [(1,), (7,), (30,), (20, 1)], ids=str)
@pytest.mark.parametrize("residual", [0, 5, 64])
def test_the_newest_are_exact_and_the_others_rounded(sizes, residual):
    model = tiny_model()
    first, quantized = FirstLayer(model, IDS[0]), Quantized(bits=4, residual=residual)
    with evicting(model, Window(20, by_head=(1.0, 0.5)), vectors=quantized) as cache:
        for tokens in passes_of(30, sizes):
            run(model, cache, IDS[:1], tokens)
            slots = cache.slots[0]
            for head, kept in enumerate(kept_by(slots)):
                order = slots.position[0, head].argsort()[: len(kept)]
                n_exact = min(residual, len(kept))
                for found, true in ((slots.keys, first.key), (slots.values, first.value)):
                    off = (found[0, head, order] - true[head, kept]).abs().amax(dim=1)
                    assert (off[len(kept) - n_exact :] < 1e-6).all()  # float32 against float64
                    assert (off[: len(kept) - n_exact] > 1e-6).all()
                    step = (true[head, kept].amax(dim=1) - true[head, kept].amin(dim=1)) / 15
                    assert (off <= step / 2 + 2**-9 * true[head, kept].abs().amax(dim=1)).all()  # float16


def test_a_slot_that_takes_in_others_is_packed_anew():
    """(0, …) and (2, …) of equal weight: (1, …), in 4 bits and in the ring alike; slot 2 is left as it was."""
    keys = torch.tensor([[0.0, 4.0, 0.0, 15.0], [0.0, 8.0, 0.0, 30.0], [9.0, -1.0, 5.0, 0.0]])[None, None]
    policy = D2O(budget=2, sinks=0, recent=0, spared=())
    for residual in (0, 2):
        valid = torch.ones(1, 3, dtype=torch.bool)
        slots = Slots.empty(keys, Quantized(residual=residual)).append_(keys, keys + 1, NewTokens.of(valid))
        kept = policy.evict_(slots, torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([[2]]))
        order = kept.position[0, 0].argsort()
        expected = torch.tensor([[0.0, 6.0, 0.0, 22.5], [9.0, -1.0, 5.0, 0.0]])
        for found, true in ((kept.keys, expected), (kept.values, expected + 1)):
            off = 1e-5 if residual else 22.5 / 15 / 2 + 0.05  # half a step, and float16
            torch.testing.assert_close(found[0, 0, order], true, rtol=0, atol=off)


def test_bytes_by_hand():
    """Heads of 8 dimensions: 4 bytes of codes, 2 + 2 of minimum and step, instead of 32, for keys and for values."""
    model = tiny_model()
    with evicting(model, Window(10), vectors=Quantized(bits=4, residual=3)) as cache:
        for tokens in passes_of(30, (25, 1)):
            run(model, cache, IDS, tokens)
    rings = 2 * 2 * 2 * 2 * 3 * 8 * 4  # layers, keys and values, sequences, heads, tokens, dimensions, float32
    assert cache.bytes_held == 2 * 2 * 2 * 10 * 2 * (4 + 2 + 2) + rings
    assert cache.bytes_of_all == 2 * 2 * 2 * 30 * 2 * 32
    places = [slots.storage["position"].shape[2] for slots in cache.slots]
    assert cache.bytes_allocated == sum(2 * 2 * n * (2 * 8 + 4) for n in places) + rings  # and an int32 position
    with evicting(model, Window(10), vectors=Quantized(bits=8, group=4, residual=0)) as cache:
        run(model, cache, IDS, range(30))
    assert cache.bytes_held == 2 * 2 * 2 * 10 * 2 * (8 + 2 * (2 + 2))
