"""Bayesian optimisation: where to try next, when every try is expensive. Snoek, Larochelle, Adams, 2012,
https://arxiv.org/abs/1206.2944

Dimension key: M points, D settings.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

PROPOSALS = 512  # random points among which the best expected improvement is looked for

Point = tuple[float, ...]  # in the unit cube


class Trial(NamedTuple):
    """A point, and what it gave."""

    point: Point
    value: float


def maximise(
    objective: Callable[[Point], float], first: Sequence[Point], n_first: int, n_steps: int, seed: int
) -> list[Trial]:
    """All points that were tried, in order: those given, a Sobol sequence, then the best expected improvement.

    Args:
        first: points to begin with, at least one: what is found is no worse than these.
        n_first: points, those included, before the Gaussian process is asked.
        n_steps: points in all.

    Raises:
        ValueError: no first point, points of different lengths or outside the unit cube, n_first < 2, or fewer steps.
    """
    if not first or len({len(point) for point in first}) > 1 or not all(0 <= x <= 1 for p in first for x in p):
        raise ValueError(f"got first points {list(first)}; expected at least one, all of one length, in the unit cube.")
    if not max(2, len(first)) <= n_first <= n_steps:
        raise ValueError(f"got n_first={n_first}, n_steps={n_steps}; expected {max(2, len(first))} or more, and more.")
    n_settings, generator = len(first[0]), torch.Generator().manual_seed(seed)
    cover = SobolEngine(n_settings, scramble=True, seed=seed).draw(n_first - len(first)).tolist()
    trials = [Trial(point, objective(point)) for point in (*first, *map(tuple, cover))]
    while len(trials) < n_steps:
        proposals = torch.rand(PROPOSALS, n_settings, generator=generator, dtype=torch.float64)
        gain = expected_improvement(*predicted(trials, proposals, seed), max(trial.value for trial in trials))
        point = tuple(proposals[gain.argmax()].tolist())
        trials.append(Trial(point, objective(point)))
    return trials


def best(trials: Sequence[Trial]) -> Trial:
    """The trial of the highest value, the first of equals."""
    return max(trials, key=lambda trial: trial.value)


def predicted(
    trials: Sequence[Trial], points: Float[Tensor, "M D"], seed: int
) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
    """Mean and standard deviation of the objective elsewhere, from a Gaussian process with a Matérn 5/2 kernel."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # half a second to import
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    kernel = Matern(length_scale=0.5, length_scale_bounds=(0.05, 20), nu=2.5)  # one scale: few points, many settings
    noise = WhiteKernel(1e-3, noise_level_bounds=(1e-6, 1))
    process = GaussianProcessRegressor(kernel + noise, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():  # that a length scale ends at its bound: the setting does not matter
        warnings.simplefilter("ignore")
        process.fit(np.array([trial.point for trial in trials]), np.array([trial.value for trial in trials]))
        mean, deviation = process.predict(points.double().numpy(), return_std=True)
    return torch.from_numpy(mean), torch.from_numpy(deviation)


def expected_improvement(mean: Float[Tensor, "M"], deviation: Float[Tensor, "M"], highest: float) -> Float[Tensor, "M"]:
    """E max(f − f*, 0) = σ (z Φ(z) + φ(z)), z = (μ − f*) / σ; max(μ − f*, 0) where σ = 0."""
    sure = deviation <= 0
    z = (mean - highest) / deviation.where(~sure, 1)
    normal = torch.distributions.Normal(0.0, 1.0)
    gain = deviation * (z * normal.cdf(z) + normal.log_prob(z).exp())
    return gain.where(~sure, (mean - highest).clamp(min=0))
