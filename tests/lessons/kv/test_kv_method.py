"""The caches that notebook 07 shows keep the same tokens as the library, on a small and on the real model."""

import ast

import pytest
import torch
from transformers import AttentionInterface, DynamicCache

from course_lib.checking.exercise import Exercise
from course_lib.data.corpora import windows
from course_lib.kv.analysis.streaming import stream_through
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.window import Window
from course_lib.lessons.kv.exercises import EXERCISES
from course_lib.models import load_model, tiny_model
from course_lib.workbook.masters import masters

(MASTER,) = masters(["07"])
SOURCE = MASTER.read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
METHOD = "h2o_attention"
SHOWN = ("losses_through", "losses_with_window", METHOD, "losses_with_attention", "losses_after_rounding")


def reference(exercise_id: str):
    (exercise,) = (each for each in EXERCISES if each.id == exercise_id)
    assert isinstance(exercise, Exercise)
    return exercise.reference


def shown(name: str) -> ast.FunctionDef:
    (function,) = (node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return function


def notebook(model, text) -> dict:
    """The functions as the notebook defines them, for this model and text."""
    names = {"torch": torch, "AttentionInterface": AttentionInterface, "DynamicCache": DynamicCache}
    names |= {"model": model, "text": text, "usual_implementation": model.config._attn_implementation}
    for name in SHOWN:
        decorated = "@torch.no_grad()\n" * bool(shown(name).decorator_list)
        exec(decorated + ast.get_source_segment(SOURCE, shown(name)), names)
    return names


def h2o_losses(names: dict, n_slots: int, n_recent: int) -> tuple[torch.Tensor, dict]:
    functions = reference("kv.group_mass"), reference("kv.h2o_step")
    attention = names[METHOD](n_slots, n_recent, *functions)
    return names["losses_with_attention"](attention), attention.cache


def compare(model, text, n_slots: int, tolerance: float) -> None:
    names = notebook(model, text)
    losses, cache = h2o_losses(names, n_slots, n_slots // 2)
    with evicting(model, H2O(n_slots, recent=n_slots // 2)) as library:
        expected = stream_through(model, text, library).losses
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=tolerance)
    for slots, (keys, values, positions, _) in zip(library.slots, cache.values(), strict=True):
        assert keys.shape[2] == values.shape[2] == n_slots
        assert torch.equal(slots.position[0].sort(dim=1).values, positions.sort(dim=1).values)
    with evicting(model, Window(n_slots)) as library:
        expected = stream_through(model, text, library).losses
    window = names["losses_with_window"](reference("kv.window"), n_slots)
    torch.testing.assert_close(window.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("n_slots", [12, 20])
def test_the_caches_keep_the_same_tokens_as_the_library_on_a_small_model(n_slots):
    model = tiny_model()
    text = torch.randint(3, 90, (80,), generator=torch.Generator().manual_seed(1))
    before = model.config._attn_implementation
    compare(model, text, n_slots, 1e-5)
    assert model.config._attn_implementation == before


@pytest.mark.real
def test_the_caches_keep_the_same_tokens_as_the_library_on_the_real_model():
    model, tokenizer = load_model(device="cpu")
    (text,) = windows("wikipedia", 1, 160, tokenizer, split="evaluation", seed=0)
    compare(model, text, 64, 1e-3)


def test_reading_and_rounding_by_the_notebook():
    """Nothing is evicted or rounded: the losses are those of the whole text."""
    model = tiny_model()
    text = torch.randint(3, 90, (200,), generator=torch.Generator().manual_seed(2))
    names = notebook(model, text)
    with evicting(model, Full()) as library:
        expected = stream_through(model, text, library).losses.float()
    torch.testing.assert_close(names["losses_through"](DynamicCache(config=model.config)), expected)
    exact = names["losses_after_rounding"]()
    torch.testing.assert_close(exact, expected[128:192], rtol=1e-4, atol=1e-5)
    assert torch.equal(exact, names["losses_after_rounding"](lambda row: row))
    assert not torch.equal(exact, names["losses_after_rounding"](torch.zeros_like))


def test_the_method_is_short_and_the_notebook_imports_little():
    assert 20 <= shown(METHOD).end_lineno - shown(METHOD).lineno + 1 <= 36
    assert sum(isinstance(node, ast.Import | ast.ImportFrom) for node in TREE.body) <= 12
