"""Prompt tuning: the model is frozen, and the vectors before the text are trained. Lester and others, 2021,
https://arxiv.org/abs/2104.08691; for compressed models, Xu and others, 2023, https://arxiv.org/abs/2305.11186

A run can be killed at any moment. The same call resumes from the stored state, and on the same machine its losses are
the same to the last bit.

Dimension key: N training windows, M held-out windows, L tokens in a window, P vectors, D width.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.perplexity import window_losses
from course_lib.measure.progress import tracked
from course_lib.prompts.losses import mean_loss
from course_lib.prompts.prompted import prompting
from course_lib.prompts.recipe import PromptRecipe, check, identity, rows_of
from course_lib.prompts.soft import SoftPrompt
from course_lib.prompts.state import STATE, Look, NotFinite, Run, Trained
from course_lib.settings import check_stop


def train_prompt(
    model: PreTrainedModel,
    prompt: SoftPrompt,
    windows: Int[Tensor, "N L"],
    recipe: PromptRecipe | None = None,
    *,
    keep: Bool[Tensor, "N L"] | None = None,
    held_out: Int[Tensor, "M K"] | None = None,
    folder: Path | None = None,
    until: int | None = None,
    origin: str = "",
    progress: bool = True,
) -> Trained:
    """Minimise the mean of −log p(x_{i+1} | p, x_1 … x_i) over p; `prompt` and the model do not change.

    As in the paper's code, x_1 has no loss: a model without a prompt cannot predict it.

    Args:
        prompt: the initial vectors.
        keep: False for padding.
        held_out: windows for evaluation, every `recipe.look_every` steps and at the end; they are not trained on.
        folder: where the state of the run is stored; without a folder a run cannot be resumed.
        until: stop at this step; the same call with a later step resumes from the folder.
        origin: a description of the training data, which is stored in the prompt.

    Raises:
        ValueError: before the first step, if windows, prompt, model and stored state do not fit each other.
        NotFinite: if a loss or its gradient is NaN or infinite.
    """
    recipe = recipe or PromptRecipe()
    check_stop(until, folder)
    check(model, windows, recipe, keep, held_out)
    prompt.check(model)
    run = begin(model, prompt, recipe)
    path = folder and Path(folder) / STATE
    known = identity(model, prompt, recipe, {"text": windows, "keep": keep, "held-out text": held_out}) if path else {}
    if path:
        run.resume(path, known)
    end = _end(run, recipe, until, path)
    learning = SoftPrompt(vectors=run.vectors, table=prompt.table, origin=origin)
    with frozen(model), prompting(model, learning):
        for step in tracked(range(len(run.losses), end), "learning a prompt", progress):
            if recipe.look_every and step % recipe.look_every == 0:
                _look(model, run, held_out)
            rows = rows_of(len(windows), recipe, step)
            ids, real = (None if text is None else text[rows].to(model.device) for text in (windows, keep))
            descend(run, recipe, learning, partial(mean_loss, model, ids, real))
            if path and (len(run.losses) % recipe.every == 0 or step + 1 == end):
                run.save(path, known)
        if recipe.look_every and end == recipe.n_steps:
            _look(model, run, held_out)
    return run.trained(run.vectors, learning)


def begin(model: PreTrainedModel, prompt: SoftPrompt, recipe: PromptRecipe) -> Run:
    """Return a run before its first step; it trains a copy of the prompt."""
    vectors = prompt.vectors.detach().to(model.device, torch.float32).clone().requires_grad_()
    optimiser = torch.optim.AdamW([vectors], lr=recipe.rate, weight_decay=recipe.decay)
    return Run(vectors, optimiser, vectors.detach().clone())


def descend(run: Run, recipe: PromptRecipe, learning: SoftPrompt, loss_of: Callable[[], Float[Tensor, ""]]) -> None:
    """Compute the loss of one batch and its gradient, and take a step of AdamW.

    Raises:
        NotFinite: if the loss or its gradient is NaN or infinite.
    """
    run.optimiser.param_groups[0]["lr"] = recipe.rate_at(len(run.losses))
    run.optimiser.zero_grad()
    loss = loss_of()
    _must_be_finite("loss", loss, run, learning)
    run.sound = run.vectors.detach().clone()
    loss.backward()
    length = torch.nn.utils.clip_grad_norm_([run.vectors], recipe.clip)
    _must_be_finite("gradient", length, run, learning)
    run.optimiser.step()
    run.losses.append(loss.item())


def _must_be_finite(what: str, value: Tensor, run: Run, learning: SoftPrompt) -> None:
    if not math.isfinite(number := value.item()):
        rate = run.optimiser.param_groups[0]["lr"]
        raise NotFinite(
            f"the {what} of step {len(run.losses) + 1} is {number}; the vectors of the last loss that was a number are "
            f"in this error's `trained`. Lower the rate ({rate:g}), or look for NaN in the model's weights.",
            run.trained(run.sound, learning),
        )


def _look(model: PreTrainedModel, run: Run, held_out: Tensor) -> None:
    if not run.looks or run.looks[-1].step != len(run.losses):
        losses = window_losses(model, held_out, progress=False)
        run.looks.append(Look(len(run.losses), tuple(losses.tolist())))


@contextmanager
def frozen(model: PreTrainedModel) -> Iterator[None]:
    """Freeze all weights and turn dropout off; on exit both are as before."""
    needed, training = {weight: weight.requires_grad for weight in model.parameters()}, model.training
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        for weight, need in needed.items():
            weight.requires_grad_(need)
        model.train(training)


def _end(run: Run, recipe: PromptRecipe, until: int | None, path: Path | None) -> int:
    """Return the step before which the run stops."""
    if until is not None and until < len(run.losses):
        raise ValueError(
            f"got until={until}, and a run in {path.parent} that is at step {len(run.losses)} already; expected a "
            "later step. Use another folder to start again."
        )
    return recipe.n_steps if until is None else min(until, recipe.n_steps)
