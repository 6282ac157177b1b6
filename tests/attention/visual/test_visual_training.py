"""Training the small model: what is learnt, that it is, what is written; committed weights are those measured."""

from dataclasses import replace

import pytest
import torch

from course_lib.attention.small_models.training import train
from course_lib.attention.visual.canvas import NOTHING, draw
from course_lib.attention.visual.model import Shape, SmallVLM
from course_lib.attention.visual.training import ENCODER, WEIGHTS, Answering, Namer, Naming, load, right, save
from course_lib.lessons.common.results import load_measured

SHAPE = Shape(width=16, n_heads=2, hidden=24, n_encoder=1, n_decoder=3)


def small(seed=0):
    return SmallVLM(SHAPE, torch.Generator().manual_seed(seed))


def test_a_model_that_knows_nothing_spreads_its_guess():
    """Weights of zero: each of 18 words is as likely, and each of 12 names of a patch."""
    model, canvases = small(), draw(3, "train", 0)
    namer = Namer(model, torch.Generator())
    for weight in namer.parameters():
        weight.data.zero_()
    numbers = torch.arange(3)[:, None]
    torch.testing.assert_close(Answering(canvases)(model, numbers), torch.full((3, 5), 18.0).log())
    torch.testing.assert_close(Naming(canvases)(namer, numbers), torch.full((3, 144), 12.0).log())


def test_a_short_training_names_more_patches_and_repeats_itself():
    canvases, numbers = draw(16, "train", 0), torch.arange(16)
    schedule = replace(ENCODER, n_steps=30, batch=4, warm_up=2)
    losses = []
    for _ in range(2):
        namer = Namer(small(), torch.Generator().manual_seed(1))
        seen = []
        train(namer, numbers, schedule, 0, lambda step, loss, seen=seen: seen.append(loss), Naming(canvases))
        losses.append(seen)
    assert losses[0] == losses[1]
    assert losses[0][-1] < 0.6 * losses[0][0]  # most patches are blank, which is soon learnt


def test_right_counts_answers(monkeypatch):
    """Whoever always says "nothing" is right where a quadrant is empty."""
    canvases = draw(30, "test", 0)

    def says_nothing(images, questions):
        return torch.nn.functional.one_hot(torch.full(questions.shape[:2], NOTHING), 18).float()

    model = small()
    monkeypatch.setattr(model, "forward", says_nothing)
    got = right(model, canvases, size=7)
    assert torch.equal(got, (canvases.answers == NOTHING).float())


def test_what_is_written_comes_back(tmp_path):
    model = small(3)
    path = save(model, tmp_path / "weights" / "small.safetensors")
    assert [each.name for each in path.parent.iterdir()] == ["small.safetensors"]
    back = load(path)
    assert not back.training
    assert back.shape == SHAPE
    for name, weight in model.named_parameters():
        assert torch.equal(back.state_dict()[name], weight.detach().half().float())


def test_a_missing_file_names_the_command(tmp_path):
    with pytest.raises(ValueError, match="course reproduce visual_model"):
        load(tmp_path / "none.safetensors")


def test_the_committed_model_is_the_measured_one():
    """The first 60 canvases of those that it was measured on: the weights are the same bits."""
    (row,) = load_measured("sparse_attention", "visual_model")["tables"]["models"]
    assert WEIGHTS.stat().st_size == row["bytes"] < 5e6
    model = load()
    assert sum(weight.numel() for weight in model.parameters()) == row["parameters"]
    accuracy = right(model, draw(60, "test", 1)).mean().item()
    assert accuracy == pytest.approx(row["accuracy"], abs=0.08)  # three standard errors of 60 canvases
