"""Transfer of soft prompts between compressed models. Xu and others, Compress, then prompt, 2023,
https://arxiv.org/abs/2305.11186

Dimension key: N windows, L tokens in a window.
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
    """A ratio of two quantities on the same windows, and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Cell:
    """One prompt on one model: the mean loss of each window without the prompt and with it, in nats per token."""

    model: str
    prompt: str
    base: tuple[float, ...] = field(repr=False)
    prompted: tuple[float, ...] = field(repr=False)

    @property
    def ratio(self) -> Ratio:
        """Perplexity with the prompt over perplexity without it. Below 1 the prompt helps."""
        return paired_ratio(self.prompted, self.base)


def transfer_grid(
    models: Iterable[tuple[str, PreTrainedModel]],
    prompts: Mapping[str, SoftPrompt],
    windows: Int[Tensor, "N L"],
    progress: bool = True,
) -> list[Cell]:
    """Evaluate every prompt on every model, on the same windows.

    Args:
        models: pairs of name and model. They are consumed one at a time, so a generator may load each on demand.
        prompts: prompts by name. They may come from another text or task than the windows.

    Raises:
        ValueError: there are no prompts, or a prompt does not fit a model (found before that model is evaluated).
    """
    if not prompts:
        raise ValueError("got no prompts; expected at least one, by name.")
    cells = []
    for name, model in models:
        for prompt in prompts.values():
            prompt.check(model)
        base_losses = prompted_window_losses(model, None, windows, progress=progress).tolist()
        for prompt_name, prompt in prompts.items():
            prompted_losses = prompted_window_losses(model, prompt, windows, progress=progress).tolist()
            cells.append(Cell(name, prompt_name, tuple(base_losses), tuple(prompted_losses)))
    return cells


def paired_ratio(prompted: Losses, base: Losses) -> Ratio:
    """Compute exp(mean_n(prompted_n − base_n)), with its standard error value · s / √N by the delta method.

    s is the standard deviation of the differences. Taking differences per window removes the variation in difficulty
    between windows. A ratio of mean perplexities would not be paired, and the hardest windows would dominate it.
    """
    prompted, base = _same_windows(prompted, base)
    mean, error = mean_and_error(prompted - base)
    return Ratio(math.exp(mean), math.exp(mean) * error)


def share_of_gain(
    transferred: Losses, own: Losses, base: Losses, control: tuple[Losses, Losses] | None = None
) -> Ratio:
    """Compute mean(base − transferred) / mean(base − own): the gain of a transferred prompt relative to the own one.

    If the own prompt's gain is at most two standard errors, the ratio is undefined: NaN, with an infinite error.

    Args:
        transferred: losses with the prompt of another model.
        own: losses with the prompt that was trained on this model.
        base: losses without a prompt.
        control: the dense model's losses without a prompt and with its own prompt. Their difference, the gain of a
            prompt without compression, is subtracted from both gains. A ratio of 0 then means that the transferred
            prompt gains no more than a prompt gains on the dense model.
    """
    foreign_gain, own_gain = gains_beyond(transferred, own, base, control)
    gain, error = mean_and_error(own_gain)
    return share(foreign_gain, own_gain) if gain > 2 * error else Ratio(math.nan, math.inf)


def gains_beyond(
    transferred: Losses, own: Losses, base: Losses, control: tuple[Losses, Losses] | None = None
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Return the gain of the transferred and of the own prompt per window, minus the control's gain."""
    pairs = [_same_windows(base, losses) for losses in (transferred, own, *(control or (base, base)))]
    (base, transferred), (_, own), (_, dense), (_, prompted_dense) = pairs
    control_gain = dense - prompted_dense  # zeros without a control
    return base - transferred - control_gain, base - own - control_gain


def share(foreign_gain: Float[Tensor, "N"], own_gain: Float[Tensor, "N"]) -> Ratio:
    """Compute the ratio r = mean(a) / mean(b) of paired gains a (transferred) and b (own).

    Its standard error by the delta method is s(a − r b) / (√N |mean(b)|), with s the standard deviation over windows.
    """
    gain = own_gain.mean().item()
    value = foreign_gain.mean().item() / gain
    return Ratio(value, mean_and_error(foreign_gain - value * own_gain)[1] / abs(gain))


def _same_windows(one: Losses, other: Losses) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    one, other = (torch.as_tensor(losses, dtype=torch.float64) for losses in (one, other))
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(
            f"got losses of shapes {tuple(one.shape)} and {tuple(other.shape)}; expected losses of the same windows."
        )
    return one, other
