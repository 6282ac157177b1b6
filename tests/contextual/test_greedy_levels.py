"""TEAL's algorithm 1: densities of each input of each block, against a slow twin and by hand."""

import math
from itertools import pairwise

import pytest
import torch

from course_lib.contextual.fitting.threshold import threshold_at
from course_lib.contextual.inputs.greedy_levels import GreedyTeal
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.models import blocks, layers_of, tiny_model, weight_of


def text(n=4, length=32, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def model_that_cares(family):
    """Its attention's last matrix is loud, so that its input should be thinned last."""
    model = tiny_model(0, family)
    with torch.no_grad():
        for layer in layers_of(model):
            weight_of(layer.module).mul_(30 if layer.group[0].endswith(("o_proj", "out_proj")) else 5)
    return model


def shares_of(model):
    """Weights behind each input of the first block, as shares of all its weights."""
    counts = {}
    for layer in layers_of(model):
        if layer.block is blocks(model)[0]:
            counts[layer.group[0]] = counts.get(layer.group[0], 0) + weight_of(layer.module).numel()
    return torch.tensor(list(counts.values())) / sum(counts.values())


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_every_step_takes_the_same_share_of_the_weights(family):
    model = model_that_cares(family)
    found = GreedyTeal.fit_levels(Teal.fit(model, text()), model, text(2), lowest=0.7, step=0.1)
    assert found.densities.shape == (2, 4, 4)
    expected = torch.tensor([1.0, 0.9, 0.8, 0.7]).expand(2, 4)
    torch.testing.assert_close(found.densities @ shares_of(model), expected)
    assert (found.densities.diff(dim=1) <= 0).all()
    assert (found.densities.diff(dim=1) < 0).sum() == 2 * 3  # one input a step


def test_each_step_is_the_one_that_moves_the_output_least():
    """Twin: every candidate in the whole model, whose last block is the one that is thinned."""
    model = model_that_cares("llama")
    plain, windows, step = Teal.fit(model, text()), text(2), 0.15
    found = GreedyTeal.fit_levels(plain, model, windows, lowest=0.7, step=step).densities[1]
    ends = [layer for layer in layers_of(model) if layer.block is blocks(model)[1]]
    with torch.no_grad():
        dense = output_of(model, windows, {})
        for before, after in pairwise(found):
            errors = []
            for index, share in enumerate(shares_of(model)):
                tried = before.clone()
                tried[index] -= step / share
                nothing_left = tried[index] <= 0
                errors.append(math.inf if nothing_left else moved(model, windows, plain, ends, tried, dense))
            assert int((after - before).argmin()) == errors.index(min(errors))


def moved(model, windows, plain, layers, densities, dense):
    quantiles = dict(zip(plain.places, plain.quantiles, strict=True))
    places = [layer.name for layer in layers if layer.is_first]
    above = {place: threshold_at(quantiles[place], d.item()) for place, d in zip(places, densities, strict=True)}
    thinned = output_of(model, windows, {layer.module: above[layer.group[0]] for layer in layers})
    return (thinned - dense).norm().item()


def output_of(model, windows, above):
    """What the last block gives, with hooks of this test's own."""
    given, handles = [], []
    for module, threshold in above.items():
        drop = lambda _, args, threshold=threshold: (args[0] * (args[0].abs() > threshold),)  # noqa: E731
        handles.append(module.register_forward_pre_hook(drop))
    handles.append(blocks(model)[-1].register_forward_hook(lambda *parts: given.append(parts[2])))
    model(windows, use_cache=False)
    for handle in handles:
        handle.remove()
    return given[0][0] if isinstance(given[0], tuple) else given[0]


def test_a_loud_matrix_keeps_its_input_and_the_whole_density_is_reached():
    model = model_that_cares("llama")
    greedy = GreedyTeal.fit_levels(Teal.fit(model, text(12, 64)), model, text(2), lowest=0.5, step=0.05)
    outputs = [place.endswith("o_proj") for place in greedy.places[:4]]
    last = greedy.densities[:, -1]
    assert (last[:, outputs] > last[:, [not each for each in outputs]].mean(1, keepdim=True)).all()
    with torch.no_grad(), teal(model, greedy, density=0.5) as watch:
        model(text(4, 64, seed=1))
    by_place = torch.tensor(list(watch.density.values())).view(2, 4)
    torch.testing.assert_close(by_place, last, atol=0.03, rtol=0)  # as thresholds on other text reach it
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_between_two_steps_densities_lie_on_a_line():
    quantiles = torch.linspace(0, 1, 1001).expand(2, -1)  # the threshold at density d is 1 − d
    levels = GreedyTeal(("a", "b"), quantiles, 0.2, torch.tensor([[[1.0, 1.0], [0.6, 1.0], [0.6, 0.5]]]))
    assert levels.thresholds(1.0) == {"a": -math.inf, "b": -math.inf}
    assert levels.thresholds(0.9) == pytest.approx({"a": 0.2, "b": -math.inf})
    assert levels.thresholds(0.7) == pytest.approx({"a": 0.4, "b": 0.25})
    assert levels.thresholds(0.6) == pytest.approx({"a": 0.4, "b": 0.5})
    with pytest.raises(ValueError, match="got density 0.5; levels were found down to 0.600"):
        levels.thresholds(0.5)


def test_bad_input_is_named():
    model = tiny_model()
    plain = Teal.fit(model, text())
    for settings in ({"step": 0.0}, {"lowest": 1.0}):
        with pytest.raises(ValueError, match="expected both above 0 and below 1"):
            GreedyTeal.fit_levels(plain, model, text(), **settings)
    with pytest.raises(ValueError, match="expected \\(n, tokens\\)"):
        GreedyTeal.fit_levels(plain, model, text()[:0])
