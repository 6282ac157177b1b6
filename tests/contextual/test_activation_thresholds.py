"""Thresholds from quantiles: CATS as a selector, TEAL on every linear's input."""

import math

import numpy
import pytest
import torch
from seen_by_hand import random_neurons, seen_of

from course_lib.contextual.apply import contextual
from course_lib.contextual.fitting.threshold import LEVELS, Sample, threshold_at
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.selectors.cats import CATS
from course_lib.models import blocks, layers_of, tiny_model


def text(n=12, length=64, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def test_quantiles_are_those_of_all_values():
    generator, sample, everything = torch.Generator().manual_seed(0), Sample(seed=1), []
    for _ in range(12):
        everything.append(torch.randn(64, 100, generator=generator))
        sample.add(everything[-1])
    quantiles, whole = sample.quantiles(), torch.cat(everything).flatten()
    assert quantiles.shape == (LEVELS,)
    for density in (0.9, 0.5, 0.123):
        share = (whole > threshold_at(quantiles, density)).float().mean()
        assert share == pytest.approx(density, abs=0.005)  # 4 standard errors of 196,608 draws


def test_a_threshold_lies_between_levels_on_a_line():
    """Of 0, 1, ..., 1000 squared: above 0.4995 of them lies (500² + 501²) / 2."""
    quantiles = torch.arange(LEVELS).float().square()
    assert threshold_at(quantiles, 0.4995) == pytest.approx((500**2 + 501**2) / 2)
    assert threshold_at(quantiles, 0.25) == pytest.approx(float(numpy.quantile(quantiles.numpy(), 0.75)))
    assert threshold_at(quantiles, 1.0) == -math.inf


@pytest.mark.parametrize("density", [0.2, 0.5, 0.8])
def test_the_density_asked_for_is_reached_on_other_text(density):
    model = tiny_model()
    selector = CATS().fit(model, text())
    with torch.no_grad(), contextual(model, selector, density=density) as watch:
        model(text(seed=1))
    assert watch.density == pytest.approx((density, density), abs=0.02)


def test_behind_relu_zeros_leave_and_nothing_is_lost():
    """Half of the neurons are zero; a density of 0.8 keeps those that are not."""
    model, ids = tiny_model(0, "opt"), text(2)
    with torch.no_grad(), contextual(model, CATS().fit(model, text()), density=0.8) as watch:
        sparse = model(ids).logits
    assert watch.mean_density < 0.6
    torch.testing.assert_close(sparse, model(ids).logits, atol=1e-6, rtol=0)


def test_a_token_keeps_as_many_neurons_as_are_above():
    neurons = random_neurons(width=1, n=3)
    neurons = type(neurons)(
        gate=torch.tensor([[1.0], [2.0], [3.0]]), up=neurons.up, down=neurons.down, activation="relu"
    )
    quantiles = torch.linspace(0, 10, LEVELS)[None]  # the threshold at density d is 10 (1 − d)
    keep = CATS(density=0.5, quantiles=quantiles).keep(seen_of(neurons, torch.tensor([[1.0], [2.0], [9.0]])), 0)
    assert keep.int().tolist() == [[0, 0, 0], [0, 0, 1], [1, 1, 1]]


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_every_linear_reads_what_is_above_its_threshold(family):
    model, read = tiny_model(0, family), {}
    thresholds = Teal.fit(model, text())
    assert thresholds.places == tuple(layer.name for layer in layers_of(model) if layer.is_first)
    with torch.no_grad(), teal(model, thresholds, density=0.4) as watch:
        handles = [
            layer.module.register_forward_pre_hook(lambda _, args, name=layer.name: read.update({name: args[0]}))
            for layer in layers_of(model)
        ]
        model(text(seed=1))
    for handle in handles:
        handle.remove()
    above = thresholds.thresholds(0.4)
    for layer in layers_of(model):
        values = read[layer.name].abs()
        assert values[values > 0].min() > above[layer.group[0]]
        assert (values > 0).float().mean() == pytest.approx(watch.density[layer.group[0]], abs=1e-6)
    assert watch.density["blocks.0." + layers_of(model)[0].part] == pytest.approx(0.4, abs=0.02)
    assert set(watch.density) == set(thresholds.places)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_density_one_reads_everything():
    model, ids = tiny_model(), text(2)
    with torch.no_grad():
        dense = model(ids).logits
        with teal(model, Teal.fit(model, text()), density=1.0):
            assert torch.equal(model(ids).logits, dense)


@pytest.mark.parametrize("length", [10, 11])
@pytest.mark.parametrize("family", ["llama", "opt"])
def test_the_authors_evaluation_leaves_the_first_half_whole(family, length):
    """Of 11 tokens the last 5 are thinned: `size // 2`. The first half is dense to the last bit."""
    model, ids = tiny_model(0, family), text(2, length)
    thresholds = Teal.fit(model, text())
    with torch.no_grad():
        dense = model(ids).logits
        with teal(model, thresholds, density=0.3, tokens="last half") as half:
            found = model(ids).logits
        with teal(model, thresholds, density=0.3, tokens="all") as whole:
            model(ids)
    first = length - length // 2
    assert torch.equal(found[:, :first], dense[:, :first])
    assert (found[:, first:] - dense[:, first:]).abs().amax((0, 2)).min() > 0
    assert half.mean_density == pytest.approx((first + (length - first) * whole.mean_density) / length, abs=0.02)


def test_a_token_alone_is_thinned_either_way():
    """As when generating: there is no first half."""
    model, ids = tiny_model(), text(1, 1)
    thresholds = Teal.fit(model, text())
    logits = []
    for tokens in ("all", "last half"):
        with torch.no_grad(), teal(model, thresholds, density=0.3, tokens=tokens):
            logits.append(model(ids).logits)
    assert torch.equal(*logits)


def test_no_density_of_teal_before_the_first_token():
    model = tiny_model()
    with teal(model, Teal.fit(model, text(1))) as watch:
        assert math.isnan(watch.mean_density)
    assert len(blocks(model)) * 4 == len(Teal.fit(model, text(1)).places)
