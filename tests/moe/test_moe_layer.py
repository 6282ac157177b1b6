"""The layer: every way computes the formula, whatever the sizes; padding and places are those of each sequence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.moe.dispatch import WAYS, can_group, pairs, token_loop
from course_lib.moe.experts import Experts, random_experts
from course_lib.moe.layer import MoE, random_layer
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.hash_layers import Hash
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.switch import Switch
from course_lib.moe.soft import random_soft

FAST = [name for name in WAYS if name != "token_loop"]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # float32 sums of at most 100 products, in another order


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(n_tokens, n_experts, share, width=12, neurons=20, seed=0, **settings):
    """Experts, tokens, weights and a mask in which each pair is there with probability `share`."""
    generator = seeded(seed)
    experts = random_experts(n_experts, width, neurons, std=0.5, generator=generator, **settings)
    tokens = torch.randn(n_tokens, width, generator=generator)
    keep = torch.rand(n_tokens, n_experts, generator=generator) < share
    return experts, tokens, torch.rand(n_tokens, n_experts, generator=generator).where(keep, 0), keep


def test_by_hand():
    """Two experts of one neuron: x -> relu(x) and x -> 10 relu(x + 1). Token 1 goes to both, token 2 nowhere."""
    into, out = torch.tensor([[[1.0, 0]], [[1.0, 0]]]), torch.tensor([[[1.0], [0]], [[10.0], [0]]])
    experts = Experts(into, out, "relu", bias=torch.tensor([[0.0], [1]]))
    tokens = torch.tensor([[2.0, 0], [3, 0], [4, 0]])
    weights = torch.tensor([[0.5, 0], [0.25, 0.75], [0, 0]])
    for way in WAYS.values():
        found = way(experts, tokens, weights, weights > 0)
        torch.testing.assert_close(found, torch.tensor([[1.0, 0], [0.75 + 30, 0], [0, 0]]))


@pytest.mark.parametrize("way", WAYS)
def test_an_expert_that_overflows_for_a_token_that_does_not_go_to_it_is_not_in_the_sum(way):
    """x -> x, and x -> 60 000 · 60 000 x, which float16 does not hold: infinity times a weight of 0 would be NaN."""
    into = torch.tensor([[[1.0]], [[60_000.0]]]).half()
    out = torch.tensor([[[1.0]], [[60_000.0]]]).half()
    tokens, weights = torch.tensor([[2.0], [3.0]]).half(), torch.tensor([[1.0, 0.0], [0.5, 0.0]])
    experts = Experts(into, out, "relu")
    found = WAYS[way](experts, tokens, weights, weights > 0)
    assert found.tolist() == [[2.0], [1.5]]
    found.float().sum().backward()
    assert experts.into.grad.isfinite().all()
    assert experts.out.grad.isfinite().all()


@pytest.mark.parametrize("way", WAYS)
def test_nan_of_a_token_reaches_that_token_alone(way):
    experts, tokens, weights, keep = drawn(5, 3, 1.0)
    tokens[2] = torch.nan
    assert WAYS[way](experts, tokens, weights, keep).isnan().all(1).tolist() == [False, False, True, False, False]


def test_swiglu_by_hand():
    """Gate 1, up 2, down 3: silu(1) x 2 x 3, silu(1) = 1 / (1 + e^-1)."""
    experts = Experts(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[3.0]]]))
    torch.testing.assert_close(experts.one(0, torch.ones(1, 1)), torch.tensor([[6 / (1 + torch.e**-1)]]))


@pytest.mark.parametrize("way", FAST)
@settings(max_examples=15, deadline=None)
@given(
    n_tokens=st.integers(1, 9),
    n_experts=st.integers(1, 7),
    share=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    width=st.sampled_from([4, 12, 13]),
    neurons=st.sampled_from([4, 9, 20]),
    activation=st.sampled_from(["swiglu", "relu", "gelu"]),
    seed=st.integers(0, 10**6),
)
def test_every_way_is_the_loop_over_tokens(way, n_tokens, n_experts, share, width, neurons, activation, seed):
    """Idle experts, tokens without one, sizes that no grouped product takes."""
    sides = drawn(n_tokens, n_experts, share, width, neurons, seed, activation=activation)
    expected = token_loop(*sides)
    size = 1 + float(expected.abs().max())  # terms of this size cancel where the sum is small
    torch.testing.assert_close(WAYS[way](*sides), expected, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("way", FAST)
def test_gradients_are_those_of_the_loop(way):
    gradients = []
    for each in (WAYS[way], token_loop):
        experts, tokens, weights, keep = drawn(7, 5, 0.4)
        keep[:, 2] = False  # an idle expert has a gradient of zero, not garbage
        leaves = [experts.into, experts.out, tokens.requires_grad_(), weights.requires_grad_()]
        gradients.append(torch.autograd.grad(each(experts, tokens, weights, keep).square().sum(), leaves))
    for name, found, expected in zip(("into", "out", "tokens", "weights"), *gradients, strict=True):
        mask = drawn(7, 5, 0.4)[3] if name == "weights" else torch.ones_like(found, dtype=torch.bool)
        torch.testing.assert_close(found.where(mask, 0), expected.where(mask, 0), rtol=1e-4, atol=1e-5)
    assert not gradients[0][0][2].any()


@pytest.mark.parametrize("way", FAST)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_are_computed_as_well(way, dtype):
    """Float64 has no grouped product: slower, never wrong. Tolerance: a few roundings of 2^-8 for bfloat16."""
    experts, tokens, weights, keep = drawn(9, 4, 0.5, width=16, neurons=24)
    expected = token_loop(experts.double(), tokens.double(), weights.double(), keep)
    found = WAYS[way](experts.to(dtype), tokens.to(dtype), weights.to(torch.promote_types(dtype, torch.float32)), keep)
    assert found.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize(
    ("width", "neurons", "dtype", "possible"),
    [
        (12, 20, torch.float32, True),
        (13, 20, torch.float32, False),
        (12, 18, torch.float32, False),
        (12, 20, torch.float64, False),
        (12, 20, torch.bfloat16, False),
        (16, 24, torch.bfloat16, True),
    ],
)
def test_the_grouped_product_is_used_where_torch_has_it(width, neurons, dtype, possible):
    experts = random_experts(2, width, neurons).to(dtype)
    assert can_group(experts, torch.ones(3, width, dtype=dtype)) == possible
    assert not can_group(experts, torch.ones(3, width, dtype=torch.float16))  # of two types there is none


def test_the_grouped_product_is_really_called(monkeypatch):
    sides, called, real = drawn(7, 5, 0.4), [], torch.nn.functional.grouped_mm
    monkeypatch.setattr(torch.nn.functional, "grouped_mm", lambda *a, **k: called.append(1) or real(*a, **k))
    WAYS["grouped"](*sides)
    assert len(called) == 2


def test_pairs_are_sorted_by_expert_and_then_by_token():
    expert, token = pairs(torch.tensor([[1, 0, 1], [0, 0, 1], [1, 0, 0]]).bool())
    assert expert.tolist() == [0, 0, 2, 2]
    assert token.tolist() == [0, 2, 0, 1]


@pytest.mark.parametrize("way", WAYS)
def test_padding_is_zero_and_reads_nothing(way):
    layer = random_layer(12, 20, 4, Mixtral(), seeded())
    layer.way = way
    x, real = torch.randn(2, 6, 12, generator=seeded(1)), torch.ones(2, 6, dtype=torch.bool)
    real[1, :4] = False
    expected, _ = layer(x)
    x[1, :4] = torch.nan
    found, routing = layer(x, real=real)
    assert not found[1, :4].any()
    torch.testing.assert_close(found[real], expected[real], **CLOSE)
    assert routing.chosen.sum() == 8 * 2


@pytest.mark.parametrize("router", [Switch(1.0), ExpertChoice(1.0)], ids=["Switch", "ExpertChoice"])
def test_places_are_counted_within_a_sequence(router):
    """The same sequence beside others has the same output; taken as one group it has not."""
    layer = random_layer(12, 20, 3, router, seeded())
    layer.gate.data *= 50
    x = torch.randn(4, 6, 12, generator=seeded(1))
    together, routing = layer(x)
    for i in range(4):
        torch.testing.assert_close(together[i : i + 1], layer(x[i : i + 1])[0], **CLOSE)
    assert routing.keep.shape == (24, 3)
    assert not torch.allclose(layer(x.reshape(24, 12))[0].reshape(4, 6, 12), together)


def test_experts_read_the_clean_input_and_the_gate_the_jittered_one():
    layer = random_layer(12, 20, 3, Switch(None, jitter=0.5), seeded())
    x = torch.randn(9, 12, generator=seeded(1))
    before = x.clone()
    output, routing = layer(x, generator=seeded(2))
    assert torch.equal(x, before)
    assert not torch.allclose(routing.logits, layer(x)[1].logits)
    expected = token_loop(layer.experts, x, routing.weights, routing.keep)
    torch.testing.assert_close(output, expected, **CLOSE)


def test_the_gate_is_computed_in_float32_at_least():
    layer = random_layer(16, 24, 4, Mixtral(), seeded()).bfloat16()
    x = torch.randn(5, 16, generator=seeded(1)).bfloat16()
    output, routing = layer(x)
    assert output.dtype == torch.bfloat16
    assert torch.equal(routing.logits, x.float() @ layer.gate.float().T)


def test_a_router_gets_its_second_gate_and_its_token_ids():
    layer = random_layer(12, 20, 4, NoisyTopK(k=2), seeded())
    assert not layer.gate.any()  # both start at zero
    assert not layer.noise.any()
    _, routing = layer(torch.randn(3, 5, 12), generator=seeded())
    assert routing.sent.shape == (15, 4)
    ids = torch.tensor([[0, 1, 2], [3, 4, 5]])
    _, routing = random_layer(12, 20, 4, Hash(), seeded())(torch.randn(2, 3, 12), ids=ids)
    assert routing.keep.float().argmax(1).tolist() == [0, 1, 2, 3, 0, 1]


def test_shared_experts_see_every_token():
    experts, shared = random_experts(4, 12, 20, generator=seeded()), random_experts(2, 12, 8, generator=seeded(1))
    alone, both = (MoE(experts, Mixtral(), generator=seeded(2), shared=each) for each in (None, shared))
    x = torch.randn(5, 12, generator=seeded(3))
    torch.testing.assert_close(both(x)[0] - alone(x)[0], shared.one(0, x) + shared.one(1, x), **CLOSE)


def test_soft_experts_are_the_formula_written_out():
    """One sequence, slot by slot."""
    layer = random_soft(random_experts(3, 4, 6, std=0.5, generator=seeded()), 2, seeded(1))
    x = torch.randn(1, 5, 4, generator=seeded(2))
    logits = torch.stack([x[0] @ layer.slots[:, e, s] for e in range(3) for s in range(2)], dim=1)  # (N, E S)
    outputs = [layer.experts.one(j // 2, (logits[:, j].softmax(0) @ x[0])[None])[0] for j in range(6)]
    torch.testing.assert_close(layer(x)[0], logits.softmax(1) @ torch.stack(outputs), **CLOSE)


def test_soft_experts_leave_padding_out_and_read_the_future():
    layer = random_soft(random_experts(3, 4, 6, std=0.5, generator=seeded()), 2, seeded(1))
    x, real = torch.randn(2, 5, 4, generator=seeded(2)), torch.ones(2, 5, dtype=torch.bool)
    real[1, 3:] = False
    alone = layer(x[1:, :3])
    x[1, 3:] = torch.nan
    found = layer(x, real)
    torch.testing.assert_close(found[1:, :3], alone, **CLOSE)
    assert not found[1, 3:].any()
    later = x.clone()
    later[0, -1] += 1
    assert not torch.allclose(layer(later, real)[0, :-1], found[0, :-1])
