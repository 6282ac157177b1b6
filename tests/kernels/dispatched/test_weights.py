"""Pruners choose the same weights with kernels on and off, and update those that stay to the same values."""

import warnings

import pytest
import torch
from course_lib.kernels.dispatch import kernel_for, kernels
from kernel_device import COMPILED, DEVICE
from transformers import AutoModelForCausalLM, LlamaConfig

from course_lib.kernels import runtime
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparse_swaps import SparseSwaps
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.gptq import Quantization
from course_lib.sparsity.patterns import NofM, Unstructured

pytestmark = pytest.mark.skipif(not (runtime.INTERPRETED or COMPILED), reason="a CPU runs kernels interpreted only")
# Sums of at most 80 products in float32, in another order: 80 units in the last place of numbers up to 4.
CLOSE = {"rtol": 1e-4, "atol": 4e-5}
PER_ROW, PER_LAYER = Unstructured(0.5), Unstructured(0.5, per="layer")
UPDATES = [  # pattern, columns of a block, the kernel that chooses
    (PER_LAYER, 32, "sparsegpt_columns"),
    (PER_ROW, 32, "row_mask"),
    (NofM(2, 4), 32, "sparsegpt_columns"),
    (NofM(4, 8), 24, "sparsegpt_columns"),
]
PRUNERS = [Wanda(), SparseGPT(NofM(2, 4))]
if COMPILED:  # the interpreter is slow
    UPDATES += [
        (Unstructured(0.3, size=5), 128, "row_mask"),
        (Unstructured(0.5, per="column"), 16, "sparsegpt_columns"),
        (NofM(1, 4), 128, "sparsegpt_columns"),
    ]
    PRUNERS += [Wanda(NofM(2, 4)), SparseGPT(block_size=16)]


@pytest.fixture
def layer(generator):
    """Weight and inputs of a layer whose inputs depend on each other; one input is always zero."""
    inputs = torch.randn(200, 80, generator=generator) @ torch.randn(80, 80, generator=generator)
    inputs[:, 7] = 0
    gram = Gram(80, device=DEVICE)
    gram.add(inputs.to(DEVICE))
    return torch.randn(7, 80, generator=generator).to(DEVICE), gram


def both(run):
    """The results of `run()` with kernels and without."""
    with kernels(True):
        on = run()
    with kernels(False):
        return on, run()


def launched(monkeypatch, name):
    """A list that grows with each launch of a kernel, so that a test sees that it ran."""
    calls, module = [], kernel_for_name(name)
    for function in ("enqueue", "_run"):
        if hasattr(module, function):
            run = getattr(module, function)
            monkeypatch.setattr(module, function, lambda *args, run=run: (calls.append(name), run(*args))[1])
    return calls


def kernel_for_name(name):
    sizes = {"wanda_mask": {"m": 4}, "row_mask": {"n_leaving": 2}, "sparsegpt_columns": {"width": 4, "group": 4}}
    with kernels(True):
        return kernel_for(f"weights.{name}", torch.ones(2, 4, device=DEVICE), **sizes[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("pruner", "name"),
    [
        (Wanda(PER_ROW), "row_mask"),
        (Wanda(NofM(2, 4)), "wanda_mask"),
        (Magnitude(NofM(4, 8)), "wanda_mask"),
        (Magnitude(Unstructured(0.29)), "row_mask"),
        (SparseSwaps(NofM(2, 4), sweeps=3), "wanda_mask"),
        (Refit(PER_ROW, chooser=Magnitude), "row_mask"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_masks_are_equal(pruner, name, dtype, layer, monkeypatch):
    weight, gram = layer
    weight = (weight * 4).round().to(dtype) / 4  # many equal scores
    calls = launched(monkeypatch, name)
    on, off = both(lambda: pruner.keep(weight, gram))
    assert torch.equal(on, off)
    on, off = both(lambda: pruner.prune(weight, gram))
    assert torch.equal(on, off)
    assert len(calls) == 2


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize(("pattern", "block_size", "name"), UPDATES, ids=str)
def test_sparsegpt_updates_alike(pattern, block_size, name, zeros, layer, monkeypatch, generator):
    """A tenth of the weights at least, in blocks that do not divide the columns, with a dead input."""
    weight, gram = layer
    weight = weight * (torch.rand(weight.shape, generator=generator) >= zeros).to(DEVICE)
    calls = launched(monkeypatch, name)
    on, off = both(lambda: SparseGPT(pattern, block_size=block_size).solve(weight, gram))
    assert torch.equal(on.keep, off.keep)
    for got, expected in ((on.weight, off.weight), (on.errors, off.errors), (on.losses, off.losses)):
        torch.testing.assert_close(got, expected, **CLOSE)
    assert not (on.weight[weight == 0]).any()
    assert len(calls) >= 80 // block_size


def test_types_and_half_precision_weights(layer):
    weight, gram = layer
    on, off = both(lambda: SparseGPT(NofM(2, 4)).prune(weight.bfloat16(), gram))
    assert on.dtype == off.dtype == torch.bfloat16
    assert torch.equal(on == 0, off == 0)
    # One rounding to 8 bits after updates that agree to 24.
    torch.testing.assert_close(on, off, rtol=2**-7, atol=1e-4)


def test_what_the_kernel_does_not_take_runs_as_before(layer, monkeypatch):
    weight, gram = layer
    calls = launched(monkeypatch, "sparsegpt_columns")
    for pruner in (
        SparseGPT(block_size=256),
        SparseGPT(NofM(2, 5), block_size=5),
        SparseGPT(quantization=Quantization(4)),
    ):
        on, off = both(lambda pruner=pruner: pruner.prune(weight, gram))
        assert torch.equal(on, off)
    on, off = both(lambda: SparseGPT().prune(weight.double(), gram))
    assert torch.equal(on, off)
    assert calls == []


def test_weights_that_need_a_gradient_are_pruned_with_one(layer):
    weight, gram = layer
    weight = weight.clone().requires_grad_()
    with kernels(True):
        Wanda(NofM(2, 4)).prune(weight, gram).sum().backward()
        keep = Wanda(NofM(2, 4)).keep(weight, gram)
    assert torch.equal(weight.grad != 0, keep)


def small_model():
    """Two blocks, and so few weights that rounding decides no choice among them."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=97)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.mark.parametrize("pruner", PRUNERS, ids=lambda pruner: f"{type(pruner).__name__}-{pruner.pattern}")
def test_a_whole_model_block_by_block(pruner, generator):
    """Later blocks read what earlier ones became, and masks and weights are still the same."""
    windows = torch.randint(97, (4, 16), generator=generator).to(DEVICE)
    pruned = []
    for on in (True, False):
        model = small_model().to(DEVICE)
        with kernels(on):
            report = prune_model(model, pruner, windows, progress=False)
        pruned.append((report.sparsity, model.state_dict()))
    (sparsity_on, on), (sparsity_off, off) = pruned
    assert sparsity_on == sparsity_off
    for name, weight in on.items():
        assert torch.equal(weight == 0, off[name] == 0), name
        torch.testing.assert_close(weight, off[name], **CLOSE)


@pytest.mark.skipif(not COMPILED, reason="only a GPU can be waited for")
@pytest.mark.parametrize("pattern", [PER_LAYER, PER_ROW, NofM(2, 4)], ids=str)
def test_the_solver_waits_for_the_gpu_once(pattern, layer):
    from course_lib.pruning.layerwise.solver import solve

    weight, gram = layer
    factor = gram.factor(0.01)
    solve(weight, factor, pattern, 16)  # compiles
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            solve(weight, factor, pattern, 16)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum("synchronizing" in str(warning.message) for warning in waits) == 1
