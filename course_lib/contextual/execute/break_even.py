"""Measure on this machine which way of gathering is fastest, and above which density the dense MLP is faster.

Dimension key: D width, F neurons, K chosen neurons.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.contextual.execute.gathered import by_bag, by_bundle, by_rows, by_samples, dense
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.on_kernels import chosen_mlp
from course_lib.contextual.execute.products import SAMPLED
from course_lib.contextual.selector import check_density, n_kept

DENSITIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
Gather = Callable[[Tensor, NeuronMajor, Tensor], Tensor]  # x, weights, chosen neurons -> the output
WAYS: tuple[Gather, ...] = (by_bag, by_rows, by_bundle, by_samples)


def ways_for(dtype: torch.dtype) -> tuple[Gather, ...]:
    """Return the ways of gathering that torch supports for this data type."""
    return WAYS if dtype in SAMPLED else tuple(way for way in WAYS if way is not by_samples)


@dataclass(frozen=True, eq=False)
class SparseMLP:
    """One block's MLP for one token: gathered up to the break-even density, dense above it.

    Above it the sum contains all neurons, also those that were not chosen: this takes less time and loses nothing.
    """

    weights: NeuronMajor
    break_even: float
    gather: Gather = by_bag

    @classmethod
    def measured(cls, weights: NeuronMajor, repetitions: int = 15) -> "SparseMLP":
        """Choose the way of gathering and the break-even density by measurements on this machine."""
        gather = fastest(weights, repetitions=repetitions)
        return cls(weights, break_even(weights, repetitions=repetitions, gather=gather), gather)

    def __call__(self, x: Float[Tensor, "*tokens D"], index: Int[Tensor, "K"] | None) -> Float[Tensor, "*tokens D"]:
        """Return the output for one token. The index has each chosen neuron once; None means all neurons.

        Raises:
            ValueError: there is more than one token.
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
        if (y := chosen_mlp(row[None], self.weights, index[None].int())) is not None:
            return y.view(x.shape)
        return self.gather(row, self.weights, index).view(x.shape)


def fastest(
    weights: NeuronMajor,
    density: float = 0.1,
    repetitions: int = 15,
    seconds: Callable[[Callable[[], Tensor]], float] | None = None,
) -> Gather:
    """Return the way of gathering with the lowest median time at this density; caches decide which one it is.

    `by_samples` is left out in half precision because torch does not support it.

    Raises:
        ValueError: the density is outside (0, 1], or there is no repetition.
    """
    check_density(density)
    if repetitions < 1:
        raise ValueError(f"got {repetitions} repetitions; expected one or more.")
    clock, (x, index) = seconds or _seconds, _example(weights, density, torch.Generator().manual_seed(0))
    took: dict[Gather, list[float]] = {way: [] for way in ways_for(weights.up.dtype)}
    with torch.inference_mode():
        for _ in range(repetitions + 1):
            for way, times in took.items():
                times.append(clock(partial(way, x, weights, index)))
    return min(took, key=lambda way: median(took[way][1:]))  # the first turn warms up


def break_even(
    weights: NeuronMajor,
    densities: Sequence[float] = DENSITIES,
    repetitions: int = 15,
    seconds: Callable[[Callable[[], Tensor]], float] | None = None,
    gather: Gather = by_bag,
) -> float:
    """Return the largest of the densities up to which gathering is faster than all neurons, or 0 if there is none.

    Args:
        seconds: measures the time of a call; the processor's timer if None.
        gather: the way to compute the chosen neurons.

    Raises:
        ValueError: a density is outside (0, 1], or there is no repetition.
    """
    for density in densities:
        check_density(density)
    if not densities or repetitions < 1:
        raise ValueError(f"got {len(densities)} densities and {repetitions} repetitions; expected one or more of each.")
    generator, pays = torch.Generator().manual_seed(0), 0.0
    for density in sorted(densities):
        example = _example(weights, density, generator)
        if _ratio(weights, example, repetitions, gather, seconds or _seconds) < 1:
            break
        pays = density
    return pays


def _ratio(
    weights: NeuronMajor,
    example: tuple[Tensor, Tensor],
    repetitions: int,
    gather: Gather,
    seconds: Callable[[Callable[[], Tensor]], float],
) -> float:
    """Return the median over pairs of (seconds with all neurons) / (seconds with chosen neurons), measured in turn."""
    (x, index), pairs = example, []
    with torch.inference_mode():
        for _ in range(repetitions + 1):
            pairs.append(seconds(lambda: dense(x, weights)) / seconds(lambda: gather(x, weights, index)))
    return median(pairs[1:] or pairs)  # the first pair warms up


def _example(weights: NeuronMajor, density: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random x of a token and random chosen neurons."""
    x = torch.randn(weights.width, generator=generator).to(weights.up)
    order = torch.randperm(weights.n, generator=generator).to(weights.up.device)
    return x, order[: n_kept(density, weights.n)]


def _seconds(run: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    run()
    return max(time.perf_counter() - start, 1e-9)
