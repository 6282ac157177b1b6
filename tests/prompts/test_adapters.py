"""LoRA beside prompts: the model is as before, begins where it was, and learns on the same text in the same order."""

import pytest
import torch
from peft import LoraConfig
from prompted_by_hand import ids_of, lively

from course_lib.measure.perplexity import window_losses
from course_lib.prompts.adapters import adapted, train_adapters
from course_lib.prompts.losses import mean_loss
from course_lib.prompts.recipe import PromptRecipe, rows_of

SETTINGS = LoraConfig(r=2, lora_alpha=4, target_modules="all-linear")
RECIPE = PromptRecipe(n_steps=8, batch=2, rate=2e-2, warm_up=1)


def test_nothing_is_left_behind_and_something_was_learned():
    model, ids = lively(), ids_of(6, 11)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    alone = window_losses(model, ids, progress=False)
    with adapted(model, SETTINGS) as learning:
        torch.testing.assert_close(window_losses(model, ids, progress=False), alone)  # B begins at zero
        losses = train_adapters(model, learning, ids, RECIPE, progress=False)
        learned = window_losses(model, ids, progress=False)
    assert len(losses) == 8
    assert learned.mean() < alone.mean() - 0.05
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_first_loss_is_that_of_the_first_batch():
    model, ids = lively(), ids_of(6, 11)
    with torch.no_grad():
        expected = mean_loss(model, ids[rows_of(len(ids), RECIPE, 0)], None).item()
    with adapted(model, SETTINGS) as learning:
        assert train_adapters(model, learning, ids, RECIPE, progress=False)[0] == pytest.approx(expected, abs=1e-6)


def test_seeds_and_numbers():
    model, ids = lively(), ids_of(4, 9)
    sizes = [weight.shape for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    runs = []
    for seed in (0, 0, 1):
        with adapted(model, SETTINGS, seed) as learning:
            inside = sum(sum(shape) for shape in sizes if 97 not in shape)
            assert sum(parameter.numel() for parameter in learning) == 2 * inside
            runs.append(train_adapters(model, learning, ids, RECIPE, progress=False))
    assert runs[0] == runs[1] != runs[2]


def test_what_cannot_learn_is_refused():
    with pytest.raises(ValueError, match="got nothing that learns"):
        train_adapters(lively(), [], ids_of(4, 9), RECIPE, progress=False)
    with pytest.raises(ValueError, match="at least 2, one batch"):
        train_adapters(lively(), list(lively().parameters()), ids_of(1, 9), RECIPE, progress=False)
