import math

import pytest
import torch
from letters import letter_tokenizer

from course_lib.data.benchmarks import Question, Request
from course_lib.measure import scoring
from course_lib.measure.accuracy import answer, is_right
from course_lib.measure.scoring import Score, encode, score_requests
from course_lib.models import tiny_model

QUESTIONS = [
    Question((Request("Is the cat of this?\nAnswer:", " yes"), Request("Is the cat of this?\nAnswer:", " no")), 0),
    Question(tuple(Request("name an animal:", f" {animal}") for animal in ("an ant", "ox", "a hyena", "ant")), 2),
    Question((Request("so the ant", " ran."), Request("so the yak", " ran.")), 1),  # the choice is in the context
    Question((Request("trailing space ", "yes"), Request("trailing space ", "nothing")), 0),
    Question((Request("the cat ", "s at"), Request("the cat", " s")), 0),
    Question((Request("I don't care about", " signs"),), 0),
]


def slow_score(model, tokenizer, request):
    """One forward pass a choice, as lm-evaluation-harness encodes it."""
    context, continuation = request.context, request.continuation
    n_spaces = len(context) - len(context.rstrip())
    if n_spaces:
        context, continuation = context[:-n_spaces], context[-n_spaces:] + continuation
    context_ids = tokenizer(context).input_ids
    scored = tokenizer(context + continuation).input_ids[len(context_ids) :]
    ids = torch.tensor((context_ids + scored)[-257:])
    log_probs = model(ids[None, :-1]).logits[0, -len(scored) :].double().log_softmax(-1)
    target = ids[-len(scored) :]
    return log_probs.gather(1, target[:, None]).sum().item(), bool((log_probs.argmax(1) == target).all())


@pytest.mark.parametrize("tree_tokens", [1, 30, 512])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "opt", "gpt2"])
@torch.no_grad()
def test_scores_equal_one_pass_a_choice(architecture, tree_tokens, monkeypatch):
    monkeypatch.setitem(scoring.TREE_TOKENS, "cpu", tree_tokens)
    model, tokenizer = tiny_model(architecture=architecture), letter_tokenizer()
    requests = [choice for question in QUESTIONS for choice in question.choices]
    requests.append(Request("the same again and " * 30, " an end"))  # longer than the 256 positions of the model
    requests += requests[:3]
    scores = score_requests(model, tokenizer, requests, progress=False)
    for request, score in zip(requests, scores, strict=True):
        expected, greedy = slow_score(model, tokenizer, request)
        assert score.log_likelihood == pytest.approx(expected, abs=1e-4)
        assert score.greedy == greedy


def test_the_space_belongs_to_the_continuation():
    tokenizer = letter_tokenizer()
    for request in (Request("is it?", " yes"), Request("is it? ", "yes")):
        encoded = encode(request, tokenizer, 256)
        assert tokenizer.convert_ids_to_tokens(encoded.continuation) == [" y", "e", "s"]
        assert tokenizer.convert_ids_to_tokens(encoded.context) == ["is", " ", "i", "t", "?"]
        assert encoded.read == encoded.context + encoded.continuation[:-1]


def test_long_contexts_lose_their_beginning_and_empty_ones_get_a_start_token():
    tokenizer = letter_tokenizer()
    encoded = encode(Request("abcdefghij", " no"), tokenizer, 6)
    assert len(encoded.read) == 6
    kept = tokenizer.convert_ids_to_tokens(encoded.context + encoded.continuation)
    assert kept == ["f", "g", "h", "i", "j", " n", "o"]
    assert encode(Request("", "no"), tokenizer, 6).context == [tokenizer.bos_token_id]
    with pytest.raises(ValueError, match="adds no token"):
        encode(Request("is it?", ""), tokenizer, 6)


def test_a_shared_context_is_read_once(monkeypatch):
    model, tokenizer = tiny_model(), letter_tokenizer()
    read = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    context = "a long context of the question" * 3
    with torch.no_grad():
        score_requests(model, tokenizer, [Request(context, f" {c}") for c in ("x", "o", "u", "w")], progress=False)
    assert read == [len(tokenizer(context).input_ids) + 1]  # " x" is " " and "x": the space is read once too


def test_longer_choices_win_only_when_length_is_taken_out():
    question = Question((Request("a", " bcd"), Request("a", " bcdefgh")), 1)
    assert is_right(question, [Score(-6.0, False), Score(-7.0, False)]) == (False, True)  # -2 against -1 a character
    assert is_right(question, [Score(-6.0, False), Score(-14.1, False)]) == (False, False)
    assert is_right(question, [Score(-8.0, False), Score(-7.0, False)]) == (True, True)
    short = Question((Request("a", " b"), Request("a", " bcd")), 1)  # -2 against -5/3; with the space -1 against -5/4
    assert is_right(short, [Score(-2.0, False), Score(-5.0, False)]) == (False, True)


def test_a_single_choice_is_right_when_greedy_decoding_writes_it():
    assert is_right(QUESTIONS[-1], [Score(-9.0, True)]) == (True, True)
    assert is_right(QUESTIONS[-1], [Score(-0.1, False)]) == (False, False)


@torch.no_grad()
def test_accuracy_counts_what_the_slow_loop_counts():
    model, tokenizer = tiny_model(), letter_tokenizer()
    found = answer(model, tokenizer, QUESTIONS, progress=False)
    right = []
    for question in QUESTIONS[:-1]:
        sums = [slow_score(model, tokenizer, choice)[0] for choice in question.choices]
        right.append(sums.index(max(sums)) == question.answer)
    right.append(slow_score(model, tokenizer, QUESTIONS[-1].choices[0])[1])
    assert found.n == 6
    assert found.value == pytest.approx(sum(right) / 6)
    assert found.chance == pytest.approx((1 / 2 + 1 / 4 + 1 / 2 + 1 / 2 + 1 / 2 + 0) / 6)
    assert found.standard_error == pytest.approx(math.sqrt(found.value * (1 - found.value) / 5))


def test_a_model_that_prefers_an_answer_gets_it_right():
    """Pushing one token's logit up decides every question, so a swapped index cannot hide."""
    model, tokenizer = tiny_model(architecture="opt"), letter_tokenizer()
    for letter, value in (("x", 1.0), ("o", 0.0)):
        model.get_output_embeddings().weight.data.zero_()
        model.model.decoder.final_layer_norm.bias.data.fill_(1.0)
        model.model.decoder.final_layer_norm.weight.data.zero_()
        model.get_output_embeddings().weight.data[tokenizer.convert_tokens_to_ids(letter)] = 1.0
        asked = [Question((Request(f"question {i}:", "o"), Request(f"question {i}:", "x")), 1) for i in range(4)]
        assert answer(model, tokenizer, asked, progress=False).value == value


def test_no_questions_are_refused():
    with pytest.raises(ValueError, match="no questions"):
        answer(tiny_model(), letter_tokenizer(), [])


@pytest.mark.real
@pytest.mark.parametrize("task", ["sciq", "winogrande", "lambada", "common_knowledge"])
@torch.no_grad()
def test_real_scores_equal_one_pass_a_choice(task, real_model):
    from course_lib.data.benchmarks import questions

    model, tokenizer = real_model
    requests = [choice for question in questions(task, 2) for choice in question.choices]
    for request, score in zip(requests, score_requests(model, tokenizer, requests, progress=False), strict=True):
        whole = tokenizer(request.context + request.continuation, return_tensors="pt").input_ids
        n_context = len(tokenizer(request.context).input_ids)
        log_probs = model(whole).logits[0, n_context - 1 : -1].log_softmax(-1)
        expected = log_probs.gather(1, whole[0, n_context:, None]).sum().item()
        assert score.log_likelihood == pytest.approx(expected, abs=1e-3)
        assert score.greedy == bool((log_probs.argmax(1) == whole[0, n_context:]).all())


def test_scores_of_nan_are_no_answer():
    """The largest of NaNs is the first of them: choice 0 would be right where it happens to be."""
    with pytest.raises(ValueError, match="got a log-likelihood of NaN among 2 choices"):
        is_right(QUESTIONS[0], [Score(math.nan, False), Score(math.nan, False)])
