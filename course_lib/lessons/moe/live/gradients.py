"""What an estimate of the router's gradient is on average: every draw weighed by its probability, nothing sampled.

Dimension key: E experts, V outputs of an expert, S = 2 E draws: each expert, and each side of the coin.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.estimators.estimator import Estimator, Problem
from course_lib.moe.estimators.multiplier import Multiplier
from course_lib.moe.estimators.sparsemixer import SparseMixer

Estimate = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Float[Tensor, "S E"]]


class Draw(NamedTuple):
    """One router with its experts: the loss of expert i alone is ‖π_i o_i − target‖² / 2."""

    logits: Float[Tensor, "E"]
    outputs: Float[Tensor, "E V"]
    target: Float[Tensor, "V"]


def a_router(n_experts: int = 4, n_outputs: int = 6, seed: int = 0) -> Draw:
    """Everything drawn from a normal, in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n_experts,), (n_experts, n_outputs), (n_outputs,))
    return Draw(*(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes))


def mean_over_draws(estimate: Estimate, one: Draw) -> Float[Tensor, "E"]:
    """One call with 2 E copies of the token, one for each expert and side of the coin; then the weighted sum."""
    n_experts = len(one.logits)
    drawn = torch.arange(n_experts).repeat(2)
    halved = torch.arange(2 * n_experts) >= n_experts
    rows = (part.expand(2 * n_experts, -1) for part in (one.logits, one.target))
    logits, target = (row.contiguous() for row in rows)
    gradients = estimate(logits, drawn, halved, one.outputs[drawn], target)
    return (one.logits.softmax(dim=0)[drawn, None] / 2 * gradients).sum(dim=0)


def problem_of(one: Draw) -> Problem:
    """The same for the library's estimators."""
    return Problem(
        one.logits[None], one.outputs[None], lambda y: (y - one.target).square().sum(dim=-1) / 2
    )  # y: (1, ..., V)


def compared(estimate: Estimate, one: Draw) -> dict[str, Float[Tensor, "E"]]:
    """The gradient of the expected loss, and what three ways to estimate it give on average."""
    problem = problem_of(one)

    def mean(estimator: Estimator) -> Float[Tensor, "E"]:
        return estimator.draws(problem).mean()[0]

    return {
        "exact, all experts run": problem.gradient()[0],
        "the multiplier alone": mean(Multiplier()),
        "SparseMixer, as released": mean_over_draws(estimate, one),
        "SparseMixer, every draw halved at times": mean(SparseMixer(argmax_whole=False)),
    }
