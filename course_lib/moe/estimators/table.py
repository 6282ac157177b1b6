"""Measure bias and noise of each estimator: medians over problems, relative to the norm of the true gradient.

Dimension key: n problems, E experts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from course_lib import discover
from course_lib.moe import estimators
from course_lib.moe.estimators.estimator import Estimator, Problem


class Row(NamedTuple):
    """The results of one estimator: bias and deviation for one token, then errors of means over T tokens, by T."""

    name: str
    experts_run: str
    target: str
    bias: float
    deviation: float
    errors: tuple[float, ...]


def every_estimator() -> list[Estimator]:
    """Return all estimators in the order of their files."""
    return [variant for kind in discover.subclasses(estimators, Estimator) for variant in kind.variants()]


def measure(problem: Problem, tokens: Sequence[int], compared: Sequence[Estimator] | None = None) -> list[Row]:
    """Compute medians over problems of ‖bias‖ / ‖g‖, of deviation / ‖g‖, and of √(bias² + deviation² / T) / ‖g‖.

    A mean over tokens has less noise but the same bias. g is what the estimator should compute: `Estimator.target`.
    """
    if any(n < 1 for n in tokens):
        raise ValueError(f"tokens={tuple(tokens)}: expected numbers of at least 1, to average over")
    return [_row(problem, tokens, estimator) for estimator in compared or every_estimator()]


def _row(problem: Problem, tokens: Sequence[int], estimator: Estimator) -> Row:
    draws, gradient = estimator.draws(problem), problem.gradient(estimator.target)
    size = gradient.norm(dim=1)
    bias, deviation = (draws.mean() - gradient).norm(dim=1) / size, draws.deviation() / size
    errors = tuple((bias.square() + deviation.square() / n).sqrt().median().item() for n in tokens)
    spread = (bias.median().item(), deviation.median().item())
    return Row(estimator.name, estimator.experts_run, estimator.target, *spread, errors)
