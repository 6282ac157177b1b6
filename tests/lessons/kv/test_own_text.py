"""The open task of lesson 07: texts on which H2O and a window with sinks differ, compared by blocks of predictions."""

import pytest
import torch
from table_cells import rows as cells

from course_lib.lessons.common.results import load_measured
from course_lib.lessons.kv import steps, tables
from course_lib.lessons.kv.experiments import own_text
from course_lib.models import tiny_model


def test_blocks_are_the_samples_by_hand():
    """Three blocks of the window lose 2, 3 and 4, those of H2O 1, 3 and 2: lower by 1, 0 and 2, 1 ± 1/√3."""
    found = steps.Contest(200, torch.tensor([2.0, 3.0, 4.0]), torch.tensor([1.0, 3.0, 2.0]))
    assert found.lower == pytest.approx((1.0, 3**-0.5))
    assert cells(tables.own_texts(texts={"by hand": found})) == [["by hand", "200", "20.1", "7.4", "+1.000 ± 0.577"]]


def test_both_caches_read_a_text_and_a_short_one_is_refused(tiny_tokenizer, monkeypatch):
    for name, value in {"BUDGET": 16, "LEAST": 64, "MOST": 96}.items():
        monkeypatch.setattr(steps, name, value)
    model = tiny_model()
    found = steps.contest(model, tiny_tokenizer, " ".join(["a", "b", "c1"] * 40))
    assert found.n_tokens == 96
    assert len(found.window) == len(found.h2o) == (96 - 1 - 16) // steps.BLOCK
    assert not torch.equal(found.window, found.h2o)
    with pytest.raises(ValueError, match="got a text of 2 tokens; expected 64 or more"):
        steps.contest(model, tiny_tokenizer, "a b")
    with pytest.raises(ValueError, match="got a int; expected a text"):
        steps.contest(model, tiny_tokenizer, 3)


def test_the_committed_texts_are_those_of_the_task():
    measured = load_measured("kv", "own_text")
    texts = own_text.stored(measured["tables"]["texts"])
    assert tuple(texts) == tuple(own_text.TEXTS) == tuple(measured["sizes"]["texts"])
    for found in texts.values():
        assert steps.LEAST <= found.n_tokens <= steps.MOST
        assert len(found.window) == len(found.h2o) == (found.n_tokens - 1 - steps.BUDGET) // steps.BLOCK
