"""Looking changes nothing, and sees what a plain hook sees."""

import pytest
import torch

from course_lib.models import blocks, by_block, layers_of, tiny_model
from course_lib.pruning.allocation.one_ranking import OneRanking
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.input_statistics import grams_by_block, input_gram, input_norms
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.report import PruneReport
from course_lib.pruning.sequential import advance, collect, collect_and_advance, first_inputs, scan_blocks
from course_lib.sparsity.patterns import Unstructured

WINDOWS = torch.arange(90).reshape(3, 30)


def test_norms_are_those_of_the_inputs_of_the_dense_model():
    model = tiny_model()
    seen = {}
    layer = model.model.layers[1].mlp.down_proj
    handle = layer.register_forward_pre_hook(lambda m, args: seen.update(x=args[0].flatten(0, 1)))
    with torch.no_grad():
        model(WINDOWS)
    handle.remove()
    norms = input_norms(model, WINDOWS)
    torch.testing.assert_close(norms["blocks.1.mlp.down_proj"], seen["x"].norm(dim=0), rtol=1e-5, atol=1e-7)
    assert list(norms)[:4] == [
        f"blocks.0.{n}" for n in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    ]
    assert len(norms) == 8


def test_the_model_stays_as_it_was():
    model, before = tiny_model(), tiny_model()
    input_norms(model, WINDOWS)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before.parameters(), strict=True))
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_gram_of_one_layer_has_the_norms_on_its_diagonal():
    model = tiny_model()
    gram = input_gram(model, WINDOWS, 1, "mlp.down_proj")
    assert gram.matrix.shape == (100, 100)
    torch.testing.assert_close(gram.matrix, gram.matrix.T)
    norms = input_norms(model, WINDOWS)["blocks.1.mlp.down_proj"]
    torch.testing.assert_close(gram.diagonal.sqrt(), norms, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="got block 2; expected 0 to 1"):
        input_gram(model, WINDOWS, 2, "mlp.down_proj")
    with pytest.raises(ValueError, match="got layer 'mlp.fc1'; expected one of self_attn"):
        input_gram(model, WINDOWS, 0, "mlp.fc1")


class Forwards:
    """How often each block of a model ran."""

    def __init__(self, model):
        self.n = [0] * len(blocks(model))
        for index, block in enumerate(blocks(model)):
            block.self_attn.q_proj.register_forward_pre_hook(lambda m, args, index=index: self.count(index))

    def count(self, index):
        self.n[index] += 1


def scans(allocation):
    """One look at the dense model for OWL's outliers, two for OneRanking; each is one forward pass a block."""
    return lambda model: allocation.sparsities(Wanda(Unstructured(0.1)), scan_of(model))


def scan_of(model):
    layers_in = by_block(layers_of(model))

    def scan(scorer):
        return scan_blocks(layers_in.items(), first_inputs(model, WINDOWS), scorer, PruneReport(WINDOWS.numel()))

    return scan


@pytest.mark.parametrize(
    ("look", "n_forwards"),
    [(lambda model: input_norms(model, WINDOWS), 1), (scans(OWL()), 1), (scans(OneRanking()), 2)],
    ids=["input norms", "OWL", "one ranking"],
)
def test_a_look_at_the_dense_model_runs_each_block_once(look, n_forwards):
    model = tiny_model()
    forwards = Forwards(model)
    with torch.inference_mode():
        look(model)
    assert forwards.n == [n_forwards] * 2


@torch.inference_mode()
def test_a_pass_that_collects_and_goes_on_is_both_passes_bit_for_bit():
    model = tiny_model()
    once, twice = first_inputs(model, WINDOWS), first_inputs(model, WINDOWS)
    for block, layers in by_block(layers_of(model)).items():
        found = collect_and_advance(layers, once, "matrix", PruneReport(0))
        expected = collect(layers, twice, "matrix", PruneReport(0))
        advance(block, twice)
        assert all(torch.equal(found[name].matrix, gram.matrix) for name, gram in expected.items())
        assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(once, twice, strict=True))
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_grams_of_some_parts_are_those_of_all():
    """A part that reads what others read brings them along; the stream is the same."""
    model, ids = tiny_model(), torch.arange(24).view(2, 12)
    everything = list(grams_by_block(model, ids, "matrix"))
    some = list(grams_by_block(model, ids, "matrix", ("mlp.down_proj", "self_attn.k_proj")))
    names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"]
    for (_, expected), (layers, grams) in zip(everything, some, strict=True):
        assert [layer.part for layer in layers] == names
        assert list(grams) == [layer.name for layer in layers]
        for name, gram in grams.items():
            assert torch.equal(gram.matrix, expected[name].matrix)
