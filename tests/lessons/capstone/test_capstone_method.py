"""The pruning loop and the evaluation that the notebook shows: the same as the library's, on small and real models."""

import ast
import copy

import pytest
import torch

from course_lib.compose.build import build
from course_lib.compose.evaluate import continued_losses as library_losses
from course_lib.compose.recipe import from_json
from course_lib.data.corpora import windows
from course_lib.kv.cache import evicting
from course_lib.lessons.common.by_mask import ByMask
from course_lib.models import blocks, linears, load_model, tiny_model, weight_of
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured
from course_lib.workbook.catalogue import find
from course_lib.workbook.masters import masters

(MASTER,) = masters(["12"])
TREE = ast.parse(MASTER.read_text(encoding="utf-8"))
EARLIER = {
    "inverse_factor": "sparsegpt.factor",
    "sparsegpt": "sparsegpt.prune",
    "accumulate": "wanda.accumulate",
    "wanda_score": "wanda.score",
    "keep_rows": "wanda.keep_rows",
    "window_keep": "kv.window",
}
SHOWN = ("prune_blocks", "by_wanda", "by_sparsegpt", "continued_losses")


def functions() -> list[ast.FunctionDef]:
    return [node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name in SHOWN]


@pytest.fixture(scope="module")
def notebook():
    """The functions as the notebook defines them, with the references of the earlier exercises."""
    names = {"torch": torch} | {name: find(exercise).reference for name, exercise in EARLIER.items()}
    for node in functions():
        exec(compile(ast.Module([node], []), MASTER.name, "exec"), names)
    return names


def pruned_by_both(notebook, model, ids, by, pruner):
    library = copy.deepcopy(model)
    notebook["prune_blocks"](model, ids, notebook[by])
    prune_model(library, pruner, ids, progress=False)
    return [
        (weight_of(layer), weight_of(other))
        for ours, theirs in zip(blocks(model), blocks(library), strict=True)
        for layer, other in zip(linears(ours).values(), linears(theirs).values(), strict=True)
    ]


def test_the_notebook_asks_for_the_functions_that_it_uses():
    (names,) = [
        ast.literal_eval(node.value)
        for node in TREE.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "names"
    ]
    assert names == tuple(EARLIER.values())
    targets = [node.targets[0] for node in TREE.body if isinstance(node, ast.Assign)]
    assert list(EARLIER) in [[getattr(each, "id", "") for each in t.elts] for t in targets if isinstance(t, ast.Tuple)]


def test_wanda_keeps_the_same_weights_as_the_library(notebook, generator):
    model, ids = tiny_model(), torch.randint(3, 90, (3, 20), generator=generator)
    pairs = pruned_by_both(notebook, model, ids, "by_wanda", Wanda(Unstructured(0.5)))
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert not [module for module in model.modules() if module._forward_pre_hooks or module._forward_hooks]


def test_sparsegpt_keeps_the_same_weights_as_the_library(notebook, generator):
    model, ids = tiny_model(), torch.randint(3, 90, (6, 30), generator=generator)
    pairs = pruned_by_both(notebook, model, ids, "by_sparsegpt", SparseGPT(Unstructured(0.5, per="layer")))
    for ours, theirs in pairs[:7]:  # of the first block; sums in another order change later blocks more and more
        same = ((ours == 0) == (theirs == 0)).float().mean()
        assert same > 0.99
        assert ours.sub(theirs).abs().quantile(0.98) < 1e-4


def continued(notebook, model, ids, budget):
    keep = notebook["window_keep"]
    policy = ByMask(budget, stays=lambda slots: keep(slots.position.long(), budget))
    with evicting(model, policy) as cache:
        return notebook["continued_losses"](model, ids, cache)


def test_the_losses_through_an_evicting_cache_are_those_of_the_recipe(notebook, generator):
    model, ids = tiny_model(), torch.randint(3, 90, (2, 48), generator=generator)
    built = build(from_json('{"cache": {"policy": "Window", "budget": 12}}'), model, ids)
    ours = continued(notebook, built.model, ids, 12)
    torch.testing.assert_close(ours, library_losses(built, ids))


@pytest.mark.real
def test_the_recipe_by_hand_and_as_json_are_the_same_model(notebook):
    model, tokenizer = load_model(device="cpu")
    ids = windows("wikipedia", 2, 128, tokenizer, split="calibration", seed=0)
    texts = windows("wikipedia", 1, 192, tokenizer, split="evaluation", seed=0)
    recipe = from_json('{"weights": {"method": "Wanda", "pattern": 0.5}, "cache": {"policy": "Window", "budget": 64}}')
    built = build(recipe, model, ids)
    notebook["prune_blocks"](model, ids, notebook["by_wanda"])
    for ours, theirs in zip(blocks(model), blocks(built.model), strict=True):
        for layer, other in zip(linears(ours).values(), linears(theirs).values(), strict=True):
            assert torch.equal(weight_of(layer) == 0, weight_of(other) == 0)
    # The library keeps weights in 16 bits.
    torch.testing.assert_close(continued(notebook, model, texts, 64), library_losses(built, texts), atol=0.005, rtol=0)


def test_the_loop_is_short_and_the_notebook_imports_little():
    lengths = {node.name: node.end_lineno - node.lineno + 1 for node in functions()}
    assert set(lengths) == set(SHOWN)
    assert 15 <= lengths["prune_blocks"] <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
