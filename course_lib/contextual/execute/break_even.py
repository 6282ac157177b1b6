"""The density from which on all neurons are computed faster than chosen ones, measured where the model runs.

Dimension key: D width, F neurons, K chosen neurons.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.contextual.execute.gathered import by_bag, dense
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.selector import check_density, n_kept

DENSITIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


@dataclass(frozen=True, eq=False)
class SparseMLP:
    """One block's MLP for one token: gathered up to the break-even density, dense above it.

    Above it all neurons count, also those that were not chosen: that costs less, and nothing is lost.
    """

    weights: NeuronMajor
    break_even: float

    @classmethod
    def measured(cls, weights: NeuronMajor, repetitions: int = 15) -> Self:
        """Fit for this machine as it is now."""
        return cls(weights, break_even(weights, repetitions=repetitions))

    def __call__(self, x: Float[Tensor, "*tokens D"], index: Int[Tensor, "K"] | None) -> Float[Tensor, "*tokens D"]:
        """The output of one token; each chosen neuron stands in the index once, and None stands for all.

        Raises:
            ValueError: for more than one token.
        """
        if x.numel() != self.weights.width:
            n = x.numel() // self.weights.width
            raise ValueError(
                f"got x of shape {tuple(x.shape)}, a batch of {n}; expected one token of {self.weights.width}: tokens "
                "choose different neurons. Compute them one by one, or with gathered_union (execute/union.py)."
            )
        row = x.reshape(-1)
        if index is None or len(index) > self.break_even * self.weights.n:
            return dense(row, self.weights).view(x.shape)
        return by_bag(row, self.weights, index).view(x.shape)


def break_even(
    weights: NeuronMajor,
    densities: Sequence[float] = DENSITIES,
    repetitions: int = 15,
    seconds: Callable[[Callable[[], Tensor]], float] | None = None,
) -> float:
    """The largest of the densities up to which gathering is the faster; 0 where it is at none.

    Args:
        seconds: how long a call takes; the clock of the processor when None.

    Raises:
        ValueError: densities that are none, or no repetition.
    """
    for density in densities:
        check_density(density)
    if not densities or repetitions < 1:
        raise ValueError(f"got {len(densities)} densities and {repetitions} repetitions; expected one or more of each.")
    generator, pays = torch.Generator().manual_seed(0), 0.0
    for density in sorted(densities):
        if _ratio(weights, density, repetitions, generator, seconds or _seconds) < 1:
            break
        pays = density
    return pays


def _ratio(
    weights: NeuronMajor,
    density: float,
    repetitions: int,
    generator: torch.Generator,
    seconds: Callable[[Callable[[], Tensor]], float],
) -> float:
    """Seconds of all neurons over those of chosen ones, the sides in turn, the median of the pairs."""
    x = torch.randn(weights.width, generator=generator).to(weights.up)
    order = torch.randperm(weights.n, generator=generator).to(weights.up.device)
    index = order[: n_kept(density, weights.n)]
    pairs = []
    with torch.inference_mode():
        for _ in range(repetitions + 1):
            pairs.append(seconds(lambda: dense(x, weights)) / seconds(lambda: by_bag(x, weights, index)))
    return median(pairs[1:] or pairs)  # the first pair warms up


def _seconds(run: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    run()
    return max(time.perf_counter() - start, 1e-9)
