"""The formats that the notebook encodes and decodes by itself: the same tensors as in the library."""

import ast

import pytest
import torch

from course_lib.lessons.patterns.exercises import EXERCISES
from course_lib.lessons.patterns.plots import example_weight
from course_lib.sparsity.formats import CSR, Bitmap, NofMPacked
from course_lib.sparsity.patterns import NofM
from course_lib.workbook.masters import masters

(MASTER,) = masters(["01"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
METHOD = ("encode", "decode_and_multiply")


def reference(exercise_id: str):
    (exercise,) = (each for each in EXERCISES if each.id == exercise_id)
    return exercise.reference


@pytest.fixture(scope="module")
def notebook():
    """The functions as the notebook defines them, by name."""
    names = {"torch": torch}
    for node in TREE.body:
        if isinstance(node, ast.FunctionDef) and node.name in METHOD:
            exec(ast.get_source_segment(SOURCE, node), names)
    return names


def compare(notebook, pruned, x):
    """Encode, decode and multiply with the notebook's functions, and compare every tensor with the library's."""
    encoded = notebook["encode"](pruned, reference("patterns.nofm"))
    decoded = notebook["decode_and_multiply"](encoded, x, reference("patterns.bitmap"))
    library = {"CSR": CSR.encode(pruned), "bitmap": Bitmap.encode(pruned), "2:4": NofMPacked.encode(pruned)}
    assert encoded.keys() == decoded.keys() == library.keys()
    for name, form in library.items():
        theirs = [value for value in vars(form).values() if isinstance(value, torch.Tensor)]
        assert all(torch.equal(ours, other) for ours, other in zip(encoded[name], theirs, strict=True)), name
        assert sum(part.nbytes for part in encoded[name]) == form.n_bytes
        matrix, product = decoded[name]
        assert torch.equal(matrix, pruned), name
        torch.testing.assert_close(product, pruned @ x)
    return encoded


def test_a_small_matrix_is_encoded_as_the_library_encodes_it(notebook, generator):
    """Row 1 is empty, and one group keeps a single weight: the zero that fills it up is stored in 2:4."""
    weight = torch.randn(6, 24, generator=generator)
    weight[1] = 0
    weight[2, :3] = 0
    pruned = weight * NofM(2, 4).keep(weight.abs())
    encoded = compare(notebook, pruned, torch.randn(24, generator=generator))
    assert encoded["CSR"][2].tolist() == [0, 12, 12, 23, 35, 47, 59]


@pytest.mark.real
def test_the_example_matrix_is_encoded_as_the_library_encodes_it(notebook, generator):
    weight = example_weight()
    pruned = weight * NofM(2, 4).keep(weight.abs())
    encoded = compare(notebook, pruned, torch.randn(weight.shape[1], generator=generator))
    csr = pruned.to_sparse_csr()
    theirs = (csr.values(), csr.col_indices().int(), csr.crow_indices().int())
    assert all(map(torch.equal, encoded["CSR"], theirs))


def test_the_method_is_one_short_cell_and_the_notebook_imports_little():
    functions = [node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name in METHOD]
    first, last = functions
    assert 15 <= last.end_lineno - first.lineno + 1 <= 35
    assert not [line for line in SOURCE.splitlines()[first.lineno : last.end_lineno] if line.startswith("# %%")]
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
