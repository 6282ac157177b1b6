"""Sentences and their tokens, the nearest sentence, and AutoPASTA's two steps."""

import pytest
import torch

from course_lib.attention.steering import auto
from course_lib.attention.steering.auto import as_prompt, auto_pasta, key_sentence, pieces, written
from course_lib.attention.steering.sentences import highlighted, nearest_sentence, split_sentences
from course_lib.attention.steering.steer import steering
from course_lib.models import tiny_model

CONTEXT = "a b c. d e f. g h i."
TOLD = ["Belano works as a baker and lives in Corford.", "Marico works as a judge and lives in Velmont."]


def test_sentences():
    assert split_sentences(CONTEXT) == ["a b c.", "d e f.", "g h i."]
    assert split_sentences('He said: "No!" Why? In 3.5 days\n\nAn end') == [
        'He said: "No!',
        "Why?",
        "In 3.5 days",
        "An end",
    ]
    assert split_sentences(" \n ") == []


def test_tokens_of_a_sentence(tiny_tokenizer):
    """Word-level tokens: the mask is that of the words."""
    found = highlighted(tiny_tokenizer, ["a b c d e", "x y z"], [["b c"], ["x", "z"]])
    assert found.columns.int().tolist() == [[0, 1, 1, 0, 0], [0, 0, 1, 0, 1]]
    assert found.attention_mask.tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert found.ids[0].tolist() == tiny_tokenizer("a b c d e", add_special_tokens=False).input_ids


def test_a_piece_is_found_wherever_it_stands(tiny_tokenizer):
    assert highlighted(tiny_tokenizer, ["a b c a b"], [["a b"]]).columns[0].tolist() == [1, 1, 0, 1, 1]


@pytest.mark.parametrize("piece", ["q", "", " ", "c b"])
def test_a_sentence_that_is_not_in_the_text_is_refused(tiny_tokenizer, piece):
    with pytest.raises(ValueError, match="which is not in the text 'a b c'"):
        highlighted(tiny_tokenizer, ["a b c"], [[piece]])


def test_other_refusals(tiny_tokenizer):
    with pytest.raises(ValueError, match="2 prompts and 1 lists of pieces"):
        highlighted(tiny_tokenizer, ["a", "b"], [["a"]])
    with pytest.raises(ValueError, match="without a word"):
        nearest_sentence("a", ["...", "?"])
    with pytest.raises(ValueError, match="at least one sentence"):
        key_sentence(tiny_model(), tiny_tokenizer, "  ", "a")


def test_the_nearest_sentence():
    assert nearest_sentence("Marico works as a judge.", TOLD).index == 1
    exact = nearest_sentence(TOLD[0], TOLD)
    assert (exact.index, exact.sentence) == (0, TOLD[0])
    assert exact.similarity == pytest.approx(1)
    assert nearest_sentence("nothing shared", TOLD).similarity == 0


def test_a_rare_word_counts_more_than_common_ones():
    said = "The one who works as a baker and lives in Velmont"
    sentences = [*TOLD, "Fenina works as a nurse and lives in Galwick."]
    assert nearest_sentence("Somebody works as a nurse and lives", sentences).index == 2
    assert nearest_sentence(said.replace("baker", "teacher"), sentences).index == 1


def test_what_is_highlighted():
    assert pieces("named", CONTEXT, named="d e f.") == ["d e f."]
    assert pieces("true", CONTEXT, true="a b c.") == ["a b c."]
    assert pieces("whole context", CONTEXT) == split_sentences(CONTEXT)
    drawn = {
        pieces("random", CONTEXT, true="a b c.", generator=torch.Generator().manual_seed(seed))[0] for seed in range(9)
    }
    assert drawn == {"d e f.", "g h i."}
    for wrong in ({"kind": "best"}, {"kind": "named"}, {"kind": "random", "true": "a b c."}):
        with pytest.raises(ValueError, match="got kind"):
            pieces(context=CONTEXT, **wrong)


def test_a_chat_template_is_used_where_there_is_one(tiny_tokenizer):
    assert as_prompt(tiny_tokenizer, "a b") == "a b\n\n"
    tiny_tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %} <assistant> "
    assert as_prompt(tiny_tokenizer, "a b") == "<user> a b <assistant> "


def test_both_steps(tiny_tokenizer, monkeypatch):
    """What is said is looked up, and the answer is what the steered model writes."""
    model, context, question = tiny_model(), "a b c d. e f g h.", "h b ?"
    prompt = as_prompt(tiny_tokenizer, auto.ANSWER_IT.format(context=context, question=question))
    answers = {}
    for sentence in split_sentences(context):
        found = highlighted(tiny_tokenizer, [prompt], [[sentence]])
        with steering(model, found.columns):
            answers[sentence] = written(model, tiny_tokenizer, prompt, 12)
    said = ["it says e f g"]
    own = written
    monkeypatch.setattr(auto, "written", lambda *given: said.pop() if said else own(*given))
    found = auto_pasta(model, tiny_tokenizer, context, question)
    assert (found.said, found.key.sentence) == ("it says e f g", "e f g h.")
    assert found.answer == answers["e f g h."]
    assert model.config._attn_implementation == "sdpa"
