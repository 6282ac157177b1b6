"""NaN is refused by name, or comes out as NaN; it never becomes a number, nor an error about something else."""

import math

import pytest
import torch

from course_lib.attention.delta.code import delta_code
from course_lib.attention.prefill.baselines import SinkAndWindow, VerticalSlash
from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.index import dense_index
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup
from course_lib.attention.steering.heads import search_heads
from course_lib.attention.visual.baselines import EntropyAlone
from course_lib.attention.visual.importance import Evidence
from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.attention.weights import AttentionWeights
from course_lib.contextual.inputs.greedy_levels import GreedyTeal
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.selectors.cats import CATS
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.kv.cache import evicting
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.h2o import H2O
from course_lib.models import tiny_model
from course_lib.prompts.losses import prompted_losses

IDS = torch.randint(3, 97, (1, 8), generator=torch.Generator().manual_seed(0))
NAN = torch.full((2, 8, 2), math.nan)
WHOLE = tiny_model()
TEAL, CATS_FITTED = Teal.fit(WHOLE, IDS), CATS().fit(WHOLE, IDS)


def diverged(part="mlp.up_proj"):
    """A model one row of whose weights is NaN."""
    model = tiny_model()
    with torch.no_grad():
        model.model.layers[0].get_submodule(part).weight[3] = math.nan
    return model


def logits(block, model):
    with torch.no_grad(), block(model) as cache:
        asked = {"past_key_values": cache} if hasattr(cache, "policy") else {}
        return model(IDS, **asked).logits


def a_draft(temperature):
    generator = torch.Generator().manual_seed(0)
    return speculate(diverged(), IDS[0], 3, Lookup(97), temperature=temperature, generator=generator)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: FlexPrefill(gamma=0.9, block_size=2, min_budget=0).index(NAN, NAN, 1.0), "queries and keys"),
        (lambda: FlexPrefill(gamma=0.9, block_size=2, tau=0.0, min_budget=0).index(NAN, NAN, 1.0), "queries and keys"),
        (lambda: SinkAndWindow(block_size=2).index(NAN, NAN, 1.0), "queries and keys of which 64 of 64 values are NaN"),
        (lambda: VerticalSlash(block_size=2).index(NAN, NAN, 1.0), "queries and keys"),
        (lambda: smallest_set(torch.tensor([0.5, math.nan]), 0.5), "masses of which 1 are negative or NaN"),
        (lambda: search_heads(lambda heads: math.nan, 3, 2, best_layers=1), "got worth nan of steering 2 heads"),
        (lambda: a_draft(0.0), "got logits with"),
        (lambda: a_draft(1.0), "got logits with"),
        (
            lambda: logits(lambda m: evicting(m, D2O(4, sinks=1, recent=1, spared=())), diverged("self_attn.k_proj")),
            "sco",
        ),
        (lambda: logits(lambda m: contextual(m, CATS_FITTED, 0.5), diverged("mlp.gate_proj")), "NaN of .* scores"),
        (lambda: logits(lambda m: contextual(m, Oracle(density=0.5)), diverged()), "NaN of .* scores"),
        (
            lambda: logits(lambda m: contextual_heads(m, part_norms, keep=2), diverged("self_attn.v_proj")),
            "of them NaN, at block 0",
        ),
        (lambda: Teal.fit(diverged(), IDS), "are NaN"),
        (lambda: EntropyAlone()(Evidence(torch.ones(1, 4, 4), torch.full((1, 4), math.nan))), "attention and entropy"),
        (lambda: prompted_losses(diverged(), None, IDS, progress=False), "got NaN for the losses of 7 of 7 tokens"),
        (lambda: GreedyTeal.fit_levels(TEAL, diverged(), IDS, step=0.25), "got NaN in the block's output"),
    ],
)
def test_it_is_refused_by_name(made, message):
    with pytest.raises(ValueError, match=message):
        made()


@pytest.mark.parametrize(
    "made",
    [
        lambda: logits(lambda model: teal(model, TEAL, density=1.0), diverged()),
        lambda: logits(lambda model: teal(model, TEAL, density=0.5), diverged()),
        lambda: logits(lambda model: evicting(model, H2O(4, recent=1)), diverged("self_attn.k_proj")),
        lambda: coverage(NAN, NAN, dense_index(2, 8, 2), 1.0),
        lambda: delta_code(torch.tensor([[1.0], [math.nan]]), 0.5).keys[1],
        lambda: AttentionWeights.of(diverged("self_attn.q_proj"), 0).read(torch.ones(3, 48)),
    ],
)
def test_it_comes_out(made):
    assert bool(made().isnan().all())


def test_a_number_after_nan_is_sent():
    code = delta_code(torch.tensor([[1.0], [math.nan], [1.2], [1.3]]), 0.5)
    assert code.sent.flatten().tolist() == [True, True, True, False]
    torch.testing.assert_close(code.keys.flatten(), torch.tensor([1.0, math.nan, 1.2, 1.2]), equal_nan=True)
