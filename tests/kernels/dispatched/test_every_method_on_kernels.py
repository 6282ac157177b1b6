"""Every method gives the same result with the library's kernels on as with them off: all that the folders hold.

`make gpu` runs this on the GPU. Under Triton's interpreter, which is slow, one quick method of each kind runs.
Models are random, in float32; tolerances allow for sums of at most a few hundred terms in another order.
"""

import dataclasses

import pytest
import torch
from course_lib.kernels.dispatch import kernels
from kernel_device import COMPILED, DEVICE
from torch import nn

from course_lib import discover
from course_lib.attention import prefill
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.contextual import selectors
from course_lib.contextual.apply import contextual
from course_lib.contextual.selector import NeuronSelector
from course_lib.kernels import runtime
from course_lib.kv import policies
from course_lib.kv.cache import evicting
from course_lib.kv.policy import EvictionPolicy
from course_lib.models import tiny_model
from course_lib.moe import routers
from course_lib.moe.layer import random_layer
from course_lib.moe.routing import Router
from course_lib.pruning import methods
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram
from course_lib.sparsity.patterns import NofM, Unstructured

pytestmark = pytest.mark.skipif(runtime.mode() == "reference", reason="needs a GPU, or TRITON_INTERPRET=1")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
IDS = torch.randint(3, 97, (2 if COMPILED else 1, 40), generator=torch.Generator().manual_seed(0))
POSITIONS = ["original", "rolling"] if COMPILED else ["original"]
PATTERNS = [Unstructured(0.5), NofM(2, 4), NofM(4, 8)] if COMPILED else [NofM(2, 4)]
DTYPES = [torch.float32, torch.bfloat16] if COMPILED else [torch.float32]


def each(name, folder, base, quick):
    """A parameter for each method of a folder; under the interpreter, only for the one called `quick`."""
    found = discover.subclasses(folder, base)
    found = found if COMPILED else [method for method in found if method.__name__ == quick]
    return pytest.mark.parametrize(name, found, ids=lambda method: method.__name__)


def on_and_off(run):
    """What `run` gives with the library's kernels, and without."""
    found = []
    for on in (True, False):
        with kernels(on), torch.no_grad():
            found.append(run())
    return found


def model_here():
    return tiny_model().to(DEVICE)


def fields_of(method):
    return {field.name for field in dataclasses.fields(method)}


@pytest.mark.parametrize("positions", POSITIONS)
@each("policy", policies, EvictionPolicy, quick="Window")
def test_an_eviction_policy_keeps_and_reads_the_same(policy, positions):
    model, ids = model_here(), IDS.to(DEVICE)
    settings = {"budget": 12, "recent": 4} if policy.__name__ != "Full" else {"budget": 1.0}
    settings |= {"spared": ()} if "spared" in fields_of(policy) else {}

    def run():
        with evicting(model, policy(**settings), positions) as cache:
            logits = [model(ids[:, :32], past_key_values=cache, use_cache=True).logits]
            logits += [model(ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(32, 40)]
            kept = [slots.position.sort(dim=2).values for slots in cache.slots]
        return torch.cat(logits, dim=1), kept

    (on, kept_on), (off, kept_off) = on_and_off(run)
    torch.testing.assert_close(on, off, **CLOSE)
    for here, there in zip(kept_on, kept_off, strict=True):
        assert torch.equal(here, there)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@each("method", methods, LayerPruner, quick="Wanda")
def test_a_pruner_keeps_the_same_weights(method, pattern, dtype, generator):
    weight = torch.randn(24, 64, generator=generator).to(DEVICE, dtype)
    inputs = torch.randn(160, 64, generator=generator)
    inputs[:, 5] = 0  # a dead input
    gram = Gram(64, method.needs, device=DEVICE)
    gram.add(inputs.to(DEVICE))
    on, off = on_and_off(lambda: method(pattern).prune(weight, gram))
    assert torch.equal(on == 0, off == 0)
    tolerance = CLOSE if dtype == torch.float32 else {"rtol": 2**-7, "atol": 2**-9}  # bfloat16 has 8 bits
    torch.testing.assert_close(on, off, **tolerance)


@each("router", routers, Router, quick="Mixtral")
def test_a_router_sends_tokens_to_the_same_experts(router, generator):
    settings = {name: value for name, value in {"k": 2}.items() if name in fields_of(router)}
    layer = random_layer(32, 48, 5, router(**settings), generator).to(DEVICE).eval()
    tokens = torch.randn(2, 12, 32, generator=generator).to(DEVICE)
    ids = torch.randint(0, 97, (2, 12), generator=generator).to(DEVICE)
    (on, routing_on), (off, routing_off) = on_and_off(lambda: layer(tokens, ids=ids))
    torch.testing.assert_close(on, off, **CLOSE)
    assert torch.equal(routing_on.keep, routing_off.keep)
    for name in ("weights", "probs"):
        torch.testing.assert_close(getattr(routing_on, name), getattr(routing_off, name), **CLOSE)


@each("selector", selectors, NeuronSelector, quick="Oracle")
def test_a_selector_computes_the_same(selector):
    model, ids = model_here(), IDS.to(DEVICE)
    settings = {}
    if "predictors" in fields_of(selector):
        torch.manual_seed(0)
        settings["predictors"] = tuple(nn.Linear(48, 100).to(DEVICE) for _ in range(2))
    fitted = selector(**settings).fit(model, ids)

    def run():
        with contextual(model, fitted, density=0.3):
            return model(ids).logits

    on, off = on_and_off(run)
    torch.testing.assert_close(on, off, **CLOSE)


@each("rule", prefill, SparsePrefill, quick="RandomBlocks")
def test_a_prefill_rule_reads_the_same(rule):
    model, ids = model_here(), IDS.to(DEVICE)
    settings = {"block_size": 8} | ({"min_budget": 8} if "min_budget" in fields_of(rule) else {})

    def run():
        with prefilling(model, rule(**settings)) as watch:
            return model(ids, use_cache=False).logits, watch.density

    (on, density_on), (off, density_off) = on_and_off(run)
    torch.testing.assert_close(on, off, **CLOSE)
    assert torch.equal(density_on, density_off)
