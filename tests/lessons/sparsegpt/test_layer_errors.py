"""The state of the matrix during the sweep, and relative errors of layers."""

import pytest
import torch

from course_lib.lessons.sparsegpt import plots
from course_lib.lessons.sparsegpt.experiments.sparsegpt_layers import WithoutUpdates, errors_in_block, relative_error
from course_lib.models import blocks, tiny_model
from course_lib.pruning.input_statistics import input_grams
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.sparsity.patterns import Unstructured


@pytest.fixture
def layer(generator):
    inputs = Gram(24)
    inputs.add(torch.randn(80, 24, generator=generator) @ torch.randn(24, 24, generator=generator))
    return torch.randn(10, 24, generator=generator), inputs


def test_relative_error_by_hand():
    inputs = Gram(2)
    inputs.add(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))  # XᵀX = 2 · identity
    weight, pruned = torch.tensor([[3.0, 1.0]]), torch.tensor([[3.0, 0.0]])
    assert relative_error(weight, pruned, inputs) == pytest.approx(0.1)


def states_of(weight, inputs, columns):
    return plots.sweep_states(weight, inputs.factor(0.01).upper, 8, columns)


def test_the_sweep_ends_at_the_solution_of_the_library(layer):
    weight, inputs = layer
    expected = SparseGPT(block_size=8).prune(weight, inputs)
    # float32 sums in another order than the solver's
    torch.testing.assert_close(states_of(weight, inputs, (24,))[24], expected, rtol=1e-4, atol=1e-4)


def test_frozen_columns_do_not_change_any_more(layer):
    weight, inputs = layer
    states = states_of(weight, inputs, (8, 16))
    assert torch.equal(states[8][:, :8], states[16][:, :8])
    assert not torch.equal(states[8][:, 8:], weight[:, 8:])
    assert (states[8][:, :8] == 0).float().mean() == 0.5


def test_without_updates_the_mask_is_the_same_and_the_weights_are_dense(layer):
    weight, inputs = layer
    half = Unstructured(0.5, per="layer")
    updated, plain = SparseGPT(half).prune(weight, inputs), WithoutUpdates(half).prune(weight, inputs)
    assert torch.equal(plain, weight * (updated != 0))
    assert relative_error(weight, updated, inputs) < relative_error(weight, plain, inputs)


def test_errors_of_a_block_name_its_layers_and_order_the_methods():
    ids = torch.randint(0, 97, (4, 30), generator=torch.Generator().manual_seed(0))
    methods = {"magnitude": Magnitude(), "Wanda": Wanda(), "SparseGPT": SparseGPT()}
    model = tiny_model()
    block, grams = blocks(model)[1], input_grams(model, ids, 1)
    errors_by_layer = errors_in_block(block, grams, methods)
    assert "mlp.down_proj" in errors_by_layer
    assert len(errors_by_layer) == 7
    for errors in errors_by_layer.values():
        assert errors["SparseGPT"] < errors["Wanda"]
    fewer = errors_in_block(block, grams, {"Wanda": Wanda()}, n_outputs=5)
    assert fewer["mlp.down_proj"]["Wanda"] != errors_by_layer["mlp.down_proj"]["Wanda"]
