"""The findings of lesson 04 on the real model, at the smallest size at which they are clear."""

import pytest
import torch

from course_lib.data import corpora
from course_lib.measure.perplexity import perplexity
from course_lib.models import blocks, heads, linears, load_model, n_neurons, weight_of
from course_lib.pruning.input_statistics import input_norms
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import NofM, Unstructured, sparsity_of

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def loaded():
    model, tokenizer = load_model(device="cpu")
    return model, tokenizer, {name: values.clone() for name, values in model.state_dict().items()}


@pytest.fixture
def dense(loaded):
    """The model as it is, its tokenizer, and a way to get the weights back; they come back after each test."""
    model, tokenizer, weights = loaded
    yield model, tokenizer, lambda: model.load_state_dict(weights)
    model.load_state_dict(weights)


def windows(n, length, tokenizer, split):
    return corpora.windows("wikipedia", n, length, tokenizer, split=split, seed=0)


def test_the_default_model_is_the_one_the_course_describes(dense):
    model, tokenizer, _ = dense
    assert len(blocks(model)) == 30
    assert (heads(model).n_query, heads(model).n_key_value, heads(model).size) == (9, 3, 64)
    assert n_neurons(blocks(model)[0]) == 1536
    n_weights = sum(weight_of(m).numel() for b in blocks(model) for m in linears(b).values())
    assert n_weights == 106_168_320
    assert tokenizer("The capital of France").input_ids == [504, 3575, 282, 4649]


def test_wanda_lies_between_dense_and_magnitude_and_two_of_four_costs_more(dense):
    """At 2 × 128 tokens the gaps are 1.8 times what is asked for here and more: 27, 73, 360 and 226."""
    model, tokenizer, restore = dense
    held_out, calibration = (windows(2, 128, tokenizer, split) for split in ("evaluation", "calibration"))
    values = {"dense": perplexity(model, held_out).value}
    for name, pruner in {"Wanda": Wanda(), "magnitude": Magnitude(), "Wanda 2:4": Wanda(NofM(2, 4))}.items():
        report = prune_model(model, pruner, calibration, progress=False)
        # A few weights of this checkpoint are zero already; a kept zero lifts the share by less than a thousandth.
        assert all(0.5 <= share < 0.501 for share in report.sparsity.values())
        values[name] = perplexity(model, held_out).value
        restore()
    assert values["dense"] * 1.5 < values["Wanda"] < values["magnitude"] / 2
    assert values["Wanda"] * 1.2 < values["Wanda 2:4"]


def test_every_layer_has_outlier_features_and_the_theorem_of_column_groups_holds(dense):
    model, tokenizer, _ = dense
    norms = input_norms(model, windows(2, 128, tokenizer, "calibration"))
    assert all(n.max() > 3 * n.median() for n in norms.values())
    layer = linears(blocks(model)[15])["self_attn.q_proj"]
    weight, norm = weight_of(layer).abs(), norms["blocks.15.self_attn.q_proj"]
    by_column, by_row = Unstructured(0.5, per="column"), Unstructured(0.5)
    assert torch.equal(by_column.keep(weight), by_column.keep(weight * norm))
    assert (by_row.keep(weight) != by_row.keep(weight * norm)).float().mean() > 0.01
    assert sparsity_of(by_row.keep(weight)) == 0.5
