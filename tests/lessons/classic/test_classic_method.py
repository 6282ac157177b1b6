"""The pruning loop and the backward pass that the notebook shows give the same results as the library."""

import ast
from functools import partial

import pytest
import torch

from course_lib.lessons.classic.plots import deep_network
from course_lib.pruning.classic.deletion import deletions
from course_lib.pruning.classic.obd import obd_diagonal
from course_lib.pruning.classic.problems import DECAY, NETWORKS, monks
from course_lib.pruning.classic.stopping import accurate, last_good
from course_lib.pruning.classic.surfaces import brain_surgeon
from course_lib.pruning.classic.training import solved
from course_lib.workbook.catalogue import find
from course_lib.workbook.masters import masters

(MASTER,) = masters(["02"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
LOOP = "prune_with_obs"


def function_node(name):
    (node,) = (node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return node


def notebook_function(name):
    """A function as the notebook defines it."""
    names = {"torch": torch}
    exec(ast.get_source_segment(SOURCE, function_node(name)), names)
    return names[name]


def references(*names):
    return [find(f"classic.{name}").reference for name in names]


@pytest.fixture(scope="module", params=[1, 3])
def problem(request):
    training, _ = monks(request.param)
    good = {1: 1.0, 3: 0.93}[request.param]
    decay = DECAY[request.param]
    dense = solved(NETWORKS[request.param], training, torch.Generator().manual_seed(0), good, decay)
    pruned = deletions(dense, training, partial(brain_surgeon, alpha=decay))
    return dense, training, decay, last_good(pruned, accurate(training, dense.accuracy(training)))


def test_the_loop_prunes_the_same_weights_as_the_library(problem):
    dense, training, decay, by_library = problem
    functions = references("recursion", "obs_saliency", "obs_update")
    before = dense.theta.clone()
    weights, keep = notebook_function(LOOP)(dense.network, dense.theta, training, decay, *functions)
    assert torch.equal(keep, by_library.keep)
    assert torch.equal(weights != 0, keep)
    torch.testing.assert_close(weights, by_library.theta, rtol=1e-4, atol=1e-4)
    assert torch.equal(dense.theta, before)


def test_without_the_update_the_weights_differ_from_those_of_the_library(problem):
    dense, training, decay, by_library = problem
    inverse_hessian, saliency = references("recursion", "obs_saliency")
    without_update = lambda weight, inverse, q: weight.index_fill(0, torch.tensor(q), 0.0)  # noqa: E731
    weights, _ = notebook_function(LOOP)(
        dense.network, dense.theta, training, decay, inverse_hessian, saliency, without_update
    )
    assert (weights - by_library.theta).abs().max() > 0.1


def test_the_backward_pass_gives_the_diagonal_of_the_library():
    state, samples = deep_network()
    by_notebook = notebook_function("diagonal_by_one_pass")(
        state.network, state.theta, samples, *references("back_one_layer")
    )
    torch.testing.assert_close(by_notebook, obd_diagonal(state.network, state.theta, samples))


def test_the_loop_is_short_and_the_notebook_imports_little():
    loop = function_node(LOOP)
    assert 15 <= loop.end_lineno - loop.lineno + 1 <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
