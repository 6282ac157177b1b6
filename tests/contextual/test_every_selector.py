"""What every selector of neurons promises, for every file of course_lib/contextual/selectors."""

import dataclasses
import functools
import inspect
import re
import sys

import pytest
import torch
from torch import nn

from course_lib import discover
from course_lib.contextual import selectors
from course_lib.contextual.apply import choices, contextual
from course_lib.contextual.seen import looking
from course_lib.contextual.selector import NeuronSelector, n_kept
from course_lib.models import blocks, tiny_model

SELECTORS = discover.subclasses(selectors, NeuronSelector)
FAMILIES = ["llama", "opt"]  # SwiGLU, and plain ReLU with biases
names = {"ids": lambda selector: selector.__name__}
every_selector = pytest.mark.parametrize("selector", SELECTORS, **names)
every_family = pytest.mark.parametrize("family", FAMILIES)


def text(n=2, length=11, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


@functools.cache
def model_of(family):
    """Tiny models have small weights, so that their neurons hardly matter; here they do, and differ in reach."""
    model = tiny_model(0, family)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for block in blocks(model):
            for name, weight in block.named_parameters():
                if weight.ndim == 2 and ("mlp" in name or "fc" in name):
                    weight.mul_(10 * torch.rand(weight.shape[1], generator=generator))
    return model


@functools.cache
def fitted(selector, family="llama"):
    """To the model of that family, on `text()`; what wants trained predictors gets any."""
    return unfitted(selector).fit(model_of(family), text())


def unfitted(selector):
    """With the settings that it has by itself."""
    settings = {}
    if "predictors" in {field.name for field in dataclasses.fields(selector)}:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            settings["predictors"] = tuple(nn.Linear(48, 100) for _ in range(2))
    return selector(**settings)


def seen_in(model, ids, lookahead):
    """What there is to see in each block for one sequence."""
    found = []

    def look(block, seen):
        found.append(dataclasses.replace(seen, earlier=dict(seen.earlier)))

    with torch.no_grad(), looking(model, look, lookahead):
        model(ids[None], use_cache=False)
    return found


def n_hooks(model):
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def test_there_are_selectors():
    names = {selector.__name__ for selector in SELECTORS}
    assert {"Oracle", "Recorded", "Static", "TokenAlone", "FromEmbedding", "DejaVu"} <= names
    assert {"LowRank", "LowBit", "CATS", "Neighbours"} <= names


def test_a_selector_dropped_into_the_folder_is_found(tmp_path, monkeypatch):
    """No list to edit: what lies there is what this suite tries."""
    source = inspect.getsource(inspect.getmodule(next(each for each in SELECTORS if each.__name__ == "CATS")))
    (tmp_path / "dropped.py").write_text(source.replace("class CATS", "class Dropped"), encoding="utf-8")
    monkeypatch.setattr(selectors, "__path__", [*selectors.__path__, str(tmp_path)])
    found = {each.__name__ for each in discover.subclasses(selectors, NeuronSelector)}
    assert found - {each.__name__ for each in SELECTORS} == {"Dropped"}
    sys.modules.pop(f"{selectors.__name__}.dropped")
    del selectors.dropped


@every_selector
def test_a_selector_says_where_it_comes_from_and_is_short(selector):
    module = inspect.getmodule(selector)
    assert re.search(r"\d{4}, https://", module.__doc__.splitlines()[0])
    assert selector.__doc__
    assert len(inspect.getsource(module).splitlines()) <= 60
    assert [field.name for field in dataclasses.fields(selector) if field.type is bool] == []


@every_family
@every_selector
def test_scores_have_a_number_for_every_neuron_of_every_token(selector, family):
    model, ids = model_of(family), text()
    ready = fitted(selector, family)
    for block, seen in enumerate(seen_in(model, ids[0], ready.lookahead)):
        score = ready.score(seen, block)
        assert score.shape == (11, 100)
        assert score.dtype == torch.float32
        assert torch.equal(score, ready.score(seen, block)), "the same question has the same answer"


@pytest.mark.parametrize("density", [0.004, 0.1, 0.255, 0.5, 1.0])
@every_selector
def test_exactly_k_stay_or_it_says_not(selector, density):
    model, ids = model_of("llama"), text()
    keep = choices(model, fitted(selector), ids[0], density)
    assert keep.shape == (2, 11, 100)
    if selector.counts_exactly:
        assert (keep.sum(2) == max(1, round(density * 100))).all()
    elif density == 1:
        assert keep.all()


@every_family
@every_selector
def test_density_one_gives_the_dense_logits(selector, family):
    model, ids = model_of(family), text()
    ready = fitted(selector, family)
    with torch.no_grad():
        dense = model(ids).logits
        with contextual(model, ready, density=1.0) as watch:
            found = model(ids).logits
        with contextual(model, ready, density=0.3):
            sparse = model(ids).logits
    assert torch.equal(found, dense), "masks without a zero change no bit"
    assert watch.density == (1.0, 1.0)
    assert (sparse - dense).abs().max() > 1e-3 * dense.abs().max()


@every_selector
def test_it_leaves_no_hook_not_even_after_an_error(selector):
    model, ready = model_of("llama"), fitted(selector)
    assert n_hooks(model) == 0
    with contextual(model, ready):
        assert n_hooks(model) > 0
    assert n_hooks(model) == 0
    with pytest.raises(RuntimeError, match="by the way"), contextual(model, ready):
        raise RuntimeError("by the way")
    assert n_hooks(model) == 0
    with contextual(model, ready):
        pass  # it may be entered again


@every_selector
def test_a_predictor_does_not_look_at_what_it_predicts(selector):
    """h is not known before it is computed; an oracle says that it reads it. A recording read it in an earlier pass."""
    model, ids = model_of("llama"), text()
    ready = fitted(selector)
    seen = seen_in(model, ids[0], ready.lookahead)[1]
    blind = dataclasses.replace(seen, hidden=torch.full_like(seen.hidden, torch.nan))
    if selector.__name__ == "Oracle":
        assert ready.reads_hidden
        with pytest.raises(ValueError, match="got 1100 NaN of 1100 scores from Oracle at block 1"):
            ready.score(blind, 1)
    else:
        assert torch.equal(ready.keep(blind, 1), ready.keep(seen, 1))


@every_selector
def test_the_choice_for_a_token_does_not_depend_on_later_ones(selector):
    if selector.__name__ == "Recorded":
        pytest.skip("it was recorded for one text")
    model, ids = model_of("llama"), text()
    ready = fitted(selector)
    other = torch.cat([ids[0, :6], ids[1, 6:]])
    before, after = (choices(model, ready, each, 0.3) for each in (ids[0], other))
    assert torch.equal(before[:, :6], after[:, :6])


@every_selector
def test_fitting_gives_a_copy_and_knows_the_sizes(selector):
    model, ids = model_of("llama"), text()
    ready = fitted(selector)
    assert ready.sizes == (2, 48, 100)
    assert isinstance(ready, selector)
    before = dataclasses.replace(unfitted(selector), density=0.25)
    again = before.fit(model, ids)
    assert again is not before
    assert (before.sizes, again.density, ready.density) == (None, 0.25, 0.5)
    assert torch.equal(choices(model, again, ids[0], 0.5), choices(model, ready, ids[0], 0.5)), "nothing is drawn anew"


@every_selector
def test_bytes_are_counted_once_there_is_something_to_hold(selector):
    ready = fitted(selector)
    with contextual(model_of("llama"), ready) as watch:
        assert watch.bytes == ready.n_bytes
    # A recording stands for what nobody has; a token alone goes through the model's own weights.
    holds_nothing = {"Oracle", "Recorded", "Static", "CATS", "TokenAlone"}
    assert (ready.n_bytes == 0) == (selector.__name__ in holds_nothing)


def test_how_many_stay():
    assert [n_kept(density, 100) for density in (0.001, 0.015, 0.5, 1.0)] == [1, 2, 50, 100]
