"""The interactive view of lesson 07 and what its notebook runs: true to the cache, for any text."""

import dataclasses

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from course_lib.kv.policies.full import Full
from course_lib.kv.policies.window import Window
from course_lib.kv.quantized import Quantized
from course_lib.lessons.common import views
from course_lib.lessons.kv import steps, widgets
from course_lib.models import tiny_model


@pytest.fixture(scope="module")
def letters():
    """A tokenizer with a word for each of the 97 tokens; two of them need escaping in a page."""
    words = ["<b>", "a\nb", *(f"w{i}" for i in range(2, 97))]
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({word: i for i, word in enumerate(words)})))


@pytest.fixture(scope="module")
def tiny_llama():
    return tiny_model()


@pytest.fixture
def text():
    return torch.randint(2, 90, (40,), generator=torch.Generator().manual_seed(3))


def test_a_window_keeps_its_newest_tokens_at_every_moment(tiny_llama, letters, text):
    history = widgets.watch(tiny_llama, letters, text, Window(budget=6), chunk=7)
    assert history.n_read == (7, 14, 21, 28, 35, 40)
    assert history.kept.shape == (6, 2, 2, 40)
    for moment, n in enumerate(history.n_read):
        for heads in history.kept[moment]:
            for kept in heads:
                assert kept.nonzero().flatten().tolist() == list(range(n - 6, n))


def test_everything_kept_is_everything_read(tiny_llama, letters, text):
    history = widgets.watch(tiny_llama, letters, text, Full(), chunk=16)
    assert history.kept[1, 1, 0].tolist() == [True] * 32 + [False] * 8


def test_heads_with_different_budgets_keep_no_later_token(tiny_llama, letters, text):
    history = widgets.watch(tiny_llama, letters, text, Window(budget=6, by_head=(0.5, 1.5)), chunk=10)
    assert history.kept.sum(dim=3)[:, 1].tolist() == [[3, 9]] * 4
    assert history.kept[0, 0, 0].nonzero().flatten().tolist() == [7, 8, 9]
    assert "20 tokens read, 3 in the cache of layer 1, key-value head 0" in widgets.as_html(history, 1, 0, 1)


def test_the_text_is_escaped_and_marked(tiny_llama, letters, text):
    text[5], text[6] = 0, 1
    history = widgets.watch(tiny_llama, letters, text, Window(budget=3), chunk=8)
    shown = widgets.as_html(history, layer=1, head=0, moment=0)
    assert "8 tokens read, 3 in the cache of layer 1, key-value head 0" in shown
    assert "<b>" not in shown.split("</b>", 1)[1]
    assert f'<span style="{widgets.KEPT}">&lt;b&gt;</span>' in shown
    assert "a↵\nb" in shown
    assert shown.count(widgets.KEPT) == 3
    assert shown.count(widgets.EVICTED) == 5


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (-1, 0), (0, 2)])
def test_an_unknown_layer_or_head_is_refused(tiny_llama, letters, text, layer, head):
    history = widgets.watch(tiny_llama, letters, text[:8], Window(budget=3))
    with pytest.raises(ValueError, match="expected 0 to 1 and 0 to 1, key-value heads"):
        widgets.as_html(history, layer, head, 0)
    with pytest.raises(ValueError, match="key-value heads"):
        widgets.explore({"window": history}, layer, head)


@pytest.mark.parametrize(("n", "chunk"), [(0, 4), (8, 0)])
def test_an_empty_text_is_refused(tiny_llama, letters, n, chunk):
    with pytest.raises(ValueError, match="expected a row"):
        widgets.watch(tiny_llama, letters, torch.ones(n, dtype=torch.int64), Window(budget=3), chunk=chunk)


def test_a_new_choice_replaces_the_text(tiny_llama, letters, text, monkeypatch):
    shown = []
    monkeypatch.setattr(views, "display", lambda *_: None)
    handle = type("Handle", (), {"display": lambda _, page: shown.append(page.data)})
    handle.update = handle.display
    monkeypatch.setattr(views, "DisplayHandle", handle)
    history = widgets.watch(tiny_llama, letters, text, Window(budget=6), chunk=10)
    none = dataclasses.replace(history, kept=torch.zeros_like(history.kept))
    controls = widgets.explore({"window": history, "nothing": none}, layer=1)
    assert "40 tokens read, 6 in the cache of layer 1" in shown[-1]
    policy, _, head = controls.children[0].children
    moment = controls.children[1].children[1]
    moment.value = 1
    assert "20 tokens read, 6 in the cache" in shown[-1]
    policy.value, head.value = "nothing", 1
    assert "20 tokens read, 0 in the cache of layer 1, key-value head 1" in shown[-1]


def test_predictions_count_from_where_the_smallest_cache_is_full(tiny_llama, text):
    found = steps.compare_policies(tiny_llama, text, {"full": Full(), "window": Window(budget=8)}, chunk=4)
    assert {each.skip for each in found.values()} == {8}
    assert found["window"].peak_bytes < found["full"].peak_bytes
    packed = steps.compare_policies(tiny_llama, text, {"window": Window(budget=8)}, 4, Quantized(bits=4, residual=0))
    assert packed["window"].peak_bytes < found["window"].peak_bytes


def test_slots_by_layer_follow_the_factors(tiny_llama, text):
    assert steps.slots_by_layer(tiny_llama, text, Window(budget=10, by_layer=(0.5, 1.5))) == [5, 15]


def test_the_nearest_neighbour_is_a_kept_token(tiny_llama, text):
    text[30:] = text[2]  # the same token many times: its values at the end are like the evicted one
    found = steps.nearest_kept(tiny_llama, text, budget=12)
    assert found["keys"].shape == found["values"].shape == (2, 2 * 28)
    assert found["values"][0].max() > 0.999
    assert all((values <= 1.0001).all() for values in found.values())
