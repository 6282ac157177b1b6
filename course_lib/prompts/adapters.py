"""LoRA, an alternative to prompt tuning: low-rank matrices are trained and the linears are frozen. Hu and others, 2021,
https://arxiv.org/abs/2106.09685. The layers are from peft; text, order and schedule are the same as for a prompt.

Dimension key: N windows, L tokens in a window.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Int
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.measure.progress import tracked
from course_lib.prompts.losses import mean_loss
from course_lib.prompts.recipe import PromptRecipe, check, rows_of
from course_lib.repetition import seeded, seeded_step


@contextmanager
def adapted(model: PreTrainedModel, settings: LoraConfig, seed: int = 0) -> Iterator[list[nn.Parameter]]:
    """Add adapters to the model inside the `with` block and yield their parameters; on exit the model is as before."""
    needed = {parameter: parameter.requires_grad for parameter in model.parameters()}
    with seeded(seed):
        outer = get_peft_model(model, settings)
    try:
        yield [parameter for parameter in model.parameters() if parameter.requires_grad]
    finally:
        outer.unload()
        for parameter, need in needed.items():
            parameter.requires_grad_(need)


def train_adapters(
    model: PreTrainedModel,
    learning: list[nn.Parameter],
    windows: Int[Tensor, "N L"],
    recipe: PromptRecipe,
    progress: bool = True,
) -> list[float]:
    """Train the adapters and return the loss before each step, with the windows, order and rate of `train_prompt`.

    Raises:
        ValueError: before the first step, if the windows cannot be used for training or no parameter is trainable.
    """
    check(model, windows, recipe, None, None)
    if not learning:
        raise ValueError("got nothing that learns; expected the numbers of adapters, as `adapted` gives them.")
    optimiser, losses = torch.optim.AdamW(learning, lr=recipe.rate, weight_decay=recipe.decay), []
    for step in tracked(range(recipe.n_steps), "learning adapters", progress):
        optimiser.param_groups[0]["lr"] = recipe.rate_at(step)
        optimiser.zero_grad()
        with seeded_step(recipe.seed, step):  # dropout of the model or the adapters
            loss = mean_loss(model, windows[rows_of(len(windows), recipe, step)].to(model.device), None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, recipe.clip)
        optimiser.step()
        losses.append(loss.item())
    return losses
