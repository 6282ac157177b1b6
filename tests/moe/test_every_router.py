"""What every router promises, for every file of course_lib/moe/routers."""

import dataclasses
import inspect
import re
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import discover
from course_lib.moe import routers
from course_lib.moe.choice import admitted
from course_lib.moe.routed import Routing, joined
from course_lib.moe.routing import Router

ROUTERS = discover.subclasses(routers, Router)
SEEDED = torch.Generator
names = {"ids": lambda router: router.__name__}


def made(router, **wanted):
    """With those of the settings that the router has; k = 2, so that few experts are enough."""
    has = {field.name for field in dataclasses.fields(router)}
    return router(**{name: value for name, value in {"k": 2, **wanted}.items() if name in has})


def inputs(n_tokens=24, n_experts=5, seed=0):
    """Logits that differ by little, so that routers which sample have a choice; a second set; token ids."""
    generator = SEEDED().manual_seed(seed)
    logits = 0.1 * torch.randn(n_tokens, n_experts, generator=generator) + 1
    noise = torch.randn(n_tokens, n_experts, generator=generator)
    return logits, {"noise": noise, "ids": torch.randint(0, 97, (n_tokens,), generator=generator)}


def routed(router, logits, others, seed=None, **settings):
    generator = None if seed is None else SEEDED().manual_seed(seed)
    return router.route(logits, **others, **settings, generator=generator)


def n_places(router, n_tokens, n_experts):
    return min(router.capacity(n_tokens, n_experts), n_tokens)


def test_there_are_routers():
    names = {router.__name__ for router in ROUTERS}
    assert {"Mixtral", "OLMoE", "NoisyTopK", "Switch", "GShard", "DeepSeek"} <= names
    assert {"ExpertChoice", "Hash", "SparseMixer", "SparseMixerV2"} <= names


def test_a_file_dropped_into_the_folder_is_found(tmp_path, monkeypatch):
    """No list to edit: what lies there is what this suite tries."""
    source = inspect.getsource(inspect.getmodule(next(each for each in ROUTERS if each.__name__ == "OLMoE")))
    (tmp_path / "dropped.py").write_text(source.replace("class OLMoE", "class Dropped"), encoding="utf-8")
    monkeypatch.setattr(routers, "__path__", [*routers.__path__, str(tmp_path)])
    assert {each.__name__ for each in discover.subclasses(routers, Router)} - {each.__name__ for each in ROUTERS} == {
        "Dropped"
    }
    sys.modules.pop(f"{routers.__name__}.dropped")
    del routers.dropped


@pytest.mark.parametrize("router", ROUTERS, **names)
def test_it_says_where_it_comes_from_and_is_short(router):
    module = inspect.getmodule(router)
    assert re.search(r"\d{4}, https://", module.__doc__.splitlines()[0])
    assert router.__doc__
    assert len(inspect.getsource(module).splitlines()) <= 60
    assert [field.name for field in dataclasses.fields(router) if field.type is bool] == []


@pytest.mark.parametrize("seed", [None, 0], ids=["evaluation", "training"])
@pytest.mark.parametrize("router", ROUTERS, **names)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_counts_are_exact_and_weights_sum_as_declared(router, seed, data):
    """Also where logits are equal, and where padding stands among the tokens."""
    n_tokens, n_experts = data.draw(st.integers(2, 9)), data.draw(st.integers(2, 6))
    values = data.draw(
        st.lists(
            st.sampled_from([-2.0, 0.0, 0.5, 0.51, 3.0]), min_size=n_tokens * n_experts, max_size=n_tokens * n_experts
        )
    )
    real = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n_tokens, max_size=n_tokens)))
    real[data.draw(st.integers(0, n_tokens - 1))] = True
    router = made(router, k=data.draw(st.integers(1, n_experts)), capacity_factor=float(n_experts))
    if router.k > n_experts:
        return
    logits = torch.tensor(values).reshape(n_tokens, n_experts)
    routing = routed(router, logits, inputs(n_tokens, n_experts)[1], seed, real=real)
    n_real = int(real.sum())
    if router.chooses == "tokens":
        assert routing.chosen.sum(0).tolist() == [n_places(router, n_real, n_experts)] * n_experts
    else:
        assert routing.chosen.sum(1).tolist() == (router.k * real).tolist()
    assert not (routing.keep & ~routing.chosen).any()
    assert torch.equal(routing.weights != 0, routing.keep)
    low, high = router.weight_sum
    sums = routing.weights.sum(1)[real]
    assert (sums >= low - 1e-5).all()  # float32 sums of at most six numbers
    assert (sums <= high + 1e-5).all()
    torch.testing.assert_close(routing.probs.sum(1), real.float())
    assert (routing.probs >= 0).all()


@pytest.mark.parametrize("seed", [None, 0], ids=["evaluation", "training"])
@pytest.mark.parametrize("router", ROUTERS, **names)
def test_padding_changes_nothing_and_counts_nowhere(router, seed):
    """Whatever stands there, NaN included, before, between and after the tokens. What is drawn differs, so not then."""
    logits, others = inputs(8)
    router = made(router, capacity_factor=1.0)
    alone = routed(router, logits, others)
    real = torch.zeros(13, dtype=torch.bool)
    real[[1, 2, 4, 5, 6, 8, 9, 11]] = True
    padded = torch.full((13, 5), torch.nan)
    padded[real] = logits
    wide = {"noise": torch.full((13, 5), torch.nan), "ids": torch.full((13,), -7)}
    for name, value in others.items():
        wide[name][real] = value
    routing = routed(router, padded, wide, seed, real=real)
    for name in ("weights", "probs", "chosen", "keep"):
        found = getattr(routing, name)
        assert not found[~real].any(), name
        if seed is None:
            torch.testing.assert_close(found[real], getattr(alone, name), msg=name)
    assert torch.isfinite(routing.weights).all()
    assert routing.load.sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", [None, 0], ids=["evaluation", "training"])
@pytest.mark.parametrize("router", ROUTERS, **names)
def test_it_is_causal_or_says_so(router, seed):
    """Other logits of the last token, with few places: no earlier row may move, or for some it does."""
    router, moved = made(router, capacity_factor=0.7), False
    for draw in range(20):
        logits, others = inputs(12, 4, seed=draw)
        before = routed(router, 20 * logits - 20, others, seed)
        changed = logits.clone()
        changed[-1] = logits[-1].flip(0)
        after = routed(router, 20 * changed - 20, others, seed)
        moved |= not torch.equal(before.weights[:-1], after.weights[:-1])
    assert moved != router.is_causal


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("router", ROUTERS, **names)
def test_the_task_has_a_gradient_for_the_gate_or_it_says_not(router, k):
    """Renormalised top-1 is the case that has none: its weight is one whatever the logits are."""
    logits, others = inputs()
    router = made(router, k=k, capacity_factor=None if router.__name__ != "ExpertChoice" else 1.0)
    for seed in (None, 0):
        leaf = logits.double().requires_grad_()
        weights = routed(router, leaf, others, seed).weights
        values = torch.randn(weights.shape, generator=SEEDED().manual_seed(3), dtype=torch.float64)
        gradient = torch.zeros(1)
        if weights.requires_grad:
            (gradient,) = torch.autograd.grad((weights * values).sum().square(), leaf)
        assert (gradient.abs().max() > 1e-3) == router.learns
        assert router.learns or gradient.abs().max() < 1e-12  # rounding of float64


@pytest.mark.parametrize("router", ROUTERS, **names)
def test_the_balance_loss_has_a_gradient_where_probabilities_are_learnt(router):
    logits, others = inputs()
    leaf = logits.clone().requires_grad_()
    probs = routed(made(router), leaf, others).probs
    assert probs.requires_grad != (router.__name__ == "Hash")


@pytest.mark.parametrize("router", ROUTERS, **names)
def test_what_is_drawn_comes_from_the_generator_alone(router):
    logits, others = inputs(200)
    router = made(router)
    first, again, other = (routed(router, logits, others, seed) for seed in (1, 1, 2))
    quiet = [routed(router, logits, others) for _ in range(2)]
    assert torch.equal(first.weights, again.weights)
    assert torch.equal(quiet[0].weights, quiet[1].weights)
    draws = router.__class__.__name__ in ("NoisyTopK", "GShard", "SparseMixer", "SparseMixerV2")
    assert draws != torch.equal(first.weights, other.weights)


@pytest.mark.parametrize("router", ROUTERS, **names)
def test_the_logits_are_left_as_they_were(router):
    logits, others = inputs()
    before = logits.clone()
    routed(made(router), logits, others, 0)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("router", ROUTERS, **names)
def test_half_precision_is_routed_in_float32_and_double_in_double(router):
    """Switch, section 2.4: selective precision."""
    logits, others = inputs()
    assert routed(made(router), logits.bfloat16(), others).weights.dtype == torch.float32
    assert routed(made(router), logits.double(), others).weights.dtype == torch.float64


@pytest.mark.parametrize("router", ROUTERS, **names)
def test_a_capacity_of_all_tokens_drops_none(router):
    """c k T / E is T for c = E / k."""
    made_so = made(router, capacity_factor=5 / made(router).k)
    if made_so.capacity_factor is None or made_so.chooses == "tokens":
        pytest.skip("it drops nothing")
    logits, others = inputs()
    logits[:, 3] = 9  # everybody's first choice
    routing = routed(made_so, logits, others)
    assert routing.n_dropped == 0
    assert made(router, capacity_factor=1.0).route(logits, **others).n_dropped > 0
    unlimited = routed(made(router, capacity_factor=None), logits, others)
    assert torch.equal(routing.weights, unlimited.weights)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(2, 4), st.integers(1, 5), st.integers(0, 10**6))
def test_places_are_given_as_a_loop_would(n_tokens, n_experts, capacity, seed):
    generator = SEEDED().manual_seed(seed)
    wishes = [torch.rand(n_tokens, n_experts, generator=generator) < 0.5 for _ in range(2)]
    counts, expected = [0] * n_experts, torch.zeros(n_tokens, n_experts, dtype=torch.bool)
    for wish in wishes:
        for token in range(n_tokens):
            for expert in range(n_experts):
                if wish[token, expert]:
                    counts[expert] += 1
                    expected[token, expert] |= counts[expert] <= capacity
    assert torch.equal(admitted(wishes, capacity), expected)


def test_groups_are_joined_in_their_order():
    router = made(next(each for each in ROUTERS if each.__name__ == "Switch"), capacity_factor=1.0)
    parts = [router.route(inputs(6, seed=seed)[0]) for seed in (1, 2)]
    whole = joined(parts)
    assert isinstance(whole, Routing)
    assert torch.equal(whole.weights[6:], parts[1].weights)
    assert whole.sent is None
    assert len(whole.real) == 12
