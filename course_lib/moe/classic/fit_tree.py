"""Expectation-maximisation for trees of experts, Jordan, Jacobs, 1994, https://doi.org/10.1162/neco.1994.6.2.181

The E-step computes every sample's posterior over the leaves. The M-step is one regression per node: for an expert,
least squares weighted by the posterior; for a gate, a logistic regression on fractions of the posterior, by Newton's
method (iteratively reweighted least squares).

The likelihood cannot decrease if no node's part of the expected log-likelihood decreases. A Newton step may overshoot,
and rounding may spoil a regression with few samples, so each node keeps its old weights if the new ones are worse.

Dimension key: P samples, J inputs including the constant 1 of the bias, O outputs, N gates, L = N + 1 leaves.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.classic.gates import RIDGE, fit_gates
from course_lib.moe.classic.tree import Tree

LEAST_VARIANCE = 1e-6  # as a fraction of the targets' variance, so that no expert shrinks to a single sample


def fit(
    inputs: Float[Tensor, "P J"],
    targets: Float[Tensor, "P O"],
    depth: int,
    generator: torch.Generator,
    newton_steps: int = 1,
) -> Iterator[Tree]:
    """Yield the initial tree, and then the tree after every EM step, without end.

    Initial gates are random, and the experts are fitted to the samples that these gates send them. Inputs are float64,
    should have about unit size, and end with a constant 1 for the bias (`with_one`).
    """
    _check(inputs, targets, depth, newton_steps)
    scale = (inputs.square().mean(dim=0) + 1e-12).sqrt()
    gates = torch.randn(2**depth - 1, inputs.shape[1], generator=generator, dtype=inputs.dtype) / scale
    gates[:, -1] *= 0.1  # a large bias moves the border away from the centre of the samples
    floor = LEAST_VARIANCE * targets.var(dim=0, correction=0).mean().clamp_min(1e-12)
    experts = inputs.new_zeros(2**depth, targets.shape[1], inputs.shape[1])
    tree = Tree(gates, experts, targets.new_full((2**depth,), float(targets.square().mean().clamp_min(floor))))
    experts, variances = fit_experts(tree, tree.log_prior(inputs).exp(), inputs, targets, floor)
    tree = Tree(gates, experts, variances)
    while True:
        yield tree
        tree = em_step(tree, inputs, targets, floor, newton_steps)


def em_step(
    tree: Tree, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"], floor: Tensor, newton_steps: int = 1
) -> Tree:
    """Take one E-step, and one M-step of every node. `floor` is the smallest variance of an expert."""
    posteriors = tree.posteriors(inputs, targets)
    experts, variances = fit_experts(tree, posteriors, inputs, targets, floor)
    return Tree(fit_gates(tree, posteriors, inputs, newton_steps), experts, variances)


def fit_experts(
    tree: Tree,
    posteriors: Float[Tensor, "P L"],
    inputs: Float[Tensor, "P J"],
    targets: Float[Tensor, "P O"],
    floor: Tensor,
) -> tuple[Float[Tensor, "L O J"], Float[Tensor, "L"]]:
    """Compute W = argmin Σ h ‖y − W x‖² and σ² = Σ h ‖y − W x‖² / (O Σ h) for every leaf."""
    weighted = torch.einsum("pl,pj->ljp", posteriors, inputs)
    gram = weighted @ inputs
    size = gram.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(torch.finfo(inputs.dtype).tiny)
    gram = gram + RIDGE * size[:, None, None] * torch.eye(inputs.shape[1], dtype=inputs.dtype)
    experts = torch.linalg.solve(gram, weighted @ targets).mT
    before, after = (_errors(each, posteriors, inputs, targets) for each in (tree.experts, experts))
    better = after <= before
    experts = torch.where(better[:, None, None], experts, tree.experts)
    share = (targets.shape[1] * posteriors.sum(dim=0)).clamp_min(torch.finfo(inputs.dtype).tiny)
    return experts, torch.maximum(torch.where(better, after, before) / share, floor)


def _errors(experts: Tensor, posteriors: Tensor, inputs: Tensor, targets: Tensor) -> Float[Tensor, "L"]:
    gap = targets[:, None] - torch.einsum("pj,loj->plo", inputs, experts)
    return (posteriors * gap.square().sum(dim=2)).sum(dim=0)


def _check(inputs: Tensor, targets: Tensor, depth: int, newton_steps: int) -> None:
    if depth < 1 or newton_steps < 1:
        raise ValueError(
            f"depth={depth}, newton_steps={newton_steps}: expected at least 1 of each; a tree of depth 0 is a linear "
            "map, see linear_error"
        )
    if inputs.ndim != 2 or targets.ndim != 2 or len(inputs) != len(targets) or not len(inputs):
        raise ValueError(
            f"inputs have shape {tuple(inputs.shape)} and targets {tuple(targets.shape)}: expected (samples, inputs) "
            "and (samples, outputs), at least one sample of both"
        )
    if inputs.dtype != torch.float64 or targets.dtype != torch.float64:
        raise ValueError(
            f"got {inputs.dtype} and {targets.dtype}: expected float64, for the regressions; call .double()"
        )
    if not (inputs.isfinite().all() and targets.isfinite().all()):
        raise ValueError("inputs or targets hold NaN or infinity: expected finite numbers; drop those samples")
