"""Learning a prompt: peft's losses step by step, finite differences, runs that end and go on, what must not move."""

import copy
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
from prompted_by_hand import ids_of, lively, naive_losses

from course_lib.prompts import training
from course_lib.prompts.initial import from_ids, from_vocabulary
from course_lib.prompts.losses import mean_loss, prompted_window_losses
from course_lib.prompts.prompted import prompting
from course_lib.prompts.recipe import PromptRecipe, rows_of
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.state import STATE, NotFinite
from course_lib.prompts.training import train_prompt

WINDOWS, HELD_OUT = ids_of(7, 12), ids_of(3, 10, seed=8)
RECIPE = PromptRecipe(n_steps=6, batch=2, rate=0.05, warm_up=2, decay=0.01, every=2)


def start(model, n=4):
    return from_vocabulary(model, n, torch.Generator().manual_seed(0))


def learn(model, recipe=RECIPE, **options):
    return train_prompt(model, start(model), WINDOWS, recipe, progress=False, **options)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_every_step_is_that_of_peft(family, padded):
    model = lively(family)
    prompt, recipe = start(model), replace(RECIPE, n_steps=8)
    keep = torch.ones_like(WINDOWS, dtype=torch.bool)
    if padded:
        keep[::2, 7:] = False  # on the right, where peft's positions and ours are the same
    ours = train_prompt(copy.deepcopy(model), prompt, WINDOWS, recipe, keep=keep if padded else None, progress=False)
    settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, prompt_tuning_init="RANDOM")
    theirs = peft.get_peft_model(model, settings).eval()
    weight = theirs.prompt_encoder["default"].embedding.weight
    weight.data.copy_(prompt.vectors)
    optimiser, losses = torch.optim.AdamW([weight], weight_decay=recipe.decay), []
    labels = WINDOWS.masked_fill(~keep, -100)
    labels[:, 0] = -100  # peft would score the first token, behind the prompt
    for step in range(recipe.n_steps):
        rows = rows_of(len(WINDOWS), recipe, step)
        optimiser.param_groups[0]["lr"] = recipe.rate_at(step)
        optimiser.zero_grad()
        loss = theirs(WINDOWS[rows], attention_mask=keep[rows].long(), labels=labels[rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_([weight], recipe.clip)
        optimiser.step()
        losses.append(loss.item())
    assert ours.losses == pytest.approx(losses, abs=1e-5)
    # AdamW divides by the size of the gradient, so that float32's last bits may move a vector by far more than a bit.
    torch.testing.assert_close(ours.prompt.vectors, weight.detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["gpt2", "opt"])  # Llama's norms compute in float32 whatever they read
def test_the_gradient_is_that_of_finite_differences(family):
    model = lively(family).double()
    prompt = from_ids(model, torch.tensor([5, 6]))
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[0, :2] = False

    def loss(vectors):
        with prompting(model, SoftPrompt(vectors=vectors, table=prompt.table)):
            return mean_loss(model, WINDOWS[:2, :6], keep)

    assert torch.autograd.gradcheck(loss, prompt.vectors.double().requires_grad_(), eps=1e-6, atol=1e-6)


def test_the_loss_is_the_mean_over_the_tokens_after_the_first():
    model = lively()
    prompt = start(model)
    rows = rows_of(len(WINDOWS), RECIPE, 0)
    expected = naive_losses(model, prompt.vectors, WINDOWS[rows]).mean().item()
    assert learn(model, replace(RECIPE, n_steps=3)).losses[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2"])  # whose heads are their embeddings, and which has dropout
def test_it_learns_and_nothing_else_moves(family):
    model = lively(family).train()
    first = next(model.parameters()).requires_grad_(False)
    needed = [parameter.requires_grad for parameter in model.parameters()]
    before, prompt = copy.deepcopy(model.state_dict()), start(model)
    copied = prompt.vectors.clone()
    trained = train_prompt(model, prompt, WINDOWS, replace(RECIPE, n_steps=60), progress=False)
    assert sum(trained.losses[-6:]) < 0.9 * sum(trained.losses[:6])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert [parameter.requires_grad for parameter in model.parameters()] == needed
    assert not first.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training
    assert torch.equal(prompt.vectors, copied)
    assert not trained.prompt.vectors.requires_grad
    assert (trained.prompt.vectors - copied).abs().max() > 0.1


def test_looks_are_the_losses_of_held_out_windows():
    model, recipe = lively(), replace(RECIPE, look_every=4)
    trained = learn(model, recipe, held_out=HELD_OUT, origin="tiny, 6 steps")
    assert [look.step for look in trained.looks] == [0, 4, 6]
    for look, prompt in ((trained.looks[0], start(model)), (trained.looks[-1], trained.prompt)):
        expected = prompted_window_losses(model, prompt, HELD_OUT, progress=False).tolist()
        assert list(look.losses) == pytest.approx(expected, abs=1e-6)
        assert look.mean == pytest.approx(sum(expected) / 3)
    assert trained.losses == learn(model).losses  # looking teaches nothing
    assert trained.prompt.origin == "tiny, 6 steps"


def test_rates_by_hand():
    recipe = PromptRecipe(n_steps=6, rate=1.0, warm_up=2)
    assert [recipe.rate_at(step) for step in range(6)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert PromptRecipe(n_steps=2, rate=3.0, warm_up=0).rate_at(0) == 3.0


def test_windows_come_once_each_before_any_comes_again():
    batches = [rows_of(7, RECIPE, step).tolist() for step in range(6)]
    for first in (0, 3):
        assert len({row for batch in batches[first : first + 3] for row in batch}) == 6
    assert batches[:3] != batches[3:]
    assert batches != [rows_of(7, replace(RECIPE, seed=1), step).tolist() for step in range(6)]


@pytest.mark.parametrize("looking", [False, True])
def test_a_run_that_is_interrupted_goes_on_to_the_last_bit(looking, tmp_path, monkeypatch):
    model = lively()
    recipe = replace(RECIPE, look_every=3 * looking)
    options = {"held_out": HELD_OUT} if looking else {}
    once = learn(model, recipe, **options)
    for stop in (0, 3, 4):  # before anything was written, between two states, right after one

        def interrupted(n, recipe, step, stop=stop):
            if step == stop:
                raise KeyboardInterrupt
            return rows_of(n, recipe, step)

        with monkeypatch.context() as patch:
            patch.setattr(training, "rows_of", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learn(model, recipe, folder=tmp_path / str(stop), **options)
        again = learn(model, recipe, folder=tmp_path / str(stop), **options)
        assert again.losses == once.losses
        assert again.looks == once.looks
        assert torch.equal(again.prompt.vectors, once.prompt.vectors)
    assert learn(model, recipe, folder=tmp_path / "4", **options).losses == once.losses  # nothing is left to do


KILLED = """
import os, signal, sys
from pathlib import Path
import test_prompt_training as here
def killing(n, recipe, step):
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return here.rows_of(n, recipe, step)
here.training.rows_of = killing
here.torch.set_num_threads(int(sys.argv[2]))
here.learn(here.lively(), folder=Path(sys.argv[1]))
"""


def test_a_run_that_is_killed_goes_on_to_the_last_bit(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(training.__file__).parents[2])])
    line = [sys.executable, "-c", KILLED, str(tmp_path), str(torch.get_num_threads())]
    killed = subprocess.run(line, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(torch.load(tmp_path / STATE, weights_only=True)["losses"]) == 2
    model = lively()
    once, again = learn(model), learn(model, folder=tmp_path)
    assert again.losses == once.losses
    assert torch.equal(again.prompt.vectors, once.prompt.vectors)


def test_pieces_are_one_run_and_never_go_back(tmp_path):
    model = lively()
    once = learn(model)
    for until in (0, 1, 3, 6, 9):
        part = learn(model, folder=tmp_path, until=until)
        assert part.losses == once.losses[:until]
    assert torch.equal(part.prompt.vectors, once.prompt.vectors)
    with pytest.raises(ValueError, match="until=3, and a run in .* that is at step 6 already"):
        learn(model, folder=tmp_path, until=3)


def test_the_state_of_another_run_is_refused_and_kept(tmp_path):
    model = lively()
    learn(model, folder=tmp_path)
    content = (tmp_path / STATE).read_bytes()
    with pytest.raises(ValueError, match="another recipe"):
        learn(model, replace(RECIPE, seed=1), folder=tmp_path)
    with pytest.raises(ValueError, match="another text"):
        train_prompt(model, start(model), WINDOWS.flip(0), RECIPE, folder=tmp_path, progress=False)
    with pytest.raises(ValueError, match="another first vectors"):
        train_prompt(model, start(model, 3), WINDOWS, RECIPE, folder=tmp_path, progress=False)
    other = copy.deepcopy(model)
    other.config.rms_norm_eps = 0.1  # no weight says so
    with pytest.raises(ValueError, match="another model configuration"):
        learn(other, folder=tmp_path)
    model.model.layers[0].mlp.up_proj.weight.data[0] = 0  # as pruning would
    with pytest.raises(ValueError, match="another model"):
        learn(model, folder=tmp_path)
    assert (tmp_path / STATE).read_bytes() == content
    (tmp_path / STATE).write_bytes(content[:100])
    with pytest.raises(ValueError, match="cannot be read; remove it"):
        learn(model, folder=tmp_path)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_no_number_keeps_the_last_sound_vectors(what, tmp_path):
    model, calls = lively(), []
    sound = learn(model, until=3 if what == "gradient" else 2)
    nan = float("nan")

    def break_it(_, args, output):
        calls.append(0)
        if len(calls) <= 3:
            return None
        if what == "gradient":
            output.register_hook(lambda gradient: gradient * nan)
            return None
        return output * nan

    handle = model.lm_head.register_forward_hook(break_it)
    with pytest.raises(NotFinite, match=f"the {what} of step 4 is nan; .* Lower the rate") as stopped:
        learn(model, folder=tmp_path)
    handle.remove()
    kept = stopped.value.trained
    assert len(kept.losses) == 3
    assert torch.equal(kept.prompt.vectors, sound.prompt.vectors)
    assert len(torch.load(tmp_path / STATE, weights_only=True)["losses"]) == 2
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert len(learn(model, folder=tmp_path).losses) == 6


REFUSED = {
    "too few windows": (lambda m: train_prompt(m, start(m), WINDOWS[:1], RECIPE), "got 1 windows; expected at least 2"),
    "one token": (lambda m: train_prompt(m, start(m), WINDOWS[:, :1], RECIPE), "expected 2 or more"),
    "nothing to look at": (lambda m: learn(m, replace(RECIPE, look_every=1)), "and no held-out windows"),
    "nobody looks": (lambda m: learn(m, held_out=HELD_OUT), "look_every=0 and some held-out windows"),
    "another model": (lambda m: train_prompt(m, start(lively(seed=5)), WINDOWS, RECIPE), "embedding table"),
    "no rate": (lambda m: PromptRecipe(rate=0.0), "got rate 0.0; expected a number above 0"),
    "no end of the warm-up": (lambda m: PromptRecipe(n_steps=3, warm_up=3), "a warm-up that ends"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason):
    attempt, words = REFUSED[reason]
    with pytest.raises(ValueError, match=words):
        attempt(lively())
