"""Estimates of the gradient of a router that samples one expert: bias and deviation, by enumeration.

Claims of SparseMixer (https://arxiv.org/abs/2310.00811) on 200 problems of three kinds of loss. One table, estimators:
medians and the values of every problem, so that two estimators are compared problem by problem. Seconds.

Dimension key: n problems, E experts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.measure.experiment import Experiment, Step, Tables
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
    """Measure every estimator on the same problems, one row each.

    For each problem: ‖bias‖ and deviation, relative to the size of the gradient that is estimated. `errors` are medians
    over problems of √(bias² + deviation² / T) for each T of `tokens`. Sums are exact, in float64.
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
    """Round to three digits, about a hundredth of the differences between problems."""
    return float(f"{float(value):.3g}")


@dataclass(frozen=True)
class Sizes:
    """Problems per kind, and the numbers of tokens that an estimate is averaged over."""

    problems: int = 200
    tokens: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000, 3000)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(loss, partial(estimators, loss, sizes.problems, sizes.tokens)) for loss in LOSSES]


EXPERIMENT = Experiment("Gradients of a router, enumerated", Sizes(), Sizes(5, (1, 10)), steps)
