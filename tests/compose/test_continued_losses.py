"""Losses through the cache, and built models as drafts."""

import json

import pytest
import torch
from torch.nn.functional import cross_entropy

from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup
from course_lib.compose import evaluate
from course_lib.compose.draft import drafting
from course_lib.compose.evaluate import CHUNK, continued_losses
from course_lib.kv.analysis.compressed_prompts import CHUNK as CHUNK_OF_LESSON_07
from course_lib.kv.analysis.compressed_prompts import continuation_losses
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.prompts.initial import from_ids
from course_lib.prompts.store import save_prompt


def test_the_dense_model_loses_what_it_loses_without_a_cache(made, model, text):
    losses = continued_losses(made("{}"), text)
    with torch.no_grad():
        logits = model(text).logits[:, 20:-1]
    expected = cross_entropy(logits.transpose(1, 2), text[:, 21:], reduction="none").double().mean(dim=1)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-5)  # float32 sums in another order
    assert losses.shape == (4,)


@pytest.mark.parametrize("recipe", ["{}", '{"weights": {"bits": 4, "rounding": "nearest"}}'])
def test_where_no_part_acts_at_run_time_the_pieces_do_not_matter(made, text, monkeypatch, recipe):
    built = made(recipe)
    expected = continued_losses(built, text)
    monkeypatch.setattr(evaluate, "LONG_CHUNK", 7)
    torch.testing.assert_close(continued_losses(built, text), expected, rtol=0, atol=1e-5)


def test_a_cache_loses_what_lesson_07_measures(made, model, text):
    assert CHUNK == CHUNK_OF_LESSON_07
    built = made('{"cache": {"policy": "StreamingLLM", "budget": 8}}')
    ((_, expected),) = continuation_losses(model, text, 20, [StreamingLLM(budget=8)])
    torch.testing.assert_close(continued_losses(built, text), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_first", [0, 39])
def test_windows_that_are_too_short(made, text, n_first):
    with pytest.raises(ValueError, match="two tokens after"):
        continued_losses(made("{}"), text, n_first)


@pytest.fixture
def drafts(made, model, tmp_path):
    save_prompt(from_ids(model, torch.arange(5)), tmp_path / "five.safetensors")
    neurons = {"selector": "LowRank", "density": 0.5, "settings": {"rank": 12}}
    recipes = [
        {},
        {"weights": {"method": "Wanda", "pattern": 0.5}},
        {"neurons": neurons},
        {"weights": {"bits": 3}, "neurons": neurons, "prompt": {"file": "five.safetensors"}},
        {"attention": {"rule": "SinkAndWindow", "settings": {"block_size": 4}}},
    ]
    return [made(json.dumps(recipe), tmp_path) for recipe in recipes]


@pytest.mark.filterwarnings("ignore:no text was longer")
def test_greedy_drafting_writes_the_dense_models_own_text(model, text, drafts):
    ids = text[0, :12]
    expected = model.generate(ids[None], max_new_tokens=24, min_new_tokens=24, do_sample=False)[0]
    passes = []
    for built in drafts:
        with drafting(built) as draft:
            found = speculate(model, ids, 24, draft)
        assert torch.equal(found.ids, expected)
        passes.append(len(found.rounds))
    assert passes[0] == 5, "the dense model drafts for itself: 24 tokens, five a pass"
    found = speculate(model, ids, 24, Lookup(97))
    assert torch.equal(found.ids, expected)


def test_a_cache_that_evicts_is_no_draft(made):
    with pytest.raises(ValueError, match="Leave the cache out"), drafting(made('{"cache": {"policy": "H2O"}}')):
        pass
