"""The model of bytes: its sizes by hand, windows that do not overlap, files that come back, and the one committed."""

import json
from dataclasses import replace

import pytest
import torch

from course_lib.attention.small_models import byte_model
from course_lib.attention.small_models.byte_model import (
    byte_losses,
    byte_windows,
    configuration,
    load_byte_model,
    load_half,
    save_half,
    untrained,
)
from course_lib.attention.small_models.training import Schedule, running, train
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.minitron.experiments import byte_model as experiment_byte_model
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut

TEXT = "one two three, two three one. " * 40
SMALL = {"width": 16, "n_blocks": 2, "n_heads": 2, "n_neurons": 24}


@pytest.fixture
def texts(monkeypatch):
    """Made-up documents in place of the packaged ones: 1200 bytes held out, 3600 to train on."""
    monkeypatch.setattr(byte_model, "DOCUMENTS", {"wikipedia": lambda split: [TEXT.upper()]})
    monkeypatch.setattr(byte_model, "training_texts", lambda: [TEXT] * 3)


def test_parameters_by_hand():
    # embedding 256 · 128; a block: 4 · 128² attention, 3 · 128 · 512 MLP, two norms of 128; the last norm; a tied head
    expected = 256 * 128 + 4 * (4 * 128**2 + 3 * 128 * 512 + 2 * 128) + 128
    model = untrained(configuration(), seed=0)
    assert sum(weight.numel() for weight in model.parameters()) == expected == 1_082_496
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_first_weights_follow_the_seed_and_leave_torch_s_generator_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, same, other = (untrained(configuration(**SMALL), seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(one.model.embed_tokens.weight, same.model.embed_tokens.weight)
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)


def test_losses_by_hand():
    # A model of zeros finds all bytes equally likely.
    model = untrained(configuration(**SMALL), 0)
    for weight in model.parameters():
        weight.data.zero_()
    losses = byte_losses(model, torch.tensor([[1, 2, 3], [255, 0, 9]]))
    torch.testing.assert_close(losses, torch.full((2, 2), 256.0).log())


def test_windows_do_not_overlap_and_begin_alike(texts):
    text = bytes(running([TEXT.upper()]).tolist())
    every = byte_windows(None, length=50)
    assert every.shape == (len(text) // 50, 50)
    starts = sorted(text.index(bytes(window.tolist())) for window in byte_windows(None, length=len(text) // 2))
    assert starts == [0, len(text) // 2]
    assert torch.equal(byte_windows(3, length=50), every[:3])
    assert not torch.equal(byte_windows(None, length=50, seed=1), every)
    assert bytes(byte_windows(1, "calibration", 40)[0].tolist()).islower()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"n": 1, "split": "test"}, "expected 'calibration' or 'evaluation'"),
        ({"n": 0}, "Ask for 1 to as many"),
        ({"n": 10**6}, "9 windows of that length"),
        ({"n": 1, "length": 1}, "of at least two bytes"),
        ({"n": None, "length": 10**6}, "Ask for 1 to as many"),
    ],
)
def test_windows_that_cannot_be(texts, asked, words):
    with pytest.raises(ValueError, match=words):
        byte_windows(**asked)


def test_any_configuration_is_written_and_comes_back(tmp_path):
    config = configuration(**SMALL)
    config.num_key_value_heads, config.tie_word_embeddings = 1, False
    model = untrained(config, 3)
    path = save_half(model, tmp_path, "other")
    assert [each.name for each in tmp_path.iterdir()] == [path.name] == ["other.safetensors"]
    back = load_half(tmp_path, "other")
    assert not back.training
    for name, weight in model.named_parameters():
        torch.testing.assert_close(back.state_dict()[name], weight.detach().half().float(), rtol=0, atol=0)


def test_a_missing_file_names_the_command(tmp_path):
    with pytest.raises(ValueError, match="course reproduce byte_model"):
        load_half(tmp_path)


def test_a_short_training_lowers_the_loss_and_repeats_itself():
    tokens, seen = running([TEXT] * 3), []
    for _ in range(2):
        seen.append([])
        model = untrained(configuration(**SMALL), 0).train()
        schedule = Schedule(30, 2, 16, warm_up=3, rate=1e-2)
        train(model, tokens, schedule, 0, lambda step, loss: seen[-1].append(loss), byte_losses)
    assert sum(seen[0][-5:]) < 0.8 * sum(seen[0][:5])
    assert seen[0] == seen[1]


def test_it_is_cut_and_distilled_as_any_other(texts):
    teacher = untrained(configuration(**SMALL), 0).eval()
    windows = byte_windows(4, "calibration", 16)
    target = replace(shape_of(teacher), neurons=12, blocks=2, heads=1, groups=1, width=8)
    student = cut(teacher, target, Minitron().score(Evidence(teacher, windows, progress=False)))
    assert shape_of(student) == target
    recipe = Recipe(schedule=Schedule(2, 2, 16, 1e-3, 1, 0.0))
    assert len(distil(student, teacher, windows, recipe, progress=False)) == 2
    said = student.generate(windows[:1, :4], max_new_tokens=3, do_sample=False)
    assert said.shape == (1, 7)


def test_every_step_of_the_experiment_works(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_byte_model, "training_texts", lambda: [TEXT] * 3)
    monkeypatch.setattr(experiment_byte_model, "QUICK_RESULTS", tmp_path)
    (step,) = experiment_byte_model.steps(replace(experiment_byte_model.QUICK, schedule=Schedule(4, 2, 16, 1e-2, 2)))
    tables = json.loads(json.dumps(step.run(0)))
    assert [row["step"] for row in tables["training"]] == [row["step"] for row in tables["held_out"]] == [2, 4]
    (row,) = tables["models"]
    assert (row["read"], row["text"], len(row["losses"])) == (4 * 2 * 16, 3 * 1202, 2)
    assert row["bytes"] == (tmp_path / "byte_model" / "byte_model.safetensors").stat().st_size


@pytest.mark.real
def test_committed_weights_are_those_that_were_measured():
    """Weights are the same bits; the sums of another processor move the loss in the sixth digit."""
    (row,) = load_measured("minitron", "byte_model")["tables"]["models"]
    assert row["bytes"] == (byte_model.WEIGHTS / "byte_model.safetensors").stat().st_size < 5e6
    model, held_out, training = load_byte_model(n_training=5)
    assert (held_out.shape, training.shape) == ((48, 128), (5, 128))
    assert sum(weight.numel() for weight in model.parameters()) == row["parameters"]
    with torch.no_grad():
        losses = byte_losses(model, held_out).mean(dim=1)
    assert losses.tolist() == pytest.approx(row["losses"], abs=1e-4)
