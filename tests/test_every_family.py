"""Settings that change nothing give the model's own logits, in every family; or the family is refused by name.

Density 1, budgets that hold the whole text, γ = 1, α = 1, all experts: what is then left of a method is the part of the
model that it computes again.
"""

import re
import warnings

import pytest
import torch
from families import CONFIGURATIONS, family_model

from course_lib import discover
from course_lib.attention.delta.apply import delta_attention
from course_lib.attention.delta.spread import key_spread
from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.steering.steer import steering
from course_lib.attention.windowed import windowed
from course_lib.contextual.altered import activated_by, halves_in_parallel, skipping
from course_lib.contextual.apply import contextual
from course_lib.contextual.attention.alone import alone_blocks
from course_lib.contextual.attention.head_cache import HeadCache
from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.attention.trials import trials
from course_lib.contextual.attention.weights import AttentionWeights
from course_lib.contextual.inputs.teal import Teal, teal
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.slow_change import slow_change
from course_lib.kv import policies
from course_lib.kv.cache import evicting
from course_lib.kv.h2o_oracle import h2o_oracle
from course_lib.kv.policies.window import Window
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.recycled import Recycled, recycling
from course_lib.models import activation, blocks, heads
from course_lib.moe.upcycling.mixtral import upcycled
from course_lib.prompts.initial import from_ids
from course_lib.prompts.prompted import prompting

IDS = torch.randint(3, 97, (2, 8), generator=torch.Generator().manual_seed(0))
MARKED = torch.eye(8, dtype=torch.bool)[2:4]  # the token that each prompt highlights


def own(model):
    return model(IDS, use_cache=False).logits


def inside(block):
    """One pass over whole texts inside a `with` block, and the model's own logits."""

    def run(model):
        with block(model):
            return own(model), model.base_logits

    return run


def cached(block):
    """A prompt, several tokens at once, and one more, through the cache of a `with` block."""

    def run(model):
        with block(model) as cache:
            parts = [model(part, past_key_values=cache, use_cache=True).logits for part in IDS.split([5, 2, 1], dim=1)]
        return torch.cat(parts, dim=1), model.base_logits

    return run


def with_delta(side):
    return inside(lambda model: delta_attention(model, 0.0, key_spread(model, IDS, side), window=1))


def with_prompt(model):
    """A soft prompt of a text's first words, compared with the whole text."""
    with prompting(model, from_ids(model, IDS[0, :3])):
        return model(IDS[:1, 3:]).logits, model.base_logits[:1, 3:]


def with_all_experts(model):
    return own(upcycled(model, n_experts=2, k=2)), model.base_logits


def through_head_cache(model):
    """All heads at every token, compared with what the model's own attention gave for the same x."""
    found, expected = [], []
    for index, trial in enumerate(trials(model, n_tokens=6)):
        cache = HeadCache(AttentionWeights.of(model, index))
        everything = torch.ones(heads(model).n_query, dtype=torch.bool)
        found += [cache.step(x, everything) for x in trial.into_attention[0]]
        expected += list(trial.from_attention[0])
    return torch.stack(found), torch.stack(expected)


def of_a_token_alone(model):
    """Inputs of the MLPs in a text of one token."""
    pairs = zip(alone_blocks(model), trials(model, n_tokens=1), strict=True)
    found, expected = zip(*((block.read(trial.read[0]), trial.into_mlp[0]) for block, trial in pairs), strict=True)
    return torch.stack(found), torch.stack(expected)


def of_residuals(model):
    """The cosine of the residuals before and after each block, taken from transformers' own hidden states."""
    states = model(IDS, output_hidden_states=True, use_cache=False).hidden_states
    expected = torch.cosine_similarity(states[0].flatten(0, 1), states[1].flatten(0, 1), dim=1)
    return slow_change(model, IDS).cosine[0], expected


POLICIES = [
    policy
    for policy in discover.subclasses(policies, EvictionPolicy)
    if "spared" not in policy.__dataclass_fields__  # D2O, below
]
METHODS = {
    "contextual": inside(lambda model: contextual(model, Oracle(density=1.0))),
    "heads": inside(lambda model: contextual_heads(model, part_norms, keep=heads(model).n_query)),
    "teal": inside(lambda model: teal(model, Teal.fit(model, IDS), density=1.0)),
    "skipping": inside(lambda model: skipping(model, ())),
    "own activation": inside(lambda model: activated_by(model, activation(model))),
    "halves": inside(lambda model: halves_in_parallel(model, first=len(blocks(model)))),
    "head cache": through_head_cache,
    "token alone": of_a_token_alone,
    "slow change": of_residuals,
    **{
        policy.__name__: cached(lambda model, policy=policy: evicting(model, policy(budget=600))) for policy in POLICIES
    },
    "D2O": cached(lambda model: evicting(model, policies.d2o.D2O(budget=600, spared=()))),
    "rolling": cached(lambda model: evicting(model, Window(budget=600), "rolling")),
    "recycling": cached(lambda model: recycling(model, Recycled(budget=600))),
    "oracle": inside(lambda model: h2o_oracle(model, 1.0, 0.0)),
    "prefilling": inside(lambda model: prefilling(model, FlexPrefill(gamma=1.0, block_size=2, min_budget=0))),
    "steering": inside(lambda model: steering(model, MARKED, alpha=1.0)),
    "delta": with_delta("after"),
    "delta before RoPE": with_delta("before"),
    "windowed": inside(windowed),
    "prompting": with_prompt,
    "all experts": with_all_experts,
}
ROTATED = "head cache", "rolling", "delta before RoPE"  # what turns keys itself
ATTENTION = tuple(name for name in list(METHODS)[list(METHODS).index("token alone") + 2 :] if name != "prompting")[:-1]
CACHED = *(policy.__name__ for policy in POLICIES), "D2O", "rolling", "recycling"
NEURONS = "contextual", "own activation"
RESIDUAL = "token alone", "slow change", "halves"
ALL = tuple(METHODS)
REFUSED = {  # by whom; all other methods must give the model's own logits
    "Llama": (),
    "Llama, biases": ("all experts",),
    "Llama, wide heads": (),
    "Llama, linear": (),
    "Llama, dynamic": ROTATED,
    "Llama, YaRN": (),
    "Llama, llama3": (),
    "Llama, longrope": ROTATED,
    "Mistral": (),
    "Mistral, window": (*ATTENTION, "head cache"),
    "Qwen2": ("all experts",),
    "Qwen3": ("head cache", "all experts"),
    "Gemma": ("all experts",),
    "Gemma 2": (*NEURONS, *RESIDUAL, *ATTENTION, "head cache", "all experts"),
    "Gemma 3": (*NEURONS, *RESIDUAL, *ATTENTION, "head cache", "all experts"),
    "Granite": ("token alone", "slow change", "all experts"),
    "SmolLM3": ("rolling", "delta before RoPE", "all experts"),
    "OLMo": ("head cache", "token alone", "all experts"),
    "OLMo 2": ALL,
    "StableLM": (*ROTATED, "all experts"),
    "Phi": ALL,
    "Phi 3": ALL,
    "GPT-2": (*ROTATED, "all experts"),
    "GPT-2, scaled by layer": (*ROTATED, "all experts"),
    "OPT": (*ROTATED, "all experts"),
    "OPT, norms behind": (*RESIDUAL, *ROTATED, "all experts"),
    "Cohere": ALL,
    "Starcoder 2": ALL,
    "GPT-NeoX": ALL,
    "Helium": (*ROTATED, "all experts"),
    "BitNet": (*NEURONS, "token alone", "head cache", "all experts"),
    "DiffLlama": (*CACHED, "head cache", "token alone", "all experts"),
    "HunYuan": ("head cache", "all experts"),
}
NAMED = "|".join(
    (
        r"got an? (block of type )?\w*(Model|LM|Layer|Attention|Block)",
        "got attention with",
        "got RoPE of type",
        "got an attention mask that hides more than padding, as of packed texts or a window",
    )
)


@pytest.mark.parametrize("family", CONFIGURATIONS)
@torch.no_grad()
def test_nothing_changes_or_the_family_is_refused(family):
    model, wrong = family_model(family), []
    model.base_logits = own(model)
    size = model.base_logits.abs().max()
    for name, method in METHODS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # nothing was evicted, and texts are short
                found, expected = method(model)
        except ValueError as error:
            if name not in REFUSED[family] or not re.match(NAMED, str(error)):
                wrong.append(f"{name} is refused: {error}")
        else:
            off = float((found - expected).abs().max())
            if name in REFUSED[family] or not off <= 1e-5 * max(1, size):  # float32 sums in another order
                wrong.append(f"{name} is off by {off:.1e}")
    assert not wrong, "\n".join(wrong)
    assert torch.equal(own(model), model.base_logits), "the model is as before"
