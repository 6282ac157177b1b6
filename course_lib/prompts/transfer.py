"""What a prompt learned on one compressed model is worth on others. Xu and others, 2023,
https://arxiv.org/abs/2305.11186

Dimension key: N windows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.paired import mean_and_error
from course_lib.prompts.losses import prompted_window_losses
from course_lib.prompts.soft import SoftPrompt

Losses = Float[Tensor, "N"] | Sequence[float]


@dataclass(frozen=True)
class Ratio:
    """A ratio and its standard error, both of the same windows."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Cell:
    """One prompt on one model: the mean loss of each window, with the prompt and without, in nats a token."""

    model: str
    prompt: str
    base: tuple[float, ...] = field(repr=False)
    prompted: tuple[float, ...] = field(repr=False)

    @property
    def ratio(self) -> Ratio:
        """Of perplexities; below 1 the prompt helps."""
        return paired_ratio(self.prompted, self.base)


def transfer_grid(
    models: Iterable[tuple[str, PreTrainedModel]],
    prompts: Mapping[str, SoftPrompt],
    windows: Int[Tensor, "N L"],
    progress: bool = True,
) -> list[Cell]:
    """Every prompt on every model, on the same windows; prompts of another text or task are prompts like others.

    Args:
        models: names and models, taken one at a time, so that a generator may load each when its turn comes.

    Raises:
        ValueError: no prompts, or one that is not for one of the models, before anything of that model is measured.
    """
    if not prompts:
        raise ValueError("got no prompts; expected at least one, by its name.")
    cells = []
    for name, model in models:
        for prompt in prompts.values():
            prompt.check(model)
        base = prompted_window_losses(model, None, windows, progress=progress).tolist()
        for of_prompt, prompt in prompts.items():
            prompted = prompted_window_losses(model, prompt, windows, progress=progress).tolist()
            cells.append(Cell(name, of_prompt, tuple(base), tuple(prompted)))
    return cells


def paired_ratio(prompted: Losses, base: Losses) -> Ratio:
    """exp(mean of differences of window losses), its error by the delta method: value · s / √N.

    How hard a window is drops out of the difference. The ratio of two means of perplexities has no such pairs, and is
    one of the hardest windows alone.
    """
    prompted, base = _same_windows(prompted, base)
    mean, error = mean_and_error(prompted - base)
    return Ratio(math.exp(mean), math.exp(mean) * error)


def share_of_gain(transferred: Losses, own: Losses, base: Losses) -> Ratio:
    """mean(base − transferred) / mean(base − own): how much of what a model's own prompt gains a foreign one does.

    The error is that of a ratio of paired means: that of transferred − own, with gains in place of losses, weighted by
    the ratio, over the own gain. Of a gain that may be nothing no share can be told: then the value is NaN, and the
    error infinite.
    """
    transferred, base_of_it = _same_windows(transferred, base)
    own, base = _same_windows(own, base)
    foreign_gain, own_gain = base_of_it - transferred, base - own
    gain, error = mean_and_error(own_gain)
    if not gain > 2 * error:
        return Ratio(math.nan, math.inf)
    share = foreign_gain.mean().item() / gain
    return Ratio(share, mean_and_error(foreign_gain - share * own_gain)[1] / gain)


def _same_windows(one: Losses, other: Losses) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    one, other = (torch.as_tensor(losses, dtype=torch.float64) for losses in (one, other))
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(
            f"got losses of shapes {tuple(one.shape)} and {tuple(other.shape)}; expected those of the same windows."
        )
    return one, other
