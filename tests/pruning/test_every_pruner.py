"""Conformance: every LayerPruner placed in course_lib/pruning/methods must behave like one. Discovered, no list."""

import sys

import pytest
import torch

from course_lib import discover
from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.pruning import methods
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram, check_layer
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import NofM, Unstructured, sparsity_of

METHODS = discover.subclasses(methods, LayerPruner)
PATTERNS = [Unstructured(0.5), Unstructured(0.3, per="layer"), NofM(2, 4), NofM(4, 8)]


@pytest.fixture(params=METHODS, ids=lambda c: c.__name__)
def method(request):
    return request.param


def example(generator, rows=11, columns=24, dtype=torch.float32):
    weight = torch.randn(rows, columns, generator=generator).to(dtype)
    inputs = torch.randn(40, columns, generator=generator)
    inputs[:, 5] = 0  # a dead input
    return weight, inputs


def gram_for(method, inputs):
    gram = Gram(inputs.shape[1], method.needs)
    gram.add(inputs)
    return gram


def with_checks_counted(monkeypatch):
    """Every name of check_layer in the library, so that no file's own import escapes; the weights it looked at."""
    checked = []

    def counting(weight, inputs, needs):
        checked.append(weight)
        check_layer(weight, inputs, needs)

    for module in [module for name, module in sys.modules.items() if name.startswith("course_lib.")]:
        if hasattr(module, "check_layer"):
            monkeypatch.setattr(module, "check_layer", counting)
    return checked


@pytest.mark.parametrize("step", ["score", "keep", "prune"])
def test_a_layer_is_checked_once_whatever_is_asked_of_it(method, step, generator, monkeypatch):
    weight, inputs = example(generator)
    gram, checked = gram_for(method, inputs), with_checks_counted(monkeypatch)
    getattr(method(NofM(2, 4)), step)(weight, gram)
    assert len(checked) == 1


def test_a_whole_model_has_each_layer_checked_once(method, monkeypatch):
    model, checked = tiny_model(), with_checks_counted(monkeypatch)
    prune_model(model, method(NofM(2, 4)), torch.arange(60).reshape(3, 20), progress=False)
    assert len(checked) == 14


def test_a_method_leaves_what_is_public_to_the_base(method):
    assert not {"score", "keep", "prune"} & vars(method).keys()


def test_methods_are_discovered():
    assert {"Magnitude", "Wanda"} <= {c.__name__ for c in METHODS}


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_sparsity_is_exact(method, pattern, generator):
    weight, inputs = example(generator)
    pruned = method(pattern).prune(weight, gram_for(method, inputs))
    assert (pruned == 0).sum() == (~pattern.keep(torch.rand(weight.shape))).sum()
    assert pruned.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_shape_and_dtype_follow_the_weight_which_stays_as_it_was(method, dtype, generator):
    weight, inputs = example(generator, dtype=dtype)
    before = weight.clone()
    pruned = method(Unstructured(0.5)).prune(weight, gram_for(method, inputs))
    assert pruned.shape == weight.shape
    assert pruned.dtype == dtype
    assert torch.equal(weight, before)


def test_strides_do_not_matter(method, generator):
    weight, inputs = example(generator)
    gram = gram_for(method, inputs)
    strided = weight.T.contiguous().T
    torch.testing.assert_close(
        method(NofM(2, 4)).prune(strided, gram), method(NofM(2, 4)).prune(weight, gram), rtol=1e-5, atol=1e-6
    )


def test_permuting_the_outputs_permutes_the_result(method, generator):
    """Rows are compared within themselves, so their order must not matter."""
    weight, inputs = example(generator)
    order = torch.randperm(weight.shape[0], generator=generator)
    gram, pruner = gram_for(method, inputs), method(Unstructured(0.5))
    torch.testing.assert_close(
        pruner.prune(weight[order], gram), pruner.prune(weight, gram)[order], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_are_refused(method, value, generator):
    weight, inputs = example(generator)
    weight[3, 2] = value
    with pytest.raises(ValueError, match="got a weight with 1 NaN or infinite entries; expected finite numbers"):
        method(Unstructured(0.5)).prune(weight, gram_for(method, inputs))


def test_a_finite_weight_whose_sum_is_not_is_no_reason_to_refuse(generator):
    weight = torch.full((3, 24), 3e38)
    assert Magnitude(Unstructured(0.5)).prune(weight, Gram(24, "nothing")).isfinite().all()


@pytest.mark.parametrize("shape", [(11, 16), (11, 32), (0, 24)])
def test_a_weight_of_another_layer_and_one_without_rows_are_refused(method, shape, generator):
    gram = gram_for(method, example(generator)[1])
    with pytest.raises(
        ValueError, match=rf"got a weight of shape \({shape[0]}, {shape[1]}\) with the Gram of 24 inputs"
    ):
        method(Unstructured(0.5)).prune(torch.zeros(shape), gram)


@pytest.mark.parametrize("step", ["score", "keep", "prune"])
def test_a_gram_without_tokens_is_refused_by_all_that_read_it(method, step, generator):
    weight, _ = example(generator)
    if method.needs == "nothing":
        assert getattr(method(), step)(weight, Gram(24, "nothing")).shape == weight.shape
        return
    with pytest.raises(ValueError, match="got a Gram matrix without any calibration token"):
        getattr(method(), step)(weight, Gram(24, method.needs))


@pytest.mark.parametrize("value", [torch.nan, 1e30])
def test_a_gram_that_overflowed_is_refused_by_all_that_read_it(method, value, generator):
    weight, inputs = example(generator)
    inputs[7, 3] = value
    if method.needs == "nothing":
        assert method().prune(weight, gram_for(method, inputs)).isfinite().all()
        return
    with pytest.raises(ValueError, match="got a Gram matrix with 1 NaN or infinite entries on its diagonal"):
        method().prune(weight, gram_for(method, inputs))


@pytest.mark.parametrize("architecture", ["llama", "opt", "gpt2"])
def test_a_whole_model_gets_exactly_the_sparsity(method, architecture):
    model = tiny_model(architecture=architecture)
    report = prune_model(model, method(NofM(2, 4)), torch.arange(60).reshape(3, 20), progress=False)
    layers = [weight_of(m) for block in blocks(model) for m in linears(block).values()]
    assert len(report.sparsity) == len(layers)
    assert all(sparsity_of(weight) == 0.5 for weight in layers)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model(torch.arange(7)[None]).logits.isfinite().all()
