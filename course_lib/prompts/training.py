"""Learning a soft prompt: the model stays as it is, the vectors before the text learn. Lester and others, 2021,
https://arxiv.org/abs/2104.08691; of a compressed model, Xu and others, 2023, https://arxiv.org/abs/2305.11186

A run can be killed at any moment; the same call goes on from what is on the disk, with the same losses to the last bit
on the same machine.

Dimension key: N windows to learn from, M held out, L tokens in a window, P vectors, D width.
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
    """min over p of the mean of −log p(x_{i+1} | p, x_1 … x_i); neither the prompt given nor the model changes.

    x_1 is not scored, as in the paper's code: a model without a prompt cannot be asked for it.

    Args:
        prompt: where to begin.
        keep: False for padding.
        held_out: windows to look at every `recipe.look_every` steps, and at the end; they teach nothing.
        folder: where the state of the run is kept; without one nothing can be resumed.
        until: go no further than to this step; the same call with a later one goes on from the folder.
        origin: what the prompt is learned on, in words; it goes with the prompt.

    Raises:
        ValueError: before any step, for windows, a prompt or a state on the disk that do not go together.
        NotFinite: when a loss is NaN or infinite, or its gradient.
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
    """No step taken yet; the prompt given stays as it is."""
    vectors = prompt.vectors.detach().to(model.device, torch.float32).clone().requires_grad_()
    optimiser = torch.optim.AdamW([vectors], lr=recipe.rate, weight_decay=recipe.decay)
    return Run(vectors, optimiser, vectors.detach().clone())


def descend(run: Run, recipe: PromptRecipe, learning: SoftPrompt, loss_of: Callable[[], Float[Tensor, ""]]) -> None:
    """One batch: its loss, with a gradient for the run's vectors, and a step of AdamW.

    Raises:
        NotFinite: when the loss is NaN or infinite, or its gradient.
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
    """No weight learns, and dropout is off; on exit each learns again that did before."""
    needed, training = {weight: weight.requires_grad for weight in model.parameters()}, model.training
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        for weight, need in needed.items():
            weight.requires_grad_(need)
        model.train(training)


def _end(run: Run, recipe: PromptRecipe, until: int | None, path: Path | None) -> int:
    """The step before which to stop."""
    if until is not None and until < len(run.losses):
        raise ValueError(
            f"got until={until}, and a run in {path.parent} that is at step {len(run.losses)} already; expected a "
            "later step. Use another folder to start again."
        )
    return recipe.n_steps if until is None else min(until, recipe.n_steps)
