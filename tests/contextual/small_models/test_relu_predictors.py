"""Predictors of the ReLU model: their experiment on tiny sizes, and those that are committed."""

import json

import pytest
import torch

from course_lib.attention.small_models import byte_model
from course_lib.attention.small_models.byte_model import byte_losses
from course_lib.contextual.apply import contextual
from course_lib.contextual.predictor.store import load_predictors
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.small_models.relu_model import PREDICTORS, load_relu_model, load_relu_predictors
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.dejavu.experiments import relu_predictors as experiment
from course_lib.measure.result_files import plain

TEXT = "one two three, two three one. " * 40


def test_the_experiment_on_tiny_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_model, "DOCUMENTS", {"wikipedia": lambda split: [TEXT.upper()]})
    monkeypatch.setattr(byte_model, "training_texts", lambda: [TEXT] * 3)
    monkeypatch.setattr(experiment, "QUICK_RESULTS", tmp_path)
    tables, sizes = {}, experiment.QUICK
    for step in experiment.steps(sizes):
        for name, rows in step.run(0).items():
            tables.setdefault(name, []).extend(rows)
    tables = json.loads(json.dumps(plain(tables)))
    assert [(row["block"], row["tokens"]) for row in tables["predictors"]] == [(0, 256), (1, 256)]
    assert all(
        0 < row[name] < 1 for row in tables["predictors"] for name in ("active", "recall", "precision", "energy")
    )
    rows = {(row["way"], row["density"]): row for row in tables["decoded"]}
    assert set(rows) == {(way, density) for way in ("oracle", "predicted") for density in (1.0, 0.3)}
    assert rows["oracle", 1.0]["losses"] == rows["predicted", 1.0]["losses"]  # nothing is left out
    assert rows["oracle", 0.3]["losses"] != rows["predicted", 0.3]["losses"]
    predictors = load_predictors(tmp_path / f"{PREDICTORS}.safetensors")
    assert rows["predicted", 0.3]["bytes"] == sum(each.n_bytes for each in predictors) == 2 * 4 * 4 * (16 + 64)


@pytest.mark.real
def test_committed_predictors_are_those_that_were_measured():
    rows = load_measured("dejavu", "experiments/relu_predictors")["tables"]["decoded"]
    (row,) = (row for row in rows if row["way"] == "predicted" and row["density"] == 0.2)
    model, held_out, _ = load_relu_model(n_training=1)
    with torch.no_grad(), contextual(model, DejaVu(predictors=load_relu_predictors(), density=0.2)):
        losses = byte_losses(model, held_out[:8]).mean(dim=1)
    # Another processor's sums may swap a neuron at the edge of the kept ones.
    assert losses.tolist() == pytest.approx(row["losses"][:8], abs=5e-3)
