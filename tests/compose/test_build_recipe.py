"""What a recipe makes is what its parts' own functions make, bit for bit."""

import copy
import json

import pytest
import torch

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.compose.build import build, extended
from course_lib.compose.recipe import from_json
from course_lib.contextual.apply import contextual
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.kv.cache import evicting
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.quantized import Quantized
from course_lib.models import layers_of, tiny_model, weight_of
from course_lib.prompts.compressed.catalogue import CATALOGUE
from course_lib.prompts.compressed.kinds import Layerwise
from course_lib.prompts.compressed.store import decoded, encoded
from course_lib.prompts.initial import from_ids
from course_lib.prompts.prompted import prompting
from course_lib.prompts.store import save_prompt
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.gptq import gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.footprint import sparsity_report
from course_lib.sparsity.patterns import Unstructured

WEIGHTS = {  # names of lesson 10 and the recipes that are the same
    "wanda-50": {"method": "Wanda", "pattern": 0.5},
    "wanda-2of4": {"method": "Wanda", "pattern": "2:4"},
    "sparsegpt-75": {"method": "SparseGPT", "pattern": 0.75},
    "gptq-3": {"bits": 3, "group": 64},
    "sparsegpt-50-4bit": {"method": "SparseGPT", "bits": 4, "group": 64},
}
CACHE = {"policy": "H2O", "budget": 14, "recent": 4, "bits": 4, "residual": 4}
NEURONS = {"selector": "LowRank", "density": 0.3, "settings": {"rank": 6}}
PREFILL = {"rule": "FlexPrefill", "settings": {"gamma": 0.5, "block_size": 4, "min_budget": 4}}


def read(built, ids, n_first=24):
    """Logits of a text read in one pass and then token by token, through the cache."""
    with built.running() as cache:
        return through(built.model, cache, ids, n_first)


@torch.no_grad()
def through(model, cache, ids, n_first=24):
    found = [model(ids[:, :n_first], past_key_values=cache, use_cache=True).logits]
    for at in range(n_first, ids.shape[1]):
        found.append(model(ids[:, at : at + 1], past_key_values=cache, use_cache=True).logits)
    return torch.cat(found, dim=1)


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_nothing_is_the_dense_model_bit_for_bit(made, model, text):
    built = made("{}")
    assert built.model is not model
    assert same_weights(built.model, model)
    with built.running() as cache, torch.no_grad():
        assert torch.equal(built.model(text, past_key_values=cache).logits, model(text).logits)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_those_of_lesson_10(made, model, text, name):
    built, compression = made(json.dumps({"weights": WEIGHTS[name]})), CATALOGUE[name]
    smaller, beside = compression.compress(model, text, False)
    tensors = encoded(compression, model, smaller, beside)
    assert same_weights(built.model, decoded(name, compression, model, tensors, {}).model)
    ours = {key.removeprefix("weights/"): part for key, part in built.stored.items() if key.startswith("weights/")}
    assert ours.keys() == tensors.keys()
    assert all(torch.equal(ours[key], tensors[key]) for key in ours)


def test_pruned_then_rounded_by_hand(made, model, text):
    built = made('{"weights": {"method": "Wanda", "pattern": 0.5, "allocation": "OWL", "bits": 3, "group": 32}}')
    by_hand = copy.deepcopy(model)
    prune_model(by_hand, Wanda(Unstructured(0.5, per="row")), text, False, OWL())
    keep = {layer.name: weight_of(layer.module) != 0 for layer in layers_of(by_hand)}
    prune_model(by_hand, gptq(Quantization(3, 32)), text, False)
    for ours, other in zip(layers_of(built.model), layers_of(by_hand), strict=True):
        # Scales are stored in half precision, so that values move by a thousandth of themselves; zeros stay zeros.
        torch.testing.assert_close(weight_of(ours.module), weight_of(other.module), rtol=2e-3, atol=1e-6)
        assert not weight_of(ours.module)[~keep[ours.name]].any()


def test_a_share_for_each_block(made):
    built = made('{"weights": {"method": "Magnitude", "by_block": [0.25, 0.75]}}')
    layers = sparsity_report(built.model).layers
    for name, layer in layers.items():
        assert layer.sparsity == pytest.approx(0.25 if name.startswith("blocks.0") else 0.75, abs=0.01)
    with pytest.raises(ValueError, match="got 1 shares for 2 blocks"):
        made('{"weights": {"method": "Magnitude", "by_block": [0.25]}}')


def test_each_other_part_is_its_lessons_own_block(made, model, text):
    with evicting(model, H2O(budget=14, recent=4), vectors=Quantized(4, 32, 4)) as cache:
        expected = through(model, cache, text)
    assert torch.equal(read(made(json.dumps({"cache": CACHE})), text), expected)
    with contextual(model, LowRank(density=0.3, rank=6).fit(model, text)), torch.no_grad():
        expected = model(text).logits
    built = made(json.dumps({"neurons": NEURONS}))
    with built.running(), torch.no_grad():
        assert torch.equal(built.model(text).logits, expected)
    with prefilling(model, FlexPrefill(gamma=0.5, block_size=4, min_budget=4)), torch.no_grad():
        expected = model(text).logits
    built = made(json.dumps({"attention": PREFILL}))
    with built.running(), torch.no_grad():
        assert torch.equal(built.model(text).logits, expected)


@pytest.fixture
def prompt(model, tmp_path):
    """A prompt of five words, as float16 holds it, in a file."""
    found = from_ids(model, torch.arange(5))
    save_prompt(found, tmp_path / "five.safetensors", torch.float16)
    return tmp_path


def test_all_parts_are_the_parts_one_after_another(made, model, text, prompt):
    recipe = {
        "weights": WEIGHTS["sparsegpt-75"],
        "neurons": NEURONS,
        "cache": CACHE,
        "prompt": {"file": "five.safetensors"},
    }
    built = made(json.dumps(recipe), prompt)
    smaller = decoded("", CATALOGUE["sparsegpt-75"], model, *_compressed(model, text)).model
    selector = LowRank(density=0.3, rank=6).fit(smaller, text)
    vectors = from_ids(model, torch.arange(5))
    vectors = type(vectors)(vectors=vectors.vectors.half().float(), table=vectors.table)
    with (
        contextual(smaller, selector),
        evicting(smaller, H2O(budget=14, recent=4), vectors=Quantized(4, 32, 4)) as cache,
        prompting(smaller, vectors),
    ):
        expected = through(smaller, cache, text)
    assert torch.equal(read(built, text), expected)
    assert same_weights(tiny_model(), model), "the dense model stays as it was"


def _compressed(model, text):
    compression = CATALOGUE["sparsegpt-75"]
    return encoded(compression, model, *compression.compress(model, text, False)), {}


def test_the_same_recipe_twice_gives_the_same_bytes(made):
    recipe = json.dumps({"weights": WEIGHTS["gptq-3"], "neurons": {"selector": "CATS", "density": 0.4}})
    first, second = made(recipe), made(recipe)
    assert first.stored.keys() == second.stored.keys()
    assert all(torch.equal(first.stored[name], second.stored[name]) for name in first.stored)


def test_the_model_is_what_the_stored_tensors_say(made):
    """Pruned weights come back from half precision, so that nothing is measured that is not held."""
    built = made(json.dumps({"weights": WEIGHTS["wanda-50"]}))
    for layer in layers_of(built.model):
        weight = weight_of(layer.module)
        assert torch.equal(weight, weight.half().float())
        assert f"weights/{layer.name}/bitmap" in built.stored
        assert f"dense/{layer.name}" not in built.stored


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ('{"cache": {"policy": "H2O", "by_layer": [1.0]}}', "one a layer"),
        ('{"neurons": {"selector": "CATS", "by_block": [0.5]}}', "one per block"),
        ('{"weights": {"method": "Wanda", "pattern": "3:7"}}', "multiple of 7"),
        ('{"prompt": {"file": "none.safetensors"}}', "not there"),
    ],
)
def test_what_this_model_cannot_have(made, recipe, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        made(recipe, tmp_path)


def test_prompts_that_are_none(made, model, prompt):
    (prompt / "link.safetensors").symlink_to(prompt / "five.safetensors")
    (prompt / "large.safetensors").write_bytes(bytes(200_000))
    (prompt / "text.safetensors").write_text("import os")
    save_prompt(from_ids(tiny_model(seed=1), torch.arange(5)), prompt / "other.safetensors")
    for name, said in (("link", "a link"), ("large", "at most"), ("text", "cannot be read"), ("other", "table")):
        with pytest.raises(ValueError, match=said):
            made(json.dumps({"prompt": {"file": f"{name}.safetensors"}}), prompt)


@pytest.mark.parametrize("architecture", ["qwen2", "opt", "gpt2"])
def test_other_families(text, architecture):
    model = tiny_model(architecture=architecture)
    recipe = from_json(json.dumps({"weights": WEIGHTS["wanda-50"], "neurons": {"selector": "Static", "density": 0.3}}))
    built = build(recipe, model, text)
    with built.running() as cache, torch.no_grad():
        assert built.model(text, past_key_values=cache).logits.isfinite().all()


def test_a_layerwise_compression_is_stored_the_same_way():
    """Two places say how a pattern is stored; they agree."""
    for settings in WEIGHTS.values():
        part = from_json(json.dumps({"weights": settings})).part("weights")
        if part.pruner is not None:
            assert part.layout == Layerwise(part.pruner).layout


def test_recipes_that_begin_alike_share_what_is_made(made, model, text):
    weights, neurons = {"weights": WEIGHTS["wanda-50"]}, {"neurons": NEURONS}
    dense = made("{}")
    first = extended(dense, from_json(json.dumps(weights)), text)
    both = extended(first, from_json(json.dumps(weights | neurons)), text)
    assert same_weights(dense.model, model), "what others go on from stays as it is"
    assert both.model is first.model
    assert torch.equal(read(both, text), read(made(json.dumps(weights | neurons)), text))
    with pytest.raises(ValueError, match="begins with the same parts"):
        extended(first, from_json(json.dumps(neurons)), text)
