"""`course reproduce visual_model` and `visual_tokens`: every step on an untrained model, and what the rows say."""

import json

import pytest
import torch

from course_lib.attention.visual.importance import Importance
from course_lib.attention.visual.model import N_TOKENS, Shape, SmallVLM
from course_lib.attention.visual.prune import Pruning
from course_lib.attention.visual.stages import Ratios
from course_lib.lessons.sparse_attention import deck, optional_plots
from course_lib.lessons.sparse_attention.estimates import visual as estimates
from course_lib.lessons.sparse_attention.experiments import visual_model as of_model
from course_lib.lessons.sparse_attention.experiments import visual_tokens as of_tokens
from course_lib.measure.result_files import plain


def untrained():
    return SmallVLM(Shape(16, 2, 24, 1, 3), torch.Generator().manual_seed(0)).eval()


def tables_of(experiment):
    found = {}
    for step in experiment.steps(experiment.quick):
        for name, rows in step.run(0).items():
            found.setdefault(name, []).extend(rows)
    return json.loads(json.dumps(plain(found)))


@pytest.fixture(scope="module")
def measured():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_tokens, "load", untrained)
        of_tokens.asked.cache_clear()
        yield {"sizes": plain(of_tokens.QUICK.__dict__), "tables": tables_of(of_tokens.EXPERIMENT)}
    of_tokens.asked.cache_clear()


def test_every_way_is_there_at_every_share(measured):
    parts = [f"without {part}" for part in estimates.PARTS]
    expected = {"VFlowOpt": 2, "random": 2, "attention alone": 1, "entropy alone": 1, estimates.BY_HAND: 1}
    for share in (0.5, 0.1):
        for method, n in (expected | dict.fromkeys([*parts, of_tokens.TOLD], 1)).items():
            assert len(estimates.at(measured, method, share)) == n, method
    assert estimates.shares(measured) == [0.5, 0.1]


def test_rows_answer_the_same_questions_and_read_as_much_as_they_say(measured):
    for row in measured["tables"]["answers"]:
        assert len(row["right"]) == row["n"] == 6
        assert row["accuracy"] == pytest.approx(row["right"].count("1") / 6)
        assert abs(row["kept"] - row["share"]) <= 1 / N_TOKENS  # each third is rounded to whole tokens
    assert estimates.dense(measured)["cosine"] == pytest.approx(1, abs=1e-5)


def test_settings_are_those_of_the_rows(measured):
    for row in measured["tables"]["settings"]:
        pruning = of_tokens.pruning_of(row)
        assert pruning.ratios.mean == pytest.approx(row["share"], abs=1e-5)
        assert row["cosine"] == max(row["tried"])
        assert len(row["tried"]) == 4


def test_a_row_of_settings_is_read_as_it_was_written():
    pruning = Pruning(Importance(0.5, 3.0), Ratios(0.5, 0.25, 1.0), 6)
    assert of_tokens.pruning_of(of_tokens.described(pruning)) == pruning


def test_what_is_left_of_a_method_without_a_part():
    """At a tenth one stage keeps 14 tokens: cells of side 3, of which there are 16, become cells of 4."""
    pruning = Pruning(Importance(0.5, 3.0), Ratios(0.28, 0.05, 1.0), 3)
    less = of_tokens.without(pruning, 0.1)
    assert less["without recycling"].side is None
    assert less["without stages"] == Pruning(pruning.score, Ratios(0.1), 4)
    assert less["without entropy"].score == Importance(0.5, 0.0)


@pytest.mark.parametrize("draw", [optional_plots.accuracy_over_share, deck.what_parts_add])
def test_figures_of_any_result(measured, draw):
    fig = draw(measured)
    assert fig.described()
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in fig.axes)


def test_training_writes_a_model_and_its_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(of_model, "QUICK_RESULTS", tmp_path)
    tables = tables_of(of_model.EXPERIMENT)
    assert [(row["phase"], row["step"]) for row in tables["training"]] == [
        (phase, step) for phase in ("encoder", "whole") for step in (2, 4)
    ]
    assert [sorted(row) for row in tables["watched"][::2]] == [
        ["named", "phase", "step"],
        ["accuracy", "phase", "step"],
    ]
    (row,) = tables["models"]
    assert (tmp_path / "visual_model" / "visual_model.safetensors").stat().st_size == row["bytes"]
    assert row["n"] == 15
    assert sum(row["by_question"].values()) / 5 == pytest.approx(row["accuracy"])
