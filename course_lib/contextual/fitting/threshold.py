"""Thresholds instead of fixed counts: a token keeps all values above a number that was fitted to calibration text.

A threshold needs no sorting, and the number of kept values differs per token, so the density holds only on average.

Dimension key: L blocks (or other places), Q levels, T tokens, F neurons, n windows of N tokens.
"""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.seen import look_through
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.contextual.sizes import sizes_of

LEVELS = 1001  # so that a density is met to a thousandth, and any density can be asked for later
DRAWN = 16384  # values of each window at each place: 16 windows put a quantile's error at a thousandth


class Sample:
    """A random sample of values, with the same number from each window, so that all windows have equal weight."""

    def __init__(self, seed: int) -> None:
        self._generator, self._drawn = torch.Generator().manual_seed(seed), []

    def add(self, values: Float[Tensor, "*any"]) -> None:
        """Sample from one window."""
        place = torch.randint(values.numel(), (DRAWN,), generator=self._generator)
        self._drawn.append(values.detach().reshape(-1)[place.to(values.device)].float().cpu())

    def quantiles(self) -> Float[Tensor, "Q"]:
        """Return the values that are above 0, 1/1000, ..., 1000/1000 of the sample."""
        ordered = torch.cat(self._drawn).sort().values
        return ordered[torch.linspace(0, len(ordered) - 1, LEVELS).round().long()]


def threshold_at(quantiles: Float[Tensor, "Q"], density: float) -> float:
    """Return the value that a fraction `density` exceeds: the (1 − density)-quantile, interpolated; −∞ if it is 1."""
    if density == 1:
        return -torch.inf
    place = (1 - density) * (len(quantiles) - 1)
    low = int(place)
    return torch.lerp(quantiles[low], quantiles[low + 1], place - low).item()


def check_quantiles(quantiles: Float[Tensor, "L Q"]) -> None:
    """Raise ValueError unless `quantiles` is a table of numbers without NaN that do not decrease."""
    if not isinstance(quantiles, Tensor) or quantiles.ndim != 2 or not quantiles.is_floating_point():
        what = f"{tuple(quantiles.shape)} {quantiles.dtype}" if isinstance(quantiles, Tensor) else repr(quantiles)
        raise ValueError(f"got quantiles {what}; expected floats (places, levels), as fit(model, calibration) returns.")
    if bool(quantiles.isnan().any()) or bool((quantiles.diff(dim=-1) < 0).any()):
        raise ValueError(
            f"got quantiles of which {int(quantiles.isnan().sum())} are NaN and "
            f"{int((quantiles.diff(dim=-1) < 0).sum())} fall; expected rising numbers, as fitting gives them. Look for "
            "NaN in the activations of the calibration text."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ThresholdSelector(NeuronSelector):
    """Keep neurons with score > the block's threshold, the (1 − density)-quantile of the scores of calibration tokens.

    If more than a fraction 1 − density of the scores is zero, as after ReLU, all zeros are skipped, so fewer neurons
    than `density` are kept and nothing is lost. At density 1 all neurons are kept.
    """

    quantiles: Float[Tensor, "L Q"] | None = field(default=None, repr=False)

    counts_exactly: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantiles is not None:
            check_quantiles(self.quantiles)

    @abstractmethod
    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        """Compute the score with a formula that needs no fitted tensors."""

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        samples = [Sample(seed=block) for block in range(sizes_of(model).n_blocks)]
        look_through(model, calibration, lambda block, seen: samples[block].add(self._score(seen, block)))
        return replace(self, quantiles=torch.stack([sample.quantiles() for sample in samples]))

    def keep(self, seen: Seen, block: int) -> Bool[Tensor, "T F"]:
        self.fitted(self.quantiles)
        return self.score(seen, block) > threshold_at(self.quantiles[block], self.density_at(block))
