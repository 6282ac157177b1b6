"""A prompt before many texts at once: trees of shared beginnings, in which every token sees it; other precisions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prompted_by_hand import ids_of, lively, naive_logits

from course_lib.data.benchmarks import Question, Request
from course_lib.measure.accuracy import answer
from course_lib.measure.scoring import score_requests
from course_lib.measure.token_tree import grow_trees, tree_hidden_states
from course_lib.models import head
from course_lib.prompts.initial import from_normal
from course_lib.prompts.places import Places
from course_lib.prompts.prompted import prompting

TEXTS = [[5, 6, 7, 8], [5, 6, 9], [5, 6, 9, 4, 4], [30]]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # float32: the same sums in another order


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
@torch.no_grad()
def test_every_path_of_a_tree_has_the_prompt_before_it(family):
    model = lively(family)
    prompt = from_normal(model, 5, torch.Generator().manual_seed(7))
    (tree,) = grow_trees(TEXTS, 100)
    with prompting(model, prompt):
        logits = head(model)(tree_hidden_states(model, tree))
    for path, text in zip(tree.paths, TEXTS, strict=True):
        torch.testing.assert_close(logits[path], naive_logits(model, prompt.vectors, torch.tensor([text]))[0], **CLOSE)


def test_questions_are_answered_behind_the_prompt(tiny_tokenizer):
    model = lively()
    prompt = from_normal(model, 5, torch.Generator().manual_seed(7))
    choices = [Request("c d e", " f g"), Request("c d e", " h")]
    with prompting(model, prompt):
        scores = score_requests(model, tiny_tokenizer, choices, progress=False)
        found = answer(model, tiny_tokenizer, [Question(tuple(choices), 0)], progress=False)
    ids = tiny_tokenizer("c d e f g", add_special_tokens=False, return_tensors="pt").input_ids
    logs = naive_logits(model, prompt.vectors, ids)[0].double().log_softmax(-1)
    expected = logs[2, ids[0, 3]] + logs[3, ids[0, 4]]
    assert scores[0].log_likelihood == pytest.approx(expected.item(), abs=1e-4)
    assert found.right == (scores[0].log_likelihood > scores[1].log_likelihood,)


@torch.no_grad()
def test_a_model_in_bfloat16_reads_vectors_in_bfloat16():
    model = lively()
    prompt = from_normal(model, 5, torch.Generator().manual_seed(7))
    model.to(torch.bfloat16)
    with prompting(model, prompt):
        logits = model(ids_of(2, 6)).logits
    assert logits.dtype == torch.bfloat16
    assert torch.equal(logits, naive_logits(model, prompt.vectors.bfloat16(), ids_of(2, 6)))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 6))
def test_what_is_put_in_comes_out_again(at, n_vectors, n_tokens):
    places = Places(torch.tensor(at).clamp_max(n_tokens - 1), n_vectors, n_tokens)
    tokens = torch.arange(n_tokens).expand(len(at), -1)
    joint = places.insert(torch.full((len(at), n_vectors), -1), tokens)
    assert torch.equal(places.without(joint), tokens)
    for row, first in zip(joint.tolist(), places.at.tolist(), strict=True):
        assert row[first : first + n_vectors] == [-1] * n_vectors
        assert row[:first] + row[first + n_vectors :] == list(range(n_tokens))
