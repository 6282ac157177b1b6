"""The model of bytes with experts: its sizes by hand, its routings, its training, and the one that is committed."""

import pytest
import torch

from course_lib.attention.small_models.byte_model import byte_losses, configuration, load_half, save_half, untrained
from course_lib.attention.small_models.training import Schedule, groups, running
from course_lib.lessons.common.results import load_measured
from course_lib.moe.losses import balance_of_layers, z_loss
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch
from course_lib.moe.small_models.byte_mixture import (
    fresh,
    load_byte_mixture,
    mixture_configuration,
    n_weights,
    routings,
)
from course_lib.moe.small_models.training import Balancing, read, routing, train_mixture
from course_lib.moe.upcycling.swapping import layers_inside

TOKENS = running(["one two three, two three one. " * 40] * 3)
SMALL = {"n_experts": 4, "width": 16, "n_blocks": 2, "n_heads": 2, "active": 24}
IDS = TOKENS[:60].view(3, 20)


def small(k=2, seed=0):
    return untrained(mixture_configuration(k=k, **SMALL), seed).eval()


def test_weights_by_hand():
    # embedding 256 · 128; a block: 4 · 128² attention, 8 experts of 3 · 128 · 256, a gate of 8 · 128, two norms of 128;
    # the last norm; a tied head. A byte meets 2 of the 8.
    attention, expert, gate, norms = 4 * 128**2, 3 * 128 * 256, 8 * 128, 2 * 128
    whole, met = (256 * 128 + 4 * (attention + n * expert + gate + norms) + 128 for n in (8, 2))
    assert n_weights(untrained(mixture_configuration(), seed=0)) == (whole, met) == (3_445_888, 1_086_592)
    dense = untrained(configuration(), seed=0)
    assert n_weights(dense) == (1_082_496, 1_082_496)  # the gates are the whole difference
    assert met - 1_082_496 == 4 * gate


def test_all_but_the_experts_is_as_in_the_dense_model():
    """Mixtral's own defaults differ: another base of RoPE, for one."""
    dense, mixture = configuration(), mixture_configuration()
    for name in ("hidden_size", "head_dim", "num_hidden_layers", "rope_parameters", "rms_norm_eps", "vocab_size"):
        assert getattr(mixture, name) == getattr(dense, name), name
    assert mixture.tie_word_embeddings
    assert (mixture.intermediate_size, mixture_configuration(k=1).intermediate_size) == (256, 512)


@pytest.mark.parametrize("config", [configuration(), mixture_configuration()], ids=["dense", "mixture"])
def test_first_weights_have_the_deviation_that_their_inputs_ask_for(config):
    """1 / √inputs in MLPs, experts and gates; all else as transformers draws it."""
    model, plain = fresh(config, 0), dict(untrained(config, 0).named_parameters())
    for name, weight in model.named_parameters():
        if ".mlp." in name:
            within = 4 / weight.numel() ** 0.5  # more than five standard errors of a standard deviation
            assert weight.std().item() * weight.shape[-1] ** 0.5 == pytest.approx(1, abs=within), name
        else:
            assert torch.equal(weight, plain[name]), name
    assert torch.equal(fresh(config, 0).get_parameter(name), weight)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"k": 3}, "a number of neurons that k divides"),
        ({"k": 9, "active": 9 * 64}, "at most 8 experts"),
        ({"n_experts": 1}, "2 or more"),
    ],
)
def test_sizes_that_cannot_be(asked, words):
    with pytest.raises(ValueError, match=words):
        mixture_configuration(**asked)


def test_the_own_router_computes_what_transformers_computes():
    model = small()
    with torch.no_grad():
        expected = byte_losses(model, IDS).double().mean(dim=1)
    with routing(model, Mixtral(2)) as seen:
        found = read(model, seen, IDS, batch=2)
    torch.testing.assert_close(found.losses, expected, rtol=1e-5, atol=1e-6)  # float32, sums in another order
    assert [its.chosen.shape for its in found.routings] == [(3 * 19, 4)] * 2


def test_routings_stand_sequence_after_sequence():
    model = small().train()
    found = routings(model, IDS)
    assert model.training
    assert all(its.chosen.sum(dim=1).eq(2).all() for its in found)
    alone = routings(model, IDS[1:2])
    for its, own in zip(found, alone, strict=True):
        torch.testing.assert_close(its.logits[20:40], own.logits, rtol=1e-5, atol=1e-6)
    weights = routings(model, IDS, OLMoE(1))[0].weights
    assert weights.gt(0).sum(dim=1).eq(1).all()
    assert weights.lt(1).all()


def test_what_a_router_draws_it_draws_in_training_alone():
    model = small(k=1)
    with routing(model, Switch(None, jitter=0.5)) as seen:
        first, again = (read(model, seen, IDS).losses for _ in range(2))
        assert torch.equal(first, again)
        model.train()
        drawn = [byte_losses(model, IDS).detach() for _ in range(2)]
        assert not torch.equal(*drawn)
        assert torch.equal(read(model, seen, IDS).losses, first)
        assert model.training
        assert seen == [[], []]


def trained(router=None, k=2, n_steps=12, rate=1e-2, **options):
    model, nats, loads = small(k), [], []

    def look(step, value, its):
        nats.append(value)
        loads.append([each.load for each in its])

    with routing(model, router or Mixtral(k)) as seen:
        train_mixture(model, seen, TOKENS, Schedule(n_steps, 4, 16, rate, 2), 0, look=look, **options)
        routers = [layer.router for layer in layers_inside(model)]
    return model, nats, loads, routers


def test_a_short_training_lowers_the_loss_and_repeats_itself():
    (one, nats, *_), (other, again, *_) = trained(n_steps=30), trained(n_steps=30)
    assert sum(nats[-5:]) < 0.8 * sum(nats[:5])
    assert nats == again
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_penalty_reaches_the_gates_and_is_not_part_of_the_nats():
    """One that asks for an expert that is rare without it gets it, in every block; a constant changes nothing."""
    _, free, loads, _ = trained(n_steps=20)
    _, same, _, _ = trained(n_steps=20, penalty=lambda its: torch.tensor(5.0))
    assert free == same
    rare = int(sum(loads[-1]).argmin())
    assert loads[-1][0][rare] < 0.2
    _, _, asked, _ = trained(n_steps=20, penalty=lambda its: -10 * sum(each.probs[:, rare].mean() for each in its))
    assert all(load[rare] > 0.45 for load in asked[-1])  # a half is all that one of two choices can be


def test_the_bias_moves_after_each_step_against_the_load():
    _, _, loads, routers = trained(DeepSeek(2), n_steps=3, speed=0.25)
    for block, router in enumerate(routers):
        expected = sum(0.25 * (0.25 - each[block]).sign() for each in loads)
        torch.testing.assert_close(router.bias, expected)
    assert trained(DeepSeek(2), n_steps=1)[3][0].bias is None


def test_balancing_is_both_losses_of_the_layers():
    its = routings(small(), IDS)
    expected = balance_of_layers(its, 0.5) + torch.stack([z_loss(each.logits, each.real, 0.25) for each in its]).mean()
    torch.testing.assert_close(Balancing(0.5, 0.25)(its), expected)
    with pytest.raises(ValueError, match="alpha"):
        Balancing(alpha=-1.0)


def test_experts_decay_as_other_matrices_do():
    """Held in one tensor of three axes; norms alone do not."""
    decaying, others = groups(small(), 0.1)
    assert decaying["weight_decay"] == 0.1
    assert {weight.ndim for weight in decaying["params"]} == {2, 3}
    assert {weight.ndim for weight in others["params"]} == {1}


def test_it_comes_back_from_half_precision(tmp_path):
    model = small()
    save_half(model, tmp_path, "byte_mixture")
    back = load_half(tmp_path, "byte_mixture")
    for name, weight in model.named_parameters():
        torch.testing.assert_close(back.get_parameter(name), weight.detach().half().float(), rtol=0, atol=0)


@pytest.mark.real
def test_committed_weights_are_those_that_were_measured():
    """Weights are the same bits; the sums of another processor move the loss in the sixth digit."""
    (row,) = load_measured("moe", "experiments/byte_mixture")["tables"]["models"]
    model, held_out, training = load_byte_mixture(n_training=5)
    assert (held_out.shape, training.shape) == ((48, 128), (5, 128))
    assert n_weights(model) == (row["parameters"], row["met"])
    with torch.no_grad():
        losses = byte_losses(model, held_out).mean(dim=1)
    assert losses.tolist() == pytest.approx(row["losses"][:48], abs=2e-4)  # rounded to 1e-4
