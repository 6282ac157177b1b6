"""Bigram-backcopy: the language, what is least, and the experiment."""

import json
import math

import pytest
import torch

from course_lib.attention.small_models.backcopy import Language, attention_of, excess, value_norms
from course_lib.attention.small_models.model import VARIANTS, Shape, SinkLM
from course_lib.lessons.sinks.experiments import backcopy as experiment

TEXT = "the bat sat on the mat; a cat ate it. " * 5


def abc(triggers=(False, False, True)):
    """After a always b; after b a or c; c is a trigger."""
    following = torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75], [0.5, 0.5, 0.0]])
    return Language("abc", torch.tensor(triggers), following)


def test_letters_are_counted():
    """In "abab ba", a space among them: b follows a twice of two; after b come a (twice) and a space, of three."""
    language = Language.of("ABAB ba", 3, triggers="b")
    assert sorted(language.letters) == [" ", "a", "b"]
    a, b, space = (language.letters.index(letter) for letter in "ab ")
    assert language.following[a].tolist() == pytest.approx([0.1 / 2.3 if j != b else 2.1 / 2.3 for j in range(3)])
    assert language.following[b, a].item() == pytest.approx(2.1 / 3.3)
    assert language.following[b, space].item() == pytest.approx(1.1 / 3.3)
    assert language.triggers.tolist() == [letter == "b" for letter in language.letters]
    assert language.read(torch.tensor([a, b, a])) == "aba"


def test_rare_letters_are_left_out_before_pairs_are_counted():
    language = Language.of("abzab", 2, triggers="a")
    a, b = language.letters.index("a"), language.letters.index("b")
    assert language.following[b, a].item() == pytest.approx(1.1 / 1.2)


@pytest.mark.parametrize("triggers", ["q", "abc"])
def test_triggers_are_some_of_the_letters(triggers):
    with pytest.raises(ValueError, match=r"got triggers .* expected some, but not all, of the letters"):
        Language.of("abcabc", 3, triggers)


def test_after_a_trigger_comes_a_copy():
    language = Language.of(TEXT, 10, "ae")
    ids = language.draw(40, 50, torch.Generator().manual_seed(0))
    assert not language.triggers[ids[:, 0]].any()
    for row in ids.tolist():
        for before, trigger, after in zip(row, row[1:], row[2:], strict=False):
            if language.triggers[trigger]:
                assert after == before
    counts = torch.bincount(ids.flatten(), minlength=10)
    assert (counts > 0).all()


def test_other_letters_are_drawn_as_they_follow_each_other():
    """From 20 000 pairs; three standard errors of a share are 0.01."""
    ids = abc().draw(100, 400, torch.Generator().manual_seed(0))
    before, after = ids[:, :-1], ids[:, 1:]
    assert (after[before == 0] == 1).all()
    free = (before == 1)[:, 1:]
    assert (after[:, 1:][free] == 2).float().mean().item() == pytest.approx(0.75, abs=0.01)


def test_what_is_least_by_hand():
    """b after a is certain; c after b costs log(4/3); what follows the trigger c is a copy; a after b costs log 4."""
    ids = torch.tensor([[0, 1, 2, 1, 0]])
    assert abc().copies(ids).tolist() == [[False, False, True, False]]
    assert abc().least(ids)[0].tolist() == pytest.approx([0, math.log(4 / 3), 0, math.log(4)], abs=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_excess_against_the_loss_of_a_model_that_reads_a_window(variant):
    """An even model, whose embedding is zero: log 3 a token, whatever is kept, less what is least."""
    model = SinkLM(Shape(3, 8, 1, 1, 4), variant, torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(model.embedding.weight)
    ids = abc().draw(4, 30, torch.Generator().manual_seed(0))
    found = excess(model, abc(), ids, 1, 5)
    late = slice(6, None)
    for row in range(4):
        copies, least = abc().copies(ids)[row, late], abc().least(ids)[row, late]
        assert found["copies"][row].item() == pytest.approx(math.log(3), abs=1e-5)
        assert found["others"][row].item() == pytest.approx(math.log(3) - least[~copies].mean().item(), abs=1e-5)


def test_attention_and_norms_have_a_row_a_query_and_a_number_a_slot():
    ids = abc().draw(2, 7, torch.Generator().manual_seed(0))
    for variant, n_slots in zip(VARIANTS, (7, 7, 8), strict=True):
        model = SinkLM(Shape(3, 8, 1, 1, 4), variant, torch.Generator().manual_seed(0))
        weights = attention_of(model, ids[0])
        assert weights.shape == (7, n_slots)
        assert (
            weights.sum(dim=1) < 1 - 1e-3 if variant == "zero sink" else weights.sum(dim=1).isclose(torch.ones(7))
        ).all()
        assert value_norms(model, ids).shape == (n_slots,)


def test_every_step_of_the_experiment_works(monkeypatch):
    monkeypatch.setattr(experiment, "training_texts", lambda: [TEXT] * 3)
    tables = {}
    for step in experiment.steps(experiment.QUICK):
        for name, rows in step.run(0).items():
            tables.setdefault(name, []).extend(json.loads(json.dumps(rows)))
    assert [row["step"] for row in tables["emergence"]] == [3, 6] * 3
    assert [(row["sinks"], row["recent"]) for row in tables["streaming"]] == [(0, 8), (1, 7)] * 3
    assert {row["variant"] for row in tables["attention"]} == set(VARIANTS)
    for row in tables["attention"]:
        shares = [row[f"{kind}_{place}"] for kind in ("busy", "idle") for place in ("first_slot", "nowhere")]
        assert all(-1e-6 <= share <= 1 for share in shares)
        assert (row["idle_nowhere"] > 0.01) == (row["variant"] == "zero sink")
    (wide,) = tables["widths"]
    assert wide["hidden"] == 8
    for row in tables["sample"]:
        assert len(row["weights"]) == len(row["text"]) == 24
        assert len(row["weights"][0]) == 24 + (row["variant"] == "learnable sink")
