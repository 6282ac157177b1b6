"""The loops that the notebook shows read the blocks of the library's FlexPrefill and write the text of its decoding."""

import ast

import pytest
import torch
from transformers import DynamicCache

from course_lib.attention.prefill import lines
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup
from course_lib.data.corpora import windows
from course_lib.lessons.sparse_attention import heads
from course_lib.lessons.sparse_attention.exercises import EXERCISES
from course_lib.models import load_model, tiny_model
from course_lib.workbook.masters import masters

(MASTER,) = masters(["11"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
REFERENCE = {exercise.id.partition(".")[2]: exercise.reference for exercise in EXERCISES}
CHOICE = ("divergence", "smallest_set", "lines", "block_mask")


@pytest.fixture(scope="module")
def notebook():
    """The functions of the notebook's two method cells, by name."""
    names = {"torch": torch, "DynamicCache": DynamicCache, "BLOCK": heads.BLOCK}
    names |= {
        name: getattr(lines, name) for name in ("block_means", "last_weights", "on_block_diagonals", "on_columns")
    }
    for name in ("choose_keys", "look_up", "decode_with_lookup"):
        exec(ast.get_source_segment(SOURCE, definition(name)), names)
    names["decode_with_lookup"] = torch.no_grad()(names["decode_with_lookup"])
    return names


def definition(name):
    (found,) = (node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return found


def chosen_by_both(notebook, query, keys, gamma):
    """The masks of the notebook and of the library for all query heads of a layer, and which are query-aware."""
    scaling, n_tokens = query.shape[2] ** -0.5, query.shape[1]
    index = FlexPrefill(gamma=gamma, block_size=heads.BLOCK, min_budget=0).index(query, keys, scaling)
    block, group = torch.arange(n_tokens) // heads.BLOCK, len(query) // len(keys)
    for head, reads in enumerate(index.reads):
        functions = [REFERENCE[name] for name in CHOICE]
        ours = notebook["choose_keys"](query[head], keys[head // group], scaling, gamma, *functions)
        yield ours, reads[block[:, None], block].tril(), bool(index.query_aware[head])


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_the_notebook_reads_the_blocks_of_the_library(notebook, gamma):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(4, 5 * heads.BLOCK, 16, generator=generator)
    keys = torch.randn(2, 5 * heads.BLOCK, 16, generator=generator)
    query[:2] *= 0.01  # nearly equal attention to all keys, which block means predict
    keys[:, 70:75] *= 3
    kinds = set()
    for ours, library, is_query_aware in chosen_by_both(notebook, query, keys, gamma):
        assert torch.equal(ours, library)
        kinds.add(is_query_aware)
    assert kinds == {True, False}


@pytest.mark.real
def test_the_notebook_reads_the_blocks_of_the_library_on_the_real_model(notebook):
    model, tokenizer = load_model(device="cpu")
    ids = windows("wikipedia", 1, 320, tokenizer, split="evaluation", seed=0)[0]
    qk = heads.heads_of_text(model, ids)
    for query, keys in list(zip(qk.query, qk.keys, strict=True))[::10]:
        assert all(torch.equal(ours, library) for ours, library, _ in chosen_by_both(notebook, query, keys, 0.9))


def test_the_lookup_of_the_notebook_is_that_of_the_library(notebook):
    generator = torch.Generator().manual_seed(0)
    for n_tokens in (1, 2, 5, 30, 60):
        for _ in range(10):
            ids = torch.randint(0, 4, (n_tokens,), generator=generator)
            assert notebook["look_up"](ids.tolist(), 4) == Lookup(4)._found(ids, 4).tolist()


def test_greedy_text_and_passes_are_those_of_the_library(notebook):
    """At a temperature near 0 nothing is left to chance, so both write the model's greedy text."""
    model = tiny_model()
    prompt = [5, 6, 7, 8, 9, 5, 6, 7]
    written, n_passes = notebook["decode_with_lookup"](model, prompt, 20, REFERENCE["accept"], temperature=1e-7)
    library = speculate(model, torch.tensor(prompt), 20, Lookup(model.config.vocab_size), k=4)
    assert written[:20] == library.new.tolist()
    assert n_passes == len(library.rounds)


def test_sampled_text_has_the_models_distribution(notebook):
    """The second token after a draft, over many seeds, compared with the model's own probabilities."""
    model, n_runs = tiny_model(), 400
    prompt = [5, 6, 5, 6, 5]
    with torch.no_grad():
        p = (model(torch.tensor([prompt])).logits[0, -1].double() / 0.5).softmax(dim=0)
    count = torch.zeros_like(p)
    for seed in range(n_runs):
        written, _ = notebook["decode_with_lookup"](model, prompt, 1, REFERENCE["accept"], temperature=0.5, seed=seed)
        count[written[0]] += 1
    expected = n_runs * p
    likely = expected > 5
    chi_square = ((count - expected).square() / expected)[likely].sum()
    assert chi_square < likely.sum() + 5 * (2 * likely.sum()) ** 0.5


def test_method_cells_are_short_and_the_notebook_imports_little():
    def length(name):
        return definition(name).end_lineno - definition(name).lineno + 1

    assert 20 <= length("choose_keys") + length("sparse_attention") <= 35
    assert 15 <= length("decode_with_lookup") + length("look_up") <= 35
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
