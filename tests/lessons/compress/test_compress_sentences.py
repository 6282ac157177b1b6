"""The open task of lesson 10: which sentences are accepted, and the gains of the committed ideas."""

import pytest
import torch
from table_cells import rows as cells

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.compress import tables
from course_lib.lessons.compress.experiments import prompt_words
from course_lib.lessons.compress.experiments.prompt_words import EXPERIMENT
from course_lib.models import load_model
from course_lib.prompts.hard import SENTENCES, hard_prompt


@pytest.fixture(scope="module")
def loaded():
    return load_model()


@pytest.fixture(scope="module")
def rows():
    return load_measured("compress", "prompt_words")["tables"]["sentences"]


def test_a_sentence_is_scored_at_the_tokens_of_the_text(loaded):
    model, tokenizer = loaded
    windows = torch.tensor([tokenizer("The river runs to the sea and back again").input_ids])
    made = prompt_words.measure("A song of water. ", model, tokenizer, windows)
    ids = torch.tensor([tokenizer("A song of water. ").input_ids])
    logits = model(torch.cat([ids, windows], dim=1)).logits[0, ids.shape[1] : -1]
    expected = torch.nn.functional.cross_entropy(logits, windows[0, 1:]).item()
    assert made.n_tokens == ids.shape[1]
    assert made.losses.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("sentence", "message"), [(7, "expected words"), ("", "of 0 tokens"), ("sea " * 60, "1 to 40")]
)
def test_something_else_than_a_sentence_is_refused(loaded, sentence, message):
    with pytest.raises(ValueError, match=message):
        prompt_words.measure(sentence, *loaded, torch.zeros(1, 4, dtype=torch.long))


def test_there_are_as_many_random_tokens_as_in_the_codes_sentence(loaded, rows):
    by_idea = prompt_words.stored(rows, "dense")
    assert by_idea[prompt_words.RANDOM].n_tokens == len(hard_prompt(loaded[1], SENTENCES["code"]))


def test_gains_are_taken_window_by_window():
    """0.1 and 0.3 nats lower are 0.2 ± 0.1."""
    rows = [
        {"model": model, "idea": idea, "n_tokens": n, "losses": losses}
        for model in prompt_words.MODELS
        for idea, n, losses in (("", 0, [4.0, 2.0]), ("a song", 2, [3.9, 1.7]))
    ]
    assert cells(tables.sentences(ideas=rows)) == [["a song", "2", "+0.200 ± 0.100", "+0.200 ± 0.100"]]
    attempt = torch.tensor([4.0, 2.0]), prompt_words.Attempt(3, torch.tensor([3.9, 1.7]))
    last = cells(tables.sentences(dict.fromkeys(prompt_words.MODELS, attempt), rows))[-1]
    assert last == ["yours", "3", "+0.200 ± 0.100", "+0.200 ± 0.100"]


def test_the_committed_ideas_are_those_of_the_task(rows):
    for model in prompt_words.MODELS:
        made = prompt_words.stored(rows, model)
        assert tuple(made) == ("", *EXPERIMENT.sizes.ideas)
        assert all(each.n_tokens <= prompt_words.MOST for each in made.values())
        assert {len(each.losses) for each in made.values()} == {EXPERIMENT.sizes.evaluation}


def test_what_the_notebook_says_of_the_ideas(rows):
    """Only the shortest one helps the pruned model significantly, and it helps the dense one as well."""
    clear = [
        {idea for idea, effect in prompt_words.gains(prompt_words.stored(rows, model)).items() if effect.holds}
        for model in prompt_words.MODELS
    ]
    assert clear[0] == {"a line break"}
    assert "a line break" in clear[1]
    assert prompt_words.stored(rows, "dense")["a line break"].n_tokens == 1


def test_the_experiment_evaluates_both_models_with_the_same_sentences(monkeypatch):
    monkeypatch.setattr(prompt_words, "half_pruned", lambda tokenizer: load_model()[0])
    one, other = (step.run(0)["sentences"] for step in prompt_words.steps(EXPERIMENT.quick))
    assert [row["model"] for row in (one[0], other[0])] == list(prompt_words.MODELS)
    assert [row["losses"] for row in one] == [row["losses"] for row in other]
