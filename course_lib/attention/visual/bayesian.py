"""Bayesian optimisation: choose the next trial if each trial is expensive. Snoek, Larochelle, Adams, 2012,
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

PROPOSALS = 512  # random points among which the one with the highest expected improvement is chosen

Point = tuple[float, ...]  # in the unit cube


class Trial(NamedTuple):
    """A point and its value."""

    point: Point
    value: float


def maximise(
    objective: Callable[[Point], float], first: Sequence[Point], n_first: int, n_steps: int, seed: int
) -> list[Trial]:
    """Return all trials in order: the given points, a Sobol sequence, then points of the highest expected improvement.

    Args:
        first: the initial points, at least one, so that the result is not worse than these.
        n_first: the number of points, including `first`, before the Gaussian process chooses.
        n_steps: the number of points in all.

    Raises:
        ValueError: no initial point, points of different lengths or outside the unit cube, n_first < 2, or fewer steps.
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
    """Return the trial of the highest value; if there are several, the first."""
    return max(trials, key=lambda trial: trial.value)


def predicted(
    trials: Sequence[Trial], points: Float[Tensor, "M D"], seed: int
) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
    """Predict mean and standard deviation of the objective at points by a Gaussian process with a Matérn 5/2 kernel."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # half a second to import
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    kernel = Matern(length_scale=0.5, length_scale_bounds=(0.05, 20), nu=2.5)  # one scale: few points, many settings
    noise = WhiteKernel(1e-3, noise_level_bounds=(1e-6, 1))
    process = GaussianProcessRegressor(kernel + noise, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():  # of a length scale at its bound, which only means that a setting has no effect
        warnings.simplefilter("ignore")
        process.fit(np.array([trial.point for trial in trials]), np.array([trial.value for trial in trials]))
        mean, deviation = process.predict(points.double().numpy(), return_std=True)
    return torch.from_numpy(mean), torch.from_numpy(deviation)


def expected_improvement(mean: Float[Tensor, "M"], deviation: Float[Tensor, "M"], highest: float) -> Float[Tensor, "M"]:
    """Return E max(f − f*, 0) = σ (z Φ(z) + φ(z)) with z = (μ − f*) / σ; max(μ − f*, 0) if σ = 0."""
    sure = deviation <= 0
    z = (mean - highest) / deviation.where(~sure, 1)
    normal = torch.distributions.Normal(0.0, 1.0)
    gain = deviation * (z * normal.cdf(z) + normal.log_prob(z).exp())
    return gain.where(~sure, (mean - highest).clamp(min=0))
