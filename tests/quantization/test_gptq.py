"""GPTQ is SparseGPT with nothing pruned; it beats rounding to the same grid, and a fine grid changes nothing."""

import pytest
import torch

from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.prompts.compressed.layouts import Codes, NonZeroCodes
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.gptq import RoundToNearest, gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.patterns import NofM, Unstructured


@pytest.fixture
def layer(generator):
    mixing = torch.randn(64, 64, generator=generator) / 8 + 0.5 * torch.eye(64)
    gram = Gram(64)
    gram.add(torch.randn(400, 64, generator=generator) @ mixing)
    return torch.randn(20, 64, generator=generator), gram


def lost(weight, found, gram):
    change = (weight - found).double()
    return float(((change @ gram.matrix.double()) * change).sum())


def plain_gptq(weight, inverse_factor, grid):
    """One column after the other in float64, correcting everything to the right at once."""
    weight = weight.double().clone()
    for i in range(weight.shape[1]):
        rounded = grid.round_column(weight[:, i], i)
        error = (weight[:, i] - rounded) / inverse_factor[i, i]
        weight[:, i:] -= error[:, None] * inverse_factor[i, i:]
        weight[:, i] = rounded
    return weight


@pytest.mark.parametrize(
    "settings", [Quantization(3), Quantization(4, group=16), Quantization(2, symmetric=True)], ids=str
)
def test_equals_the_plain_loop_and_sparsegpt_without_pruning(layer, settings):
    weight, gram = layer
    found = gptq(settings, block_size=24).prune(weight, gram)
    assert torch.equal(found, SparseGPT(Unstructured(0.0), 24, quantization=settings).prune(weight, gram))
    matrix = gram.matrix.double()
    damped = matrix + 0.01 * matrix.diagonal().mean() * torch.eye(64, dtype=torch.float64)
    factor = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    torch.testing.assert_close(found.double(), plain_gptq(weight, factor, settings.grid(weight)), rtol=1e-5, atol=1e-5)


@pytest.fixture
def layer_with_a_dead_input(generator):
    """Input 3 never fires, and its weights are by far the largest."""
    inputs = torch.randn(400, 64, generator=generator)
    inputs[:, 3] = 0
    gram = Gram(64)
    gram.add(inputs)
    weight = torch.randn(6, 64, generator=generator)
    weight[:, 3] = 50
    return weight, gram


def expected_with_a_dead_input(weight, gram, settings):
    """As the public code: the dead input's diagonal counts as 1, its weights are 0, and only then groups get grids."""
    matrix, without = gram.matrix.double(), weight.clone()
    matrix[3, 3], without[:, 3] = 1, 0
    damped = matrix + 0.01 * matrix.diagonal().mean() * torch.eye(64, dtype=torch.float64)
    factor = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    return plain_gptq(without, factor, settings.grid(without if settings.group else weight))


@pytest.mark.parametrize("settings", [Quantization(4, group=16), Quantization(3, group=5), Quantization(4)], ids=str)
def test_groups_leave_inputs_that_never_fire_out_of_their_range(layer_with_a_dead_input, settings):
    weight, gram = layer_with_a_dead_input
    found = gptq(settings).prune(weight, gram)
    expected = expected_with_a_dead_input(weight, gram, settings)
    assert (found.double() - expected).abs().max() < 1e-4
    assert (found[:, 3] == 0).all()


def test_the_range_of_a_group_without_its_dead_input_is_twenty_times_finer(layer_with_a_dead_input):
    weight, gram = layer_with_a_dead_input
    power = ((weight.double() @ gram.matrix.double()) * weight).sum()
    assert lost(weight, gptq(Quantization(4, group=16)).prune(weight, gram), gram) / power < 5e-3
    assert lost(weight, gptq(Quantization(4)).prune(weight, gram), gram) / power > 0.05  # of a whole row, as before


@pytest.mark.parametrize("layout", [Codes, NonZeroCodes])
def test_what_is_stored_of_a_layer_with_a_dead_input_is_what_was_rounded(layer_with_a_dead_input, layout):
    weight, gram = layer_with_a_dead_input
    settings = Quantization(4, group=16)
    found = gptq(settings).prune(weight, gram)
    stored = layout(settings)
    decoded = stored.decode(stored.encode(found, weight), (6, 64))
    torch.testing.assert_close(decoded, found, rtol=2**-10, atol=0)  # scales are stored in half precision


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("layout", [Codes, NonZeroCodes])
@pytest.mark.parametrize("n_rows", [1, 6, 64])
def test_a_column_that_was_pruned_in_every_row_is_not_taken_for_a_dead_input(n_rows, layout, symmetric, generator):
    """Input 3 never fires. Input 5 hardly does, so that its weights are pruned, but they widened the grid before."""
    inputs, weight = torch.randn(200, 64, generator=generator), torch.randn(n_rows, 64, generator=generator)
    inputs[:, 3], weight[:, 3] = 0, 50
    inputs[:, 5] *= 1e-3
    weight[:, 5] = 6
    gram, settings = Gram(64), Quantization(4, group=16, symmetric=symmetric)
    gram.add(inputs)
    found = SparseGPT(NofM(2, 4), quantization=settings, damping=1e-4).prune(weight, gram)
    assert not found[:, [3, 5]].any()
    grid, stored = settings.grid_of(found, weight), layout(settings)
    assert torch.equal(grid.round(found), found)
    decoded = stored.decode(stored.encode(found, weight), (n_rows, 64))
    torch.testing.assert_close(decoded, found, rtol=2**-10, atol=0)  # scales are stored in half precision


@pytest.mark.parametrize("group", [1, 2, 7, 64])
def test_a_weight_that_was_not_rounded_yet_gets_the_dense_grid(group, generator):
    weight, settings = torch.randn(3, 64, generator=generator), Quantization(4, group=group)
    grid, found = settings.grid(weight), settings.grid_of(weight * 0.999, weight)
    assert torch.equal(grid.scale, found.scale)
    assert torch.equal(grid.zero, found.zero)


def test_the_grid_behind_a_rounded_weight_is_the_dense_one_where_it_fits(layer):
    weight, gram = layer
    for settings in (Quantization(4, group=16), Quantization(2)):
        grid, found = settings.grid(weight), settings.grid_of(gptq(settings).prune(weight, gram), weight)
        assert torch.equal(grid.scale, found.scale)
        assert torch.equal(grid.zero, found.zero)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_loses_less_than_rounding_to_the_nearest(layer, bits):
    weight, gram = layer
    settings = Quantization(bits)
    nearest = RoundToNearest(quantization=settings).prune(weight, gram)
    assert torch.equal(nearest, settings.grid(weight).round(weight))
    assert lost(weight, gptq(settings).prune(weight, gram), gram) < 0.8 * lost(weight, nearest, gram)


def test_a_fine_grid_equals_the_weight(layer):
    weight, gram = layer
    found = gptq(Quantization(8, group=1)).prune(weight, gram)
    torch.testing.assert_close(found, weight, rtol=0.01, atol=0.01)  # 1/255 of each weight


def test_a_pruned_weight_keeps_its_mask_and_its_grid_holds_every_value(layer):
    weight, gram = layer
    sparse = Wanda(NofM(2, 4)).prune(weight, gram)
    found = gptq(Quantization(4)).prune(sparse, gram)
    assert ((found == 0) | (sparse != 0)).all()
    torch.testing.assert_close(Quantization(4).grid(sparse).round(found), found)


def test_rounding_after_dropping_keeps_the_zeros(layer):
    weight, gram = layer
    found = RoundToNearest(Unstructured(0.5), Quantization(4)).prune(weight, gram)
    smallest = ~Unstructured(0.5).keep(weight.abs())
    assert (found[smallest] == 0).all()


def test_a_whole_model_is_quantized(generator):
    model = tiny_model()
    prune_model(model, gptq(Quantization(3)), torch.randint(97, (4, 24), generator=generator), progress=False)
    for block in blocks(model):
        for module in linears(block).values():
            assert all(len(row.unique()) <= 8 for row in weight_of(module))
