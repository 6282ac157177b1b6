"""Looking changes nothing, and sees what a plain hook sees."""

import torch

from course_lib.models import tiny_model
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.observe import input_grams, input_norms
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


class NeedsMatrix(LayerPruner):
    def score(self, weight, inputs):
        return weight.abs()


def test_a_pruner_that_needs_the_matrix_gets_it():
    grams = input_grams(tiny_model(), WINDOWS, NeedsMatrix(Unstructured(0.5)))
    gram = grams["blocks.0.mlp.down_proj"]
    assert gram.matrix.shape == (100, 100)
    torch.testing.assert_close(gram.matrix, gram.matrix.T)
