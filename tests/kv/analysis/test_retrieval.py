"""Needles and deferred answers."""

from dataclasses import replace

import pytest
import torch

from course_lib.data.needles import DEPTHS, WORDS, Sample, samples
from course_lib.kv.analysis.retrieval import Answer, Retrieval, retrieve, retrieve_through, usable
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.window import Window
from course_lib.measure import paired
from course_lib.models import blocks, tiny_model, weight_of

TEXTS = torch.randint(3, 97, (13, 40), generator=torch.Generator().manual_seed(2))


def say(model, ids, n):
    """The model's own greedy continuation."""
    return model.generate(ids[None], max_new_tokens=n, do_sample=False, eos_token_id=None)[0, len(ids) :]


def sample(model, text):
    """Two questions whose answers are what the model says; more of them than one batch holds."""
    prompt, question = text[:32], text[32:36]
    answer = say(model, text[:36], 3)
    later = text[36:]
    second = say(model, torch.cat([text[:36], answer, later]), 2)
    return Sample(prompt, (question, later), (answer, second), (0.5, 1.0))


@pytest.fixture(scope="module")
def asked():
    """What the tiny model says depends on little but its last token, unless attention weighs more."""
    model = tiny_model()
    for block in blocks(model):
        for name, factor in (("q_proj", 6), ("k_proj", 6), ("o_proj", 200)):
            weight_of(block.get_submodule(f"self_attn.{name}")).mul_(factor)
    return model, [sample(model, text) for text in TEXTS]


def test_the_whole_cache_says_what_the_model_says(asked):
    model, two = asked
    with evicting(model, Full()) as cache:
        first, second = retrieve_through(model, two, cache)
    assert len(first.answers) == len(second.answers) == 13
    assert (first.exact, second.exact) == (1.0, 1.0)
    assert retrieve(model, two, Full()) == second
    assert {answer.depth for answer in second.answers} == {1.0}
    assert usable(model, two)


def test_tokens_count_until_the_first_wrong_one(asked):
    model, two = asked
    wrong = [replace(s, answers=((s.answers[0] + torch.tensor([0, 1, 0])) % 97, s.answers[1])) for s in two[:4]]
    with evicting(model, Full()) as cache:
        first, second = retrieve_through(model, wrong, cache)
    assert [answer.n_right for answer in first.answers] == [1] * 4
    assert (first.exact, first.prefix, second.exact) == (0.0, pytest.approx(1 / 3), 1.0)


def test_the_question_is_read_after_the_eviction_and_the_naive_way_leaks(asked):
    """With two slots left the prompt is gone, yet the naive question's first token knows all of it."""
    model, two = asked
    one = [replace(s, questions=s.questions[:1], answers=(s.answers[0][:1],)) for s in two]
    assert retrieve(model, one, Window(2)).exact < 1
    assert retrieve(model, [s.naive() for s in one], Window(2)).exact == 1
    assert retrieve(model, [s.naive() for s in one], Full()).exact == 1


def test_shares_of_answers_by_hand():
    made = Retrieval(tuple(Answer(depth, n, 4) for depth, n in ((0.1, 4), (0.1, 2), (0.9, 0))))
    assert made.interval == paired.wilson(1, 3)
    assert made.prefix == 0.5
    assert {depth: found.exact for depth, found in made.by_depth().items()} == {0.1: 0.5, 0.9: 0.0}


@pytest.mark.real
@pytest.mark.parametrize("task", ["word", "digits", "two"])
def test_prompts_hold_their_needles_where_they_say(real_model, task):
    tokenizer = real_model[1]
    made = samples(task, 6, 300, tokenizer)
    assert [s.depths[0] for s in made] == [*DEPTHS, DEPTHS[0]]
    for each in made:
        assert len(each.prompt) == 300
        text = tokenizer.decode(each.prompt)
        for question, answer, depth in zip(each.questions, each.answers, each.depths, strict=True):
            needle = tokenizer.decode(question).lstrip(".\n") + tokenizer.decode(answer) + "."
            assert text.count(needle) == 1
            written = torch.cat([question[question.tolist().index(tokenizer.encode("The")[0]) + 1 :], answer])
            assert any(torch.equal(some, written) for some in each.prompt.unfold(0, len(written), 1))
            place = len(tokenizer(text[: text.index(needle)]).input_ids) / 300
            assert abs(place - depth) < 0.12
        assert not set(tokenizer.decode(each.prompt[-3:]).split()) & set(WORDS)
    again = samples(task, 3, 300, tokenizer)
    assert all(torch.equal(one.prompt, other.prompt) for one, other in zip(made, again, strict=False))
    assert len({tuple(s.answers[0].tolist()) for s in made}) > 1


def test_bad_input_is_refused(tiny_tokenizer):
    with pytest.raises(ValueError, match="got task 'poem'; expected one of word, digits, two"):
        samples("poem", 2, 300, tiny_tokenizer)
    with pytest.raises(ValueError, match=r"got depths \(1.5,\)"):
        samples("word", 2, 300, tiny_tokenizer, depths=(1.5,))
    with pytest.raises(ValueError, match="got no samples"):
        retrieve(tiny_model(), [], Full())


@pytest.mark.real
def test_a_prompt_shorter_than_its_needle_is_refused(real_model):
    with pytest.raises(ValueError, match="three times the needles' length"):
        samples("word", 1, 12, real_model[1])
