"""The settings of prompt tuning, the order of the windows, and the settings that a resumed run has to share.

Dimension key: N windows, B of them in a batch, P vectors, D width.
"""

import hashlib
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.prompts.losses import check_windows
from course_lib.prompts.soft import SoftPrompt
from course_lib.repetition import digest_of, settings_of
from course_lib.settings import check_count, check_number, check_seed


@dataclass(frozen=True, kw_only=True)
class PromptRecipe:
    """AdamW with a learning rate that rises over `warm_up` steps and then falls linearly to zero after the last step.

    Deviation: the paper's code sums the loss over the tokens of a text and clips its gradient to norm 1; here the loss
    is the mean over tokens, whose gradient is much smaller. AdamW itself is invariant to this factor.

    Args:
        decay: AdamW's weight decay of the vectors; the paper's code has none for the prompt.
        clip: the maximum norm of the gradient.
        every: number of steps between two stored states.
        look_every: number of steps between two evaluations on held-out windows; 0 for none.
    """

    n_steps: int = 100
    batch: int = 4
    rate: float = 3e-2
    warm_up: int = 10
    decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    every: int = 10
    look_every: int = 0

    def __post_init__(self) -> None:
        for name in ("n_steps", "batch", "every"):
            check_count(name, getattr(self, name))
        for name in ("warm_up", "look_every"):
            check_count(name, getattr(self, name), least=0)
        for name in ("rate", "clip"):
            check_number(name, getattr(self, name), above=True)
        check_number("decay", self.decay)
        check_seed("seed", self.seed)
        if self.warm_up >= self.n_steps:
            raise ValueError(f"got {self}; expected a warm-up that ends, after at most n_steps - 1 steps.")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0; the last step of the warm-up has the full rate.

        Deviation: the paper's code starts with a rate of 0, so that its first step changes nothing.
        """
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        return self.rate * (self.n_steps - step) / (self.n_steps - self.warm_up)


def rows_of(n_windows: int, recipe: PromptRecipe, step: int) -> Int[Tensor, "B"]:
    """Return the windows of a step: every window is used once per epoch, in a new random order in each epoch."""
    epoch, place = divmod(step, n_windows // recipe.batch)
    order = torch.randperm(n_windows, generator=torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch))
    return order[place * recipe.batch : (place + 1) * recipe.batch]


def identity(
    model: PreTrainedModel,
    prompt: SoftPrompt,
    recipe: PromptRecipe,
    text: dict[str, Tensor | None],
) -> dict[str, str]:
    """Return digests of everything that has to be the same when a run is resumed."""
    return {
        "model": digest_of(model.state_dict().items()),
        "model configuration": settings_of(model),
        "first vectors": digest_of([("vectors", prompt.vectors)]),
        "recipe": hashlib.sha256(repr(asdict(recipe) | {"every": 0}).encode()).hexdigest()[:16],
    } | {name: digest_of([] if ids is None else [(name, ids)]) for name, ids in text.items()}


def check(
    model: PreTrainedModel, windows: Tensor, recipe: PromptRecipe, keep: Tensor | None, held_out: Tensor | None
) -> None:
    """Raise ValueError for windows that cannot be used for training."""
    check_windows(model, windows, keep)
    if len(windows) < recipe.batch:
        raise ValueError(f"got {len(windows)} windows; expected at least {recipe.batch}, one batch.")
    if (held_out is not None) != bool(recipe.look_every):
        raise ValueError(
            f"got look_every={recipe.look_every} and {'no' if held_out is None else 'some'} held-out windows; expected "
            "both, or neither."
        )
    if held_out is not None:
        check_windows(model, held_out)
