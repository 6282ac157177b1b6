"""How wrong and how noisy each estimate of a router's gradient is, over every draw that chance could make.

Dimension key: n problems, E experts.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.measure.experiment import Tables
from course_lib.moe.estimators.estimator import Estimator, Problem
from course_lib.moe.estimators.problems import network, polynomial
from course_lib.moe.estimators.table import every_estimator

Make = Callable[[int, torch.Generator], Problem]
LOSSES: dict[str, Make] = {
    "quadratic": lambda n, generator: polynomial(n, 2, generator),
    "cubic": lambda n, generator: polynomial(n, 3, generator),
    "tanh network": network,
}


def estimators(loss: str, n_problems: int, tokens: tuple[int, ...], seed: int) -> Tables:
    """A row for each estimator, all on the same problems.

    Of each problem ‖bias‖ and deviation, relative to the size of the gradient that the estimator aims at; `errors` are
    medians over problems of √(bias² + deviation² / T), T of `tokens`. Sums are exact, in float64.
    """
    problem = LOSSES[loss](n_problems, torch.Generator().manual_seed(seed))
    return {"estimators": [{"loss": loss} | row(each, problem, tokens) for each in every_estimator()]}


def row(estimator: Estimator, problem: Problem, tokens: tuple[int, ...]) -> dict:
    draws, aim = estimator.draws(problem), problem.gradient(estimator.target)
    size = aim.norm(dim=1)
    bias, deviation = (draws.mean() - aim).norm(dim=1) / size, draws.deviation() / size
    errors = [(bias.square() + deviation.square() / n).sqrt().median().item() for n in tokens]
    found = {"estimator": estimator.name, "experts_run": estimator.experts_run, "target": estimator.target}
    found |= {"bias": short(bias.median()), "deviation": short(deviation.median())}
    found |= {"tokens": list(tokens), "errors": [short(error) for error in errors]}
    return found | {"biases": [short(b) for b in bias], "deviations": [short(d) for d in deviation]}


def short(value: float | Float[Tensor, ""]) -> float:
    """Three digits: a hundredth of what problems differ by."""
    return float(f"{float(value):.3g}")
