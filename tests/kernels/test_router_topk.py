"""Routing: by hand, ties, every k, biases, numbers that are none, places in order, refusals."""

import math

import pytest
import torch
from course_lib.kernels.experts import router_topk
from course_lib.kernels.experts.router_topk import bytes_moved
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_device import on_device

from course_lib.kernels import runtime

launch = on_device(router_topk.launch)
NAN, INF = float("nan"), float("inf")


def test_three_tokens_by_hand():
    """Exponentials 1 3 4, 6 1 1 and 2 2 1. Of equal logits the lower expert is chosen."""
    logits = torch.tensor([[1.0, 3.0, 4.0], [6.0, 1.0, 1.0], [2.0, 2.0, 1.0]]).log()
    routed = launch(logits, 2)
    assert routed.expert.tolist() == [[2, 1], [0, 1], [0, 1]]
    torch.testing.assert_close(routed.weight, torch.tensor([[4 / 7, 3 / 7], [6 / 7, 1 / 7], [0.5, 0.5]]))
    # Pairs are t * 2 + place: expert 0 has 2 and 4, expert 1 has 1, 3 and 5, expert 2 has 0.
    assert routed.offsets.tolist() == [0, 2, 5, 6]
    assert routed.order.tolist() == [2, 4, 1, 3, 5, 0]
    assert routed.loads().tolist() == [2, 3, 1]
    shares = launch(logits, 2, weights="all").weight
    torch.testing.assert_close(shares, torch.tensor([[4 / 8, 3 / 8], [6 / 8, 1 / 8], [0.4, 0.4]]))


def test_a_bias_decides_who_is_chosen_and_not_by_how_much():
    """Shares ½, ¼, ¼; the bias lifts the last to 0.55 and leaves the first at 0.5."""
    logits, bias = torch.tensor([[2.0, 1.0, 1.0]]).log(), torch.tensor([0.0, 0.0, 0.3])
    routed = launch(logits, 2, "all", bias)
    assert routed.expert.tolist() == [[2, 0]]
    torch.testing.assert_close(routed.weight, torch.tensor([[0.25, 0.5]]))
    torch.testing.assert_close(launch(logits, 2, "chosen", bias).weight, torch.tensor([[1 / 3, 2 / 3]]))


@pytest.mark.parametrize("k", [1, 2, 7])
def test_renormalised_top_k_is_the_softmax_of_the_kept_logits(k, generator):
    logits = torch.randn(33, 7, generator=generator)
    routed = launch(logits, k)
    best = logits.topk(k, dim=1)
    torch.testing.assert_close(routed.weight, best.values.softmax(dim=1))
    assert routed.expert.tolist() == best.indices.tolist()
    if k == 1:
        assert routed.weight.eq(1).all()  # so no gradient would reach the router


def test_all_tokens_to_one_expert_of_many(generator):
    logits = torch.randn(130, 5, generator=generator)
    logits[:, 3] = 100.0
    routed = launch(logits, 1)
    assert routed.loads().tolist() == [0, 0, 0, 130, 0]
    assert routed.order.tolist() == list(range(130))


def test_both_zeros_are_equal():
    assert launch(torch.tensor([[-0.0, 0.0, -1.0], [-1.0, 0.0, -0.0]]), 2).expert.tolist() == [[0, 1], [1, 2]]


def test_equal_logits_take_the_first_experts():
    routed = launch(torch.zeros(3, 6), 4)
    assert routed.expert.tolist() == [[0, 1, 2, 3]] * 3
    assert routed.loads().tolist() == [3, 3, 3, 3, 0, 0]


@settings(max_examples=10 if not runtime.INTERPRETED else 3, deadline=None)
@given(n_tokens=st.integers(1, 150), n_experts=st.integers(2, 70), seed=st.integers(0, 999), data=st.data())
def test_every_pair_has_one_place_with_its_expert_by_token(n_tokens, n_experts, seed, data):
    k = data.draw(st.integers(1, min(n_experts, 9)))
    logits = torch.randn(n_tokens, n_experts, generator=torch.Generator().manual_seed(seed)).round()  # many ties
    routed = launch(logits, k)
    assert routed.order.sort().values.tolist() == list(range(n_tokens * k))
    assert routed.offsets[0] == 0
    assert routed.offsets[-1] == n_tokens * k
    for e in range(n_experts):
        mine = routed.order[routed.offsets[e] : routed.offsets[e + 1]]
        assert routed.expert.flatten()[mine.long()].eq(e).all()
        assert (mine.diff() > 0).all()
    assert all(len(set(row)) == k for row in routed.expert.tolist())
    torch.testing.assert_close(routed.weight.sum(dim=1), torch.ones(n_tokens))


@pytest.mark.parametrize("weights", ["chosen", "all", "sigmoid"])
def test_numbers_that_are_none_never_lead_astray(weights):
    """NaN and +∞ make NaN of a token's weights, so that they are seen; −∞ is an expert that may not be used."""
    logits = torch.tensor([[NAN, 1.0, 2.0], [0.0, INF, 0.0], [-INF, 0.0, -INF], [0.0, 0.0, 0.0]])
    routed = launch(logits, 2, weights)
    assert routed.expert.tolist() == [[2, 1], [1, 0], [1, 0], [0, 1]]
    assert routed.weight[:2].isnan().all()
    assert routed.weight[2].tolist() == [1.0, 0.0]
    assert not routed.weight[3].isnan().any()
    assert routed.offsets.tolist() == [0, 3, 7, 8]


@pytest.mark.parametrize("biased", [False, True])
def test_every_expert_is_chosen_once_even_where_nothing_can_be_compared(biased):
    logits = torch.tensor([[NAN, NAN, 2.0], [NAN, INF, -INF], [-INF, -INF, -INF]])
    routed = launch(logits, 3, "all", torch.zeros(3) if biased else None)
    assert routed.expert.sort(dim=1).values.tolist() == [[0, 1, 2]] * 3
    assert routed.weight.isnan().all()
    assert routed.offsets.tolist() == [0, 3, 6, 9]


def test_logits_that_exp_cannot_hold():
    routed = launch(torch.tensor([[1000.0, 999.0, -1000.0], [-900.0, -901.0, -5000.0]]), 2)
    share = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(routed.weight, torch.tensor([[share, 1 - share]] * 2))


def test_a_choice_that_softmax_cannot_tell_from_zero_still_has_weights():
    """Both chosen experts have a share of e⁻²⁰⁰, which is 0 in float32; by their logits they are equal."""
    routed = launch(torch.tensor([[200.0, 0.0, 0.0]]), 2, "chosen", torch.tensor([-5.0, 0.0, 0.0]))
    assert routed.expert.tolist() == [[1, 2]]
    assert routed.weight.tolist() == [[0.5, 0.5]]


def test_no_tokens():
    routed = launch(torch.empty(0, 4), 2)
    assert routed.weight.shape == (0, 2)
    assert routed.offsets.tolist() == [0] * 5


@pytest.mark.parametrize("n_tokens", [70, 2200])
def test_places_across_blocks(n_tokens, generator):
    """More blocks than are read at a time: 35 of 64 tokens."""
    logits = torch.randn(n_tokens, 3, generator=generator)
    expected, routed = router_topk.reference(logits, 2), launch(logits, 2)
    assert torch.equal(routed.order, expected.order)
    assert torch.equal(routed.offsets, expected.offsets)


@pytest.mark.parametrize(
    ("logits", "k", "message"),
    [
        (torch.zeros(2, 4), 0, "k=0: expected 1 to 4, the number of experts"),
        (torch.zeros(2, 4), 5, "k=5: expected 1 to 4, the number of experts; choose fewer"),
        (torch.zeros(2, 1), 1, r"shape \(2, 1\): expected \(tokens, experts\), 2 to 1024 experts"),
        (torch.zeros(2, 3, 4), 1, r"shape \(2, 3, 4\): expected .*; flatten the axes"),
        (torch.zeros(2, 1025), 1, "2 to 1024 experts; .* call reference"),
    ],
)
def test_what_does_not_fit_is_refused(logits, k, message):
    with pytest.raises(ValueError, match=message):
        launch(logits, k)


def test_bytes_by_hand():
    """3 × 4 logits of 2 bytes and a bias of 4; 6 pairs with a weight, an expert and a place of 4 bytes; 5 offsets."""
    logits = torch.zeros(3, 4, dtype=torch.float16)
    assert bytes_moved(logits, 2) == 24 + 72 + 20
    assert bytes_moved(logits, 2, "chosen", torch.zeros(4)) == 24 + 16 + 72 + 20


@pytest.mark.parametrize("n_tokens", [3, 140])
@pytest.mark.parametrize("ordered", [False, True])
def test_with_a_gate_the_tokens_have_the_logits_of_their_product(n_tokens, ordered, generator):
    """One token a program, and tiles of tokens."""
    tokens, gate = torch.randn(n_tokens, 40, generator=generator), torch.randn(5, 40, generator=generator)
    routed = launch(tokens, 2, "chosen", None, gate, 1.0, ordered)
    torch.testing.assert_close(routed.logits, tokens @ gate.T, rtol=1e-5, atol=1e-5)  # sums in another order
    again = launch(routed.logits, 2)
    assert torch.equal(routed.expert, again.expert)
    torch.testing.assert_close(routed.weight, again.weight)
    assert (routed.order is None) is not ordered
    assert routed.order is None or torch.equal(routed.order, again.order)


def test_sigmoids_are_shared_among_the_chosen_and_scaled():
    """Sigmoids ¾, ½ and ¼; the bias lifts the last above the second. Where both sigmoids vanish, shares are left."""
    logits = torch.tensor([[3.0, 1.0, 1 / 3]]).log()
    torch.testing.assert_close(launch(logits, 2, "sigmoid", None, None, 2.0).weight, torch.tensor([[1.2, 0.8]]))
    biased = launch(logits, 2, "sigmoid", torch.tensor([0.0, 0.0, 0.3]))
    assert biased.expert.tolist() == [[0, 2]]
    torch.testing.assert_close(biased.weight, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(launch(torch.full((1, 2), -200.0), 2, "sigmoid").weight, torch.tensor([[0.5, 0.5]]))


def test_a_gate_of_another_width_or_type_and_other_weights_are_refused():
    tokens = torch.zeros(2, 6)
    with pytest.raises(ValueError, match=r"gate has shape \(4, 5\): expected \(4, 6\)"):
        launch(tokens, 1, "chosen", None, torch.zeros(4, 5))
    with pytest.raises(ValueError, match="gate is torch.float16: expected float32"):
        launch(tokens, 1, "chosen", None, torch.zeros(4, 6).half())
    with pytest.raises(ValueError, match="weights='both': expected one of chosen, all, one, sigmoid"):
        launch(tokens, 1, "both")
    assert not router_topk.takes(tokens, torch.zeros(4, 5), k=1)
    assert not router_topk.takes(tokens, torch.zeros(4, 6), k=5)
    assert not router_topk.takes(tokens, torch.zeros(4, 6), k=1, bias=torch.zeros(3))
