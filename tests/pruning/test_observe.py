"""Looking changes nothing, and sees what a plain hook sees."""

import pytest
import torch

from course_lib.models import tiny_model
from course_lib.pruning.input_statistics import input_gram, input_norms

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
