"""Routers by hand: probabilities are chosen, and logits are their logarithms."""

import math

import pytest
import torch
from transformers.models.phimoe.modeling_phimoe import sparsemixer

from course_lib.moe.routers import sparsemixer_v2
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.expert_choice import ExpertChoice
from course_lib.moe.routers.gshard import GShard
from course_lib.moe.routers.hash_layers import Hash, balanced_table, random_table
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.sparsemixer import SparseMixer
from course_lib.moe.routers.sparsemixer_v2 import SparseMixerV2
from course_lib.moe.routers.switch import Switch

LOGITS = torch.tensor([[0.125, 0.5, 0.125, 0.25]]).log()


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, torch.as_tensor(expected), **tolerance)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_mixtral_shares_one_among_the_best():
    close(Mixtral().route(LOGITS).weights, [[0, 2 / 3, 0, 1 / 3]])
    close(Mixtral(k=1).route(LOGITS).weights, [[0.0, 1, 0, 0]])
    close(Mixtral(k=3).route(LOGITS).weights, [[1 / 7, 4 / 7, 0, 2 / 7]])  # of equals the first


def test_olmoe_keeps_the_probabilities():
    routing = OLMoE(k=2).route(LOGITS)
    close(routing.weights, [[0, 0.5, 0, 0.25]])
    close(routing.probs, LOGITS.exp())


def test_noisy_top_k_adds_noise_before_the_choice():
    router, noise = NoisyTopK(k=2), torch.tensor([[3.0, -1, 0, 2]])
    close(router.route(LOGITS, noise=noise).weights, [[0, 2 / 3, 0, 1 / 3]])
    routing = router.route(LOGITS, noise=noise, generator=seeded(1))
    noisy = LOGITS + torch.randn(1, 4, generator=seeded(1)) * (1 + noise.exp()).log()
    best = noisy.topk(2).indices[0]
    assert torch.equal(routing.keep[0].nonzero()[:, 0], best.sort().values)
    close(routing.weights[0, best], noisy[0, best].softmax(0))
    assert ((routing.sent > 0) & (routing.sent < 1)).all()
    assert router.route(LOGITS, noise=noise).sent is None


def test_switch_leaves_out_who_finds_no_place():
    """Room for 1 x 4 / 2 tokens; the third that wants expert 0 stays with the residual."""
    logits = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.3, 0.7]]).log()
    routing = Switch(capacity_factor=1.0).route(logits)
    close(routing.weights, [[0.9, 0], [0.6, 0], [0, 0], [0, 0.7]])
    assert routing.chosen.sum(0).tolist() == [3, 1]  # what the balance loss counts: before anything is dropped
    assert routing.keep.sum(0).tolist() == [2, 1]
    assert routing.n_dropped == 1
    close(routing.load, [0.75, 0.25])


def test_switch_s_jitter_is_a_factor_near_one_on_a_copy():
    tokens = torch.ones(50, 8)
    moved = Switch(jitter=0.1).perturb(tokens, seeded())
    assert torch.equal(tokens, torch.ones(50, 8))
    assert 0.9 <= moved.min() < 0.91
    assert 1.09 < moved.max() <= 1.1
    assert Mixtral().perturb(tokens, seeded()) is tokens


FIRST_SECOND = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.6, 0.3, 0.1]]).log()


def test_gshard_places_all_first_choices_before_any_second():
    """One place each: 0.5 x 2 x 3 / 3. Token 2 comes too late for expert 0, and tokens 0 and 2 for expert 1."""
    routing = GShard(capacity_factor=0.5).route(FIRST_SECOND)
    close(routing.weights, [[2 / 3, 0, 0], [0, 2 / 3, 1 / 3], [0, 0, 0]])
    later = FIRST_SECOND.clone()
    later[1] = FIRST_SECOND[1, [1, 2, 0]]  # token 1 now wants expert 0 and then 1: token 0 gets its second choice
    close(GShard(capacity_factor=0.5).route(later).weights[0], [2 / 3, 1 / 3, 0])


def test_gshard_draws_the_second_by_its_weight():
    """g_2 = 0.2 goes in 2 of 5 cases; of 20 000, 4 standard deviations are 0.014. From 0.5 on it goes always."""
    logits = torch.tensor([[0.8, 0.2, 1e-6]]).log().expand(20_000, 3)
    router = GShard(capacity_factor=None)
    share = router.route(logits, generator=seeded()).keep[:, 1].float().mean()
    assert abs(share - 0.4) < 0.014
    assert router.route(torch.zeros(1000, 3), generator=seeded()).keep.sum() == 2000


SIGMOIDS = torch.tensor([[0.9, 0.1, 0.6, 0.5]]).logit()


def test_deepseek_looks_at_the_best_groups_and_the_bias_moves_the_choice_alone():
    close(DeepSeek(k=2).route(SIGMOIDS).weights, [[0.6, 0, 0.4, 0]])
    close(DeepSeek(k=2, n_groups=2).route(SIGMOIDS).weights, [[0, 0, 6 / 11, 5 / 11]])  # 1.1 against 1.0
    biased = DeepSeek(k=2, n_groups=2, scaling=2.5, bias=torch.tensor([0.2, 0, 0, 0]))
    close(biased.route(SIGMOIDS).weights, [[2.25, 0.25, 0, 0]])
    close(biased.route(SIGMOIDS).probs, [[9 / 21, 1 / 21, 6 / 21, 5 / 21]])


def test_an_expert_outside_never_beats_a_negative_one_inside():
    bias = torch.full((4,), -1.0)
    assert DeepSeek(k=2, n_groups=2, bias=bias).route(SIGMOIDS).keep.tolist() == [[False, False, True, True]]


def test_deepseek_s_bias_moves_against_the_load():
    router = DeepSeek(k=1).updated(torch.tensor([7.0, 1, 4, 4]), speed=0.5)
    close(router.bias, [-0.5, 0.5, 0, 0])
    close(router.updated(torch.tensor([7.0, 1, 4, 4]), speed=0.5).bias, [-1.0, 1, 0, 0])


def test_experts_choose_their_most_likely_tokens():
    """Two places each: token 0 is taken by both, token 3 by none."""
    logits = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.45, 0.55]]).log()
    close(ExpertChoice(capacity_factor=1.0).route(logits).weights, [[0.5, 0], [0.9, 0], [0, 0.8], [0, 0.55]])
    logits[3] = torch.tensor([0.6, 0.4]).log()
    close(ExpertChoice(capacity_factor=1.0).route(logits).weights, [[0, 0.5], [0.9, 0], [0, 0.8], [0.6, 0]])


def test_a_table_of_ids_routes():
    ids = torch.tensor([0, 5, 2])
    assert Hash().route(torch.zeros(3, 4), ids=ids).weights.argmax(1).tolist() == [0, 1, 2]
    table = torch.tensor([3, 0, 2, 0, 0, 1])
    assert Hash(table).route(torch.zeros(3, 4), ids=ids).weights.argmax(1).tolist() == [3, 1, 2]
    assert balanced_table(torch.tensor([5, 1, 9, 4, 2]), 2).tolist() == [1, 1, 0, 1, 0]  # 9 + 2 against 5 + 4 + 1
    assert random_table(1000, 7, seeded()).bincount().tolist() == pytest.approx([143] * 7, abs=45)  # 4 deviations


MIXED = torch.tensor([[1.0, 0.85, 0.7]])  # 0.15 and 0.3 below the best: the last is beyond 2 x 0.1


def test_sparsemixer_draws_by_probability_and_halves_what_is_not_the_best():
    pi = torch.tensor([1.0, 0.85]).softmax(0)
    close(SparseMixer().route(MIXED).weights, [[float(pi[0]), 0, 0]])
    weights = SparseMixer().route(MIXED.expand(20_000, 3), generator=seeded()).weights
    assert not weights[:, 2].any()
    close(weights[:, 0].unique(), [0, float(pi[0])])
    close(weights[:, 1].unique(), [0, float(pi[1] / 2), float(pi[1])])
    assert float((weights[:, 1] > 0).float().mean()) == pytest.approx(float(pi[1]), abs=0.015)  # 4 deviations
    halved = weights[:, 1][weights[:, 1] > 0] < 0.9 * pi[1]
    assert float(halved.float().mean()) == pytest.approx(0.5, abs=0.022)


@pytest.mark.parametrize(
    ("router", "slope", "low"), [(SparseMixer(), 2, 1 / 2), (SparseMixerV2(k=1, eps=0.1), 1, 1 / 3)]
)
def test_the_gradient_is_the_same_whether_the_weight_was_shortened_or_not(router, slope, low):
    """slope · π_D (e_D − π): twice the multiplier's gradient in the first version, once in the second."""
    logits = MIXED.expand(40, 3).double().requires_grad_()
    routing = router.route(logits, generator=seeded())
    (found,) = torch.autograd.grad(routing.weights.sum(), logits)
    pi = MIXED.double().masked_fill(torch.tensor([[False, False, True]]), -torch.inf).softmax(1)
    drawn = routing.keep.double()
    value = (drawn * pi).sum(1, keepdim=True)
    close(found, slope * value * (drawn - pi))
    shortened = (routing.weights.sum(1, keepdim=True) / value).mul(2**40).round() / 2**40  # for unique
    close(shortened.unique(), torch.tensor([low, 1.0], dtype=torch.float64), rtol=1e-9, atol=0)


def test_at_evaluation_the_second_version_is_phimoe_s():
    logits = 0.02 * torch.randn(30, 5, generator=seeded()) + 1
    weights, experts = sparsemixer(logits, jitter_eps=0.01, training=False)
    close(SparseMixerV2().route(logits).weights, torch.zeros(30, 5).scatter(1, experts, weights))


def test_in_training_the_second_version_has_phimoe_s_gradient(monkeypatch):
    """With its draws: which experts, and which weights were shortened."""
    logits = (0.02 * torch.randn(60, 5, generator=seeded()) + 1).requires_grad_()
    torch.manual_seed(0)
    weights, experts = sparsemixer(logits, jitter_eps=0.01, training=True)
    values = torch.randn(60, 2, generator=seeded(1))
    (expected,) = torch.autograd.grad((weights * values).sum(), logits)
    turn, shortened = iter(range(2)), []

    def drawn(masked, generator):
        monkeypatch.setattr(sparsemixer_v2, "now", next(turn), raising=False)
        return experts[:, sparsemixer_v2.now :][:, :1]

    def factor_of(drawn, masked, **settings):
        full = masked.softmax(1).gather(1, drawn)
        shortened.append(weights[:, sparsemixer_v2.now :][:, :1] / full < 0.9)
        return torch.where(shortened[-1], 1 / 3, 1.0)

    monkeypatch.setattr(sparsemixer_v2, "draw", drawn)
    monkeypatch.setattr(sparsemixer_v2, "factor_of", factor_of)
    routing = SparseMixerV2().route(logits, generator=seeded())
    close(routing.weights.gather(1, experts), weights, rtol=1e-3, atol=1e-4)  # it writes a third as 0.3333
    (found,) = torch.autograd.grad((routing.weights.gather(1, experts) * values).sum(), logits)
    close(found, expected, rtol=1e-5, atol=1e-6)
    assert len(shortened) == 2
    assert all(short.any() and not short.all() for short in shortened)


def test_deepseek_s_weights_sum_to_one_where_the_sigmoid_underflows():
    """σ(−60) / (σ(−60) + σ(−61)) = 1 / (1 + 1/e) = 0.731; of −120 float32 holds no σ at all."""
    for low in (-60.0, -120.0):
        logits = torch.tensor([[low, low - 1, low - 2, low - 3]])
        routing = DeepSeek(k=2).route(logits)
        torch.testing.assert_close(routing.weights, torch.tensor([[0.731059, 0.268941, 0.0, 0.0]]))
        torch.testing.assert_close(routing.probs, logits.softmax(1), rtol=1e-5, atol=0)  # σ(h) is exp(h) there
    same = DeepSeek(k=2).route(torch.full((2, 4), -120.0))
    torch.testing.assert_close(same.probs, torch.full((2, 4), 0.25))
    torch.testing.assert_close(same.weights.sum(1), torch.ones(2))


def test_the_gradient_of_deepseek_s_tiny_scores_is_that_of_the_softmax():
    logits = torch.tensor([[-60.0, -61.0, -62.0]], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(DeepSeek(k=2).route(logits).weights[0, 0], logits)
    share = 1 / (1 + math.exp(-1))
    expected = torch.tensor([[share * (1 - share), -share * (1 - share), 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
