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


def share_of_gain(
    transferred: Losses, own: Losses, base: Losses, control: tuple[Losses, Losses] | None = None
) -> Ratio:
    """mean(base − transferred) / mean(base − own): how much of what a model's own prompt gains a foreign one does.

    Of a gain that may be nothing no share can be told: then the value is NaN, and the error infinite.

    Args:
        control: the dense model's losses without a prompt and with its own. What that gains is taken off both gains:
            a share of 0 is then no better than a prompt does for any model.
    """
    foreign_gain, own_gain = gains_beyond(transferred, own, base, control)
    gain, error = mean_and_error(own_gain)
    return share(foreign_gain, own_gain) if gain > 2 * error else Ratio(math.nan, math.inf)


def gains_beyond(
    transferred: Losses, own: Losses, base: Losses, control: tuple[Losses, Losses] | None = None
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """What the foreign and the own prompt gain in each window, less what the control does."""
    of_all = [_same_windows(base, losses) for losses in (transferred, own, *(control or (base, base)))]
    (base, transferred), (_, own), (_, dense), (_, prompted_dense) = of_all
    any_model = dense - prompted_dense
    return base - transferred - any_model, base - own - any_model


def share(foreign_gain: Float[Tensor, "N"], own_gain: Float[Tensor, "N"]) -> Ratio:
    """mean(a) / mean(b), its error that of a ratio of paired means: s(a − share · b) / (√N |mean(b)|)."""
    gain = own_gain.mean().item()
    value = foreign_gain.mean().item() / gain
    return Ratio(value, mean_and_error(foreign_gain - value * own_gain)[1] / abs(gain))


def _same_windows(one: Losses, other: Losses) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    one, other = (torch.as_tensor(losses, dtype=torch.float64) for losses in (one, other))
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(
            f"got losses of shapes {tuple(one.shape)} and {tuple(other.shape)}; expected those of the same windows."
        )
    return one, other
