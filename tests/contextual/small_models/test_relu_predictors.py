"""Predictors of the ReLU model: their experiment on tiny sizes, and those that are committed."""

import json

from course_lib.attention.small_models import byte_model
from course_lib.contextual.predictor.store import load_predictors
from course_lib.contextual.small_models.relu_model import PREDICTORS
from course_lib.lessons.dejavu.experiments import experiment_relu_predictors as experiment
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
