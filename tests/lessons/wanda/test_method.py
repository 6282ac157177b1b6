"""The pruning loop that the notebook shows: the same kept weights as the library, on a small and on the real model."""

import ast
import copy

import pytest
import torch

from course_lib.checking.exercise import Exercise
from course_lib.data.corpora import windows
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.models import blocks, linears, load_model, tiny_model, weight_of
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured
from course_lib.workbook.masters import masters

(MASTER,) = masters(["04"])
TREE = ast.parse(MASTER.read_text(encoding="utf-8"))
LOOP = "prune_with_wanda"


def reference(exercise_id: str):
    (exercise,) = (each for each in EXERCISES if each.id == exercise_id)
    assert isinstance(exercise, Exercise)
    return exercise.reference


@pytest.fixture(scope="module")
def prune_with_wanda():
    """The function as the notebook defines it."""
    (source,) = (
        ast.get_source_segment(MASTER.read_text(encoding="utf-8"), node) for node in TREE.body if is_loop(node)
    )
    names = {"torch": torch}
    exec("@torch.no_grad()\n" + source, names)
    return names[LOOP]


def is_loop(node) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == LOOP


def pruned_by_both(prune_with_wanda, model, ids, sparsity=0.5):
    """The masks of the notebook's loop, the weights after it and after the library, layer by layer."""
    library = copy.deepcopy(model)
    functions = (reference(name) for name in ("wanda.accumulate", "wanda.score", "wanda.keep_rows"))
    masks = prune_with_wanda(model, ids, sparsity, *functions)
    prune_model(library, Wanda(Unstructured(sparsity)), ids, progress=False)
    pairs = [
        (masks[layer], weight_of(layer), weight_of(other))
        for ours, theirs in zip(blocks(model), blocks(library), strict=True)
        for layer, other in zip(linears(ours).values(), linears(theirs).values(), strict=True)
    ]
    assert len(pairs) == len(masks)
    return pairs


@pytest.mark.parametrize("sparsity", [0.5, 0.3])
def test_the_loop_keeps_the_same_weights_as_the_library_on_a_small_model(prune_with_wanda, generator, sparsity):
    model = tiny_model()
    ids = torch.randint(3, 90, (3, 20), generator=generator)
    for mask, ours, theirs in pruned_by_both(prune_with_wanda, model, ids, sparsity):
        assert torch.equal(ours, theirs)
        assert torch.equal(mask, ours != 0)
        assert (~mask).sum(dim=1).unique().tolist() == [int(mask.shape[1] * sparsity)]
    hooks = [module for module in model.modules() if module._forward_pre_hooks or module._forward_hooks]
    assert not hooks


@pytest.mark.real
def test_the_loop_keeps_the_same_weights_as_the_library_on_the_real_model(prune_with_wanda):
    model, tokenizer = load_model(device="cpu")
    ids = windows("wikipedia", 2, 128, tokenizer, split="calibration", seed=0)
    pairs = pruned_by_both(prune_with_wanda, model, ids)
    assert len(pairs) == 210
    assert all(torch.equal(ours, theirs) for _, ours, theirs in pairs)


def test_the_loop_is_short_and_the_notebook_imports_little():
    (loop,) = filter(is_loop, TREE.body)
    assert 20 <= loop.end_lineno - loop.lineno + 1 <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
