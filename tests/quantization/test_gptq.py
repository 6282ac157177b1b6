"""GPTQ is SparseGPT with nothing pruned; it beats rounding to the same grid, and a fine grid changes nothing."""

import pytest
import torch

from course_lib.models import blocks, linears, tiny_model, weight_of
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
