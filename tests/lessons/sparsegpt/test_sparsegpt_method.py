"""The function of the notebook that prunes one layer: the same weights as the library, on small and on real layers."""

import ast

import pytest
import torch

from course_lib.checking.exercise import Exercise
from course_lib.data.corpora import windows
from course_lib.lessons.sparsegpt.exercises import EXERCISES
from course_lib.models import blocks, linears, load_model, trunk
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.sparsity.patterns import Unstructured
from course_lib.workbook.masters import masters

(MASTER,) = masters(["03"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
FUNCTION = "prune_layer"


def reference(exercise_id: str):
    (exercise,) = (each for each in EXERCISES if each.id == exercise_id)
    assert isinstance(exercise, Exercise)
    return exercise.reference


def is_method(node) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == FUNCTION


@pytest.fixture(scope="module")
def prune_layer():
    """The function as the notebook defines it."""
    (source,) = (ast.get_source_segment(SOURCE, node) for node in TREE.body if is_method(node))
    names = {"torch": torch}
    exec("@torch.no_grad()\n" + source, names)
    return names[FUNCTION]


def pruned_by_both(prune_layer, weight, inputs, sparsity=0.5, block_size=128):
    """The mask and the weight of the notebook's function, and the weight of the library."""
    linear = torch.nn.Linear(*weight.T.shape, bias=False)
    linear.weight.data.copy_(weight)
    functions = (reference(f"sparsegpt.{name}") for name in ("hessian", "factor", "mask", "settle"))
    mask = prune_layer(linear, inputs, sparsity, block_size, *functions)
    gram = Gram(weight.shape[1])
    gram.add(inputs)
    library = SparseGPT(Unstructured(sparsity, per="layer"), block_size=block_size).prune(weight, gram)
    return mask, linear.weight.detach(), library


@pytest.mark.parametrize(("sparsity", "block_size"), [(0.5, 8), (0.3, 16), (0.5, 10)])
def test_it_agrees_with_the_library_on_a_small_layer(prune_layer, generator, sparsity, block_size):
    inputs = torch.randn(90, 24, generator=generator) @ torch.randn(24, 24, generator=generator)
    weight = torch.randn(10, 24, generator=generator)
    mask, ours, library = pruned_by_both(prune_layer, weight, inputs, sparsity, block_size)
    assert torch.equal(mask, ours != 0)
    torch.testing.assert_close(ours, library, rtol=1e-3, atol=1e-3)  # float32, with another order of the same sums


@pytest.mark.real
@pytest.mark.parametrize("name", ["self_attn.q_proj", "mlp.gate_proj"])
def test_it_agrees_with_the_library_on_a_real_layer(prune_layer, name):
    model, tokenizer = load_model(device="cpu")
    ids = windows("wikipedia", 4, 256, tokenizer, split="calibration", seed=0)
    linear, inputs = linears(blocks(model)[2])[name], []
    hook = linear.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].flatten(0, 1)))
    model.model.layers = model.model.layers[:3]
    with torch.inference_mode():
        trunk(model)(ids, use_cache=False)
    hook.remove()
    weight = linear.weight.detach()
    mask, ours, library = pruned_by_both(prune_layer, weight, inputs[0])
    assert mask.float().mean() == pytest.approx(0.5, abs=1e-3)
    # Where two weights have nearly the same cost, rounding decides which one is pruned.
    differs = (ours == 0) != (library == 0)
    assert differs.float().mean() < 1e-3
    change = [((inputs[0] @ (weight - each).T) ** 2).sum().item() for each in (ours, library)]
    assert change[0] == pytest.approx(change[1], rel=0.01)


def test_the_cell_is_short_and_the_notebook_imports_little():
    cell = next(cell for cell in SOURCE.split("# %%") if f"def {FUNCTION}(" in cell)
    assert 15 <= sum(bool(line.strip()) for line in cell.splitlines()) <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
