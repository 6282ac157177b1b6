"""Losses by hand, at balance and at collapse, against a naive loop and against transformers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from transformers.models.switch_transformers.modeling_switch_transformers import router_z_loss_func

from course_lib.moe import losses
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, torch.as_tensor(expected), **tolerance)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_variation_by_hand():
    """1, 3: mean 2, variance 1. One expert with everything: E - 1."""
    close(losses.squared_variation(torch.tensor([1.0, 3.0])), 0.25)
    close(losses.squared_variation(torch.tensor([0.0, 0, 8, 0])), 3.0)
    close(losses.squared_variation(torch.full((5,), 0.2)), 0.0)


def test_importance_counts_weight_and_not_tokens():
    weights = torch.tensor([[0.75, 0.0], [0.0, 0.25], [0.0, 0.25], [0.0, 0.25]])
    close(losses.importance(weights, scale=1.0), 0.0)
    close(losses.balance(weights + 1e-9, weights > 0, alpha=1.0), 2 * (0.25 * 0.5 + 0.75 * 0.5))


def test_the_chance_to_be_sent_by_hand():
    """k = 1. Without itself the best of H = (2, 1, 0) is 1 for expert 0, and 2 for the others."""
    clean, noisy = torch.tensor([[1.5, 1.0, 0.0]]), torch.tensor([[2.0, 1.0, 0.0]])
    deviation = torch.tensor([[0.5, 1.0, 2.0]])
    normal = torch.distributions.Normal(0, 1)
    expected = normal.cdf(torch.tensor([[(1.5 - 1) / 0.5, (1 - 2) / 1.0, (0 - 2) / 2.0]]))
    close(losses.sent_probability(clean, noisy, deviation, k=1), expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.data())
def test_the_chance_to_be_sent_is_that_of_a_loop(n_experts, data):
    """Ties included: equal rivals count as many."""
    k = data.draw(st.integers(1, n_experts - 1))
    noisy = torch.tensor(data.draw(st.lists(st.sampled_from([0.0, 1.0, 1.5]), min_size=n_experts, max_size=n_experts)))
    clean, deviation = torch.randn(n_experts, generator=seeded()), torch.rand(n_experts, generator=seeded(1)) + 0.1
    expected = []
    for i in range(n_experts):
        rivals = sorted((noisy[j].item() for j in range(n_experts) if j != i), reverse=True)
        expected.append(torch.distributions.Normal(0, 1).cdf((clean[i] - rivals[k - 1]) / deviation[i]))
    found = losses.sent_probability(clean[None], noisy[None], deviation[None], k)
    close(found, torch.stack(expected)[None], rtol=1e-5, atol=1e-6)


def test_the_chance_to_be_sent_is_how_often_it_happens():
    """Were its noise drawn anew and that of the others left: 20 000 draws, 4 deviations are 0.014."""
    clean, deviation = torch.tensor([[0.3, 0.0, 0.1, -0.4]]), torch.tensor([[0.5, 0.7, 0.3, 1.0]])
    noisy = clean + deviation * torch.randn(1, 4, generator=seeded())
    expected = losses.sent_probability(clean, noisy, deviation, k=2)
    for i in range(4):
        anew = noisy.expand(20_000, 4).clone()
        anew[:, i] = clean[0, i] + deviation[0, i] * torch.randn(20_000, generator=seeded(i))
        share = (anew.topk(2).indices == i).any(1).float().mean()
        assert share == pytest.approx(expected[0, i].item(), abs=0.014)


def test_load_has_a_gradient_for_both_gates():
    logits, noise = torch.randn(30, 4, generator=seeded()), torch.zeros(30, 4)
    leaves = [logits.requires_grad_(), noise.requires_grad_()]
    routing = NoisyTopK(k=2).route(logits, noise=noise, generator=seeded())
    close(losses.load(routing.sent, scale=1.0), losses.squared_variation(routing.sent.sum(0)))
    for gradient in torch.autograd.grad(losses.load(routing.sent), leaves):
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("wish", [-45.0, -60.0, -110.0, -1000.0])
@pytest.mark.parametrize("tied", [False, True])
def test_hardly_any_noise_leaves_the_chance_and_its_gradient_finite(wish, tied):
    """Down to a deviation of 0: then who is best goes for certain, equals with one half, and no noise can change it."""
    logits = torch.tensor([[1.0, 1.0, 0.0] if tied else [1.0, 0.5, 0.0]])
    leaves = [logits.requires_grad_(), torch.full((1, 3), wish, requires_grad=True)]
    routing = NoisyTopK(k=1).route(leaves[0], noise=leaves[1], generator=seeded())
    close(routing.sent.detach(), torch.tensor([[0.5, 0.5, 0.0] if tied else [1.0, 0.0, 0.0]]))
    gradients = torch.autograd.grad(losses.load(routing.sent), leaves)
    assert all(gradient.isfinite().all() for gradient in gradients)
    close(gradients[1], torch.zeros(1, 3))


def test_the_chance_to_be_sent_is_that_of_the_plain_formula_to_the_last_bit():
    """Also dozens of deviations away, where Φ ends."""
    clean, noisy = (8 * torch.randn(200, 5, generator=seeded(seed), dtype=torch.float64) for seed in (0, 1))
    deviation = torch.rand(200, 5, generator=seeded(2), dtype=torch.float64) + 0.01
    order = noisy.argsort(dim=1, descending=True, stable=True)
    edges = noisy.gather(1, order[:, 1:3])
    inside = torch.zeros(200, 5, dtype=torch.bool).scatter(1, order[:, :2], True)
    distance = clean - torch.where(inside, edges[:, 1:], edges[:, :1])
    assert (distance / deviation).abs().max() > 100
    assert torch.equal(losses.sent_probability(clean, noisy, deviation, k=2), torch.special.ndtr(distance / deviation))


NO_TOKEN = torch.zeros(4, 3)


@pytest.mark.parametrize(
    "loss",
    [
        lambda: losses.z_loss(NO_TOKEN, torch.zeros(4, dtype=torch.bool)),
        lambda: losses.z_loss(NO_TOKEN[:0]),
        lambda: losses.balance(NO_TOKEN, NO_TOKEN.bool()),
        lambda: losses.importance(NO_TOKEN),
        lambda: losses.load(NO_TOKEN),
    ],
)
def test_a_loss_of_padding_alone_is_refused(loss):
    with pytest.raises(ValueError, match="padding.*expected at least one real token"):
        loss()


@pytest.mark.parametrize("name", ["z_loss", "importance", "load", "balance"])
def test_nan_stays_nan_in_a_loss(name):
    values = torch.tensor([[0.5, torch.nan], [0.2, 0.8]])
    arguments = (values, torch.ones(2, 2, dtype=torch.bool)) if name == "balance" else (values,)
    assert getattr(losses, name)(*arguments).isnan()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_balance_is_one_at_balance_and_more_when_all_take_the_same(k):
    """N / k for k of N = 4 experts with all the probability."""
    even = torch.stack([torch.arange(4).roll(i) < k for i in range(4)])
    close(losses.balance(torch.full((4, 4), 0.25), even, alpha=1.0), 1.0)
    same = (torch.arange(4) < k).expand(8, 4)
    close(losses.balance(same / k, same, alpha=1.0), 4 / k)
    close(losses.balance(same / k, same, alpha=0.01), 0.04 / k)


def test_balance_by_hand_and_its_gradient():
    """f = (3/4, 1/4), P = (0.6, 0.4): 2 x (0.45 + 0.1). The gradient of a probability is N f / T: f has none."""
    probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.3, 0.7]], requires_grad=True)
    loss = losses.balance(probs, torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1]]).bool(), alpha=1.0)
    close(loss.detach(), 1.1)
    (gradient,) = torch.autograd.grad(loss, probs)
    close(gradient, torch.tensor([[2 * 0.75 / 4, 2 * 0.25 / 4]]).expand(4, 2))


def test_balance_counts_what_is_asked_for_before_anything_is_dropped():
    logits = torch.tensor([[2.0, 0], [2, 0], [2, 0], [0, 2]])
    full, tight = (Switch(factor).route(logits) for factor in (None, 0.5))
    assert tight.n_dropped > 0
    close(losses.balance(tight.probs, tight.chosen), losses.balance(full.probs, full.chosen))


def test_padding_is_in_no_loss():
    logits = torch.randn(9, 4, generator=seeded())
    real = torch.ones(12, dtype=torch.bool)
    real[[0, 5, 11]] = False
    padded = torch.full((12, 4), torch.nan)
    padded[real] = logits
    alone, beside = Mixtral().route(logits), Mixtral().route(padded, real=real)
    for one, other in zip(
        (losses.balance(alone.probs, alone.chosen), losses.importance(alone.weights), losses.z_loss(alone.logits)),
        (
            losses.balance(beside.probs, beside.chosen),
            losses.importance(beside.weights),
            losses.z_loss(beside.logits, real),
        ),
        strict=True,
    ):
        close(one, other)


def test_z_by_hand_and_as_transformers_has_it():
    """log(e^0 + e^log 3) = log 4."""
    close(losses.z_loss(torch.tensor([[1.0, 3.0]]).log(), scale=1.0), torch.tensor(4.0).log() ** 2)
    logits = torch.randn(2, 5, 3, generator=seeded())
    close(losses.z_loss(logits.flatten(0, 1), scale=1.0), router_z_loss_func(logits))


def collapsed(experts, n_experts=4, n_tokens=6):
    """Logits by which every token takes these experts with nearly all its probability."""
    logits = torch.full((n_tokens, n_experts), -30.0)
    logits[:, experts] = 30
    return logits


def test_layers_collapsed_onto_different_halves_look_balanced_in_transformers():
    """It averages loads over layers before the product: 2.0, as at perfect balance. Layer by layer it is N / k = 2."""
    two = (collapsed([0, 1]), collapsed([2, 3]))
    close(load_balancing_loss_func(two, num_experts=4, top_k=2), 2.0)
    even = (torch.tensor([[30.0, 30, -30, -30], [-30, -30, 30, 30]]),) * 2
    close(load_balancing_loss_func(even, num_experts=4, top_k=2), 2.0)
    close(losses.balance_of_layers([Mixtral().route(layer) for layer in two], alpha=1.0), 2.0)
    close(losses.balance_of_layers([Mixtral().route(layer) for layer in even], alpha=1.0), 1.0)
    four = tuple(collapsed([i]) for i in range(4))
    close(load_balancing_loss_func(four, num_experts=4, top_k=1), 1.0)
    close(losses.balance_of_layers([Switch(None).route(layer) for layer in four], alpha=1.0), 4.0)


def test_for_one_layer_transformers_loss_is_k_times_ours():
    logits = torch.randn(40, 6, generator=seeded())
    routing = OLMoE(k=2).route(logits)
    close(2 * losses.balance(routing.probs, routing.chosen, alpha=1.0), load_balancing_loss_func((logits,), 6, 2))
