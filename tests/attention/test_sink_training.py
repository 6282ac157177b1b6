"""Training lowers the loss and repeats itself; what is committed is what was measured."""

import json

import pytest
import torch

from course_lib.attention.small_models import training
from course_lib.attention.small_models.model import VARIANTS, Shape, SinkLM
from course_lib.attention.small_models.training import Schedule, batch_at, load, losses, running, save, train
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.sinks.experiments import sink_pretraining

TEXT = "one two three, two three one. " * 40
SHAPE = Shape(300, 16, 2, 2, 24)


def test_texts_become_bytes_with_an_empty_line_between_them():
    assert running(["aé", "\n"]).tolist() == [97, 0xC3, 0xA9, 10, 10, 10, 10, 10]
    assert bytes(running(["東京"]).tolist()).decode() == "東京\n\n"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_short_training_lowers_the_loss_and_repeats_itself(variant):
    tokens, seen = running([TEXT] * 3), []
    schedule = Schedule(30, 2, 16, warm_up=3, rate=1e-2)
    for _ in range(2):
        model = SinkLM(SHAPE, variant, torch.Generator().manual_seed(0))
        seen.append([])
        train(model, tokens, schedule, 0, lambda step, loss: seen[-1].append(loss))
    assert len(seen[0]) == 30
    assert sum(seen[0][-5:]) < 0.6 * sum(seen[0][:5])
    assert seen[0] == seen[1]


def test_the_rate_rises_and_falls_to_a_tenth():
    schedule = Schedule(100, rate=1.0, warm_up=10)
    rates = [schedule.rate_at(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)


def test_samples_lie_anywhere_and_follow_the_seed():
    tokens, schedule = torch.arange(50), Schedule(batch=400, length=5)
    sample = batch_at(tokens, schedule, torch.Generator().manual_seed(1))
    assert sample.shape == (400, 6)
    assert (sample.diff(dim=1) == 1).all()
    assert set(sample[:, 0].tolist()) == set(range(45))
    assert (batch_at(tokens, schedule, torch.Generator().manual_seed(1)) == sample).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_models_come_back(variant, tmp_path, generator):
    model = SinkLM(SHAPE, variant, generator)
    path = save(model, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    back = load(variant, tmp_path)
    assert (back.variant, back.shape) == (variant, SHAPE)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(back.state_dict()[name], weight.detach().half().float(), rtol=0, atol=0)


def test_a_missing_file_names_the_remedy(tmp_path):
    with pytest.raises(ValueError, match="course reproduce sink_pretraining"):
        load("vanilla", tmp_path)


def test_every_step_of_the_experiment_works(tmp_path, monkeypatch):
    """At the smallest sizes, on made-up documents; rows are plain data."""
    monkeypatch.setattr(sink_pretraining, "training_texts", lambda: [TEXT] * 3)
    monkeypatch.setattr(sink_pretraining, "DOCUMENTS", {"wikipedia": lambda split: [TEXT] * 3})
    monkeypatch.setattr(sink_pretraining, "QUICK_RESULTS", tmp_path)
    tables = {}
    for step in sink_pretraining.steps(sink_pretraining.QUICK):
        for name, rows in step.run(0).items():
            tables.setdefault(name, []).extend(json.loads(json.dumps(rows)))
    assert [row["variant"] for row in tables["models"]] == list(VARIANTS)
    assert {row["sinks"]: row["recent"] for row in tables["streaming"]} == {0: 8, 1: 7}
    assert [row["n_tokens"] for row in tables["streaming"]] == [2 * 16] * 6
    assert [row["n_tokens"] for row in tables["recomputed"]] == [2 * 2] * 3
    assert [row["step"] for row in tables["training"][:3]] == [2, 4, 6]
    assert [(row["rate"], row["step"]) for row in tables["rates"]] == [(1e-2, 1), (1e-2, 4)]
    assert [row["sinks"] for row in tables["rate_streaming"]] == [0, 1]


def test_the_committed_measurement_tells_how_its_rate_was_picked():
    measured = load_measured("sinks", "sink_pretraining")
    (picked,) = measured["tables"]["picked"]
    assert picked == sink_pretraining.PICKED
    assert picked["rate"] == training.Schedule().rate == measured["sizes"]["schedule"]["rate"]
    assert picked["rate"] in picked["among"]
    plan = sink_pretraining.steps(sink_pretraining.Sizes())
    assert [step.name for step in plan] == [*measured["steps"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_committed_weights_are_those_that_were_measured(variant):
    """Weights are the same bits; the sums of another processor move the loss in the sixth digit."""
    models = load_measured("sinks", "sink_pretraining")["tables"]["models"]
    (row,) = [row for row in models if row["variant"] == variant]
    model = load(variant)
    assert sum(weight.numel() for weight in model.parameters()) == row["parameters"]
    ids = running([sink_pretraining.FIXED_TEXT])[None]
    with torch.no_grad():
        assert losses(model, ids).mean().item() == pytest.approx(row["fixed_text_loss"], abs=1e-4)


def test_committed_weights_are_small():
    files = list(training.WEIGHTS.iterdir())
    of_sinks = {f"{v.replace(' ', '_')}.safetensors" for v in VARIANTS}
    assert {each.name for each in files} == of_sinks | {"byte_model.safetensors"}
    assert max(each.stat().st_size for each in files) < 5e6
