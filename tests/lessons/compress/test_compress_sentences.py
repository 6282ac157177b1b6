"""The open task of lesson 10: what a sentence is, and what the committed ideas reached."""

import pytest
import torch
from table_cells import rows as cells

from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.compress.experiments import experiment_prompt_words
from course_lib.lessons.compress.experiments.experiment_prompt_words import EXPERIMENT
from course_lib.lessons.compress.live import sentences
from course_lib.models import load_model
from course_lib.prompts.hard import SENTENCES, hard_prompt


@pytest.fixture(scope="module")
def loaded():
    return load_model()


@pytest.fixture(scope="module")
def rows():
    return load_measured("compress", "experiments/prompt_words")["tables"]["sentences"]


def test_a_sentence_is_scored_at_the_tokens_of_the_text(loaded):
    model, tokenizer = loaded
    windows = torch.tensor([tokenizer("The river runs to the sea and back again").input_ids])
    made = sentences.attempt("A song of water. ", model, tokenizer, windows)
    ids = torch.tensor([tokenizer("A song of water. ").input_ids])
    logits = model(torch.cat([ids, windows], dim=1)).logits[0, ids.shape[1] : -1]
    expected = torch.nn.functional.cross_entropy(logits, windows[0, 1:]).item()
    assert made.n_tokens == ids.shape[1]
    assert made.losses.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("sentence", "message"), [(7, "expected words"), ("", "of 0 tokens"), ("sea " * 60, "1 to 40")]
)
def test_what_is_no_sentence_is_refused(loaded, sentence, message):
    with pytest.raises(ValueError, match=message):
        sentences.attempt(sentence, *loaded, torch.zeros(1, 4, dtype=torch.long))


def test_tokens_by_lot_are_as_many_as_the_codes(loaded, rows):
    by_idea = sentences.stored(rows, "dense")
    assert by_idea[sentences.LOTS].n_tokens == len(hard_prompt(loaded[1], SENTENCES["code"]))


def test_gains_are_taken_window_by_window():
    """0.1 and 0.3 nats lower are 0.2 ± 0.1."""
    rows = [
        {"model": model, "idea": idea, "n_tokens": n, "losses": losses}
        for model in sentences.MODELS
        for idea, n, losses in (("", 0, [4.0, 2.0]), ("a song", 2, [3.9, 1.7]))
    ]
    assert cells(sentences.table_of_ideas(rows)) == [["a song", "2", "+0.200 ± 0.100", "+0.200 ± 0.100"]]
    assert sentences.verdict_on_ideas(rows).startswith("Claim: ")
    said = sentences.against_alone(sentences.Attempt(2, torch.tensor([3.9, 1.7])), torch.tensor([[4.0], [2.0]]))
    assert "+0.200 ± 0.100 nats won" in said


def test_the_committed_ideas_are_those_of_the_task(rows):
    for model in sentences.MODELS:
        made = sentences.stored(rows, model)
        assert tuple(made) == ("", *EXPERIMENT.sizes.ideas)
        assert all(each.n_tokens <= sentences.MOST for each in made.values())
        assert {len(each.losses) for each in made.values()} == {EXPERIMENT.sizes.evaluation}


def test_what_the_notebook_says_of_the_ideas(rows):
    """One is clearly ahead on the pruned model, the shortest, and on the dense one as well."""
    clear = [
        {idea for idea, (value, error) in sentences.gains(sentences.stored(rows, model)).items() if value > 2 * error}
        for model in sentences.MODELS
    ]
    assert clear[0] == {"an end of a line"}
    assert "an end of a line" in clear[1]
    assert sentences.stored(rows, "dense")["an end of a line"].n_tokens == 1


def test_the_experiment_reads_both_models_behind_the_same_sentences(monkeypatch):
    monkeypatch.setattr(experiment_prompt_words, "half_pruned", lambda tokenizer: load_model()[0])
    one, other = (step.run(0)["sentences"] for step in experiment_prompt_words.steps(EXPERIMENT.quick))
    assert [row["model"] for row in (one[0], other[0])] == list(sentences.MODELS)
    assert [row["losses"] for row in one] == [row["losses"] for row in other]
