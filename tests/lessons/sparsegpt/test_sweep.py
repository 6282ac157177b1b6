"""The sweep between two columns, relative errors, and the race of block sizes."""

import pytest
import torch

from course_lib.lessons.sparsegpt.measure import (
    WithoutUpdates,
    errors_in_block,
    first_inputs_of,
    race_of_block_sizes,
    relative_error,
    settled_until,
)
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


def test_the_sweep_begins_dense_and_ends_at_the_solution(layer):
    weight, inputs = layer
    solution = SparseGPT(block_size=8).solve(weight, inputs)
    torch.testing.assert_close(settled_until(weight, solution, 0), weight)
    # float32 sums in another order than the solver's
    torch.testing.assert_close(settled_until(weight, solution, 24), solution.weight, rtol=1e-4, atol=1e-4)


def test_a_column_settles_once_and_is_then_left_alone(layer):
    weight, inputs = layer
    solution = SparseGPT(block_size=8).solve(weight, inputs)
    halfway, later = settled_until(weight, solution, 8), settled_until(weight, solution, 16)
    torch.testing.assert_close(halfway[:, :8], later[:, :8], rtol=1e-4, atol=1e-4)
    assert not torch.equal(halfway[:, 8:], weight[:, 8:])
    assert ((halfway == 0).float().mean(0)[:8] > 0).any()


def test_without_updates_the_mask_is_the_same_and_the_weights_stay(layer):
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
    found = errors_in_block(block, grams, methods)
    assert "mlp.down_proj" in found
    assert len(found) == 7
    for errors in found.values():
        assert errors["SparseGPT"] < errors["Wanda"]
    fewer = errors_in_block(block, grams, {"Wanda": Wanda()}, n_outputs=5)
    assert fewer["mlp.down_proj"]["Wanda"] != found["mlp.down_proj"]["Wanda"]


def test_the_race_gives_time_and_error_of_each_size(layer):
    seconds, errors = race_of_block_sizes(*layer, sizes=(4, 24), rounds=1)
    assert list(seconds) == list(errors) == [4, 24]
    assert all(value > 0 for value in (*seconds.values(), *errors.values()))


def test_the_first_inputs_alone_keep_their_products(layer):
    _, inputs = layer
    # 1e-6 of the mean diagonal is added so that dependent inputs do no harm
    torch.testing.assert_close(first_inputs_of(inputs, 7).matrix, inputs.matrix[:7, :7], rtol=1e-4, atol=1e-3)
