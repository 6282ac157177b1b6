"""Mixtures of 1991 and 1994, trained by what a student's function says: the responsibilities are the gradient.

Dimension key: S learners, P samples, J inputs and the one that is always 1, K experts, O outputs.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.classic.arm import arm_samples
from course_lib.moe.classic.descent import Samples, Trained, accuracy
from course_lib.moe.classic.fit_tree import fit
from course_lib.moe.classic.learners import Mixture
from course_lib.moe.classic.tree import linear_map, relative_error, with_one

MixtureError = Callable[[Float[Tensor, "P K"], Float[Tensor, "P K O"], Float[Tensor, "P O"]], tuple[Tensor, Tensor]]


def by_responsibilities(
    function: MixtureError, samples: Samples, seeds: Sequence[int], epochs: int, rate: float = 0.5
) -> Trained:
    """Descend the mixture error of equation 1.3 with its gradients written out, no autograd: with d the target,

    for an expert's output −h_i (d − o_i), for its logit p_i − h_i. As `descent.train`, but for h, which the function
    gives.
    """
    learner = Mixture("mixture")
    weights = learner.start(samples.inputs.shape[1] - 1, samples.targets.shape[1], seeds)
    history, n_samples = [], len(samples.inputs)
    for _ in range(epochs):
        prior, outputs = learner.parts(weights, samples.inputs)  # (S, P, K), (S, P, K, O)
        history.append(accuracy(learner.answer(weights, samples.inputs), samples.classes))
        targets = samples.targets.expand(len(seeds), -1, -1)
        _, responsible = function(prior.flatten(0, 1), outputs.flatten(0, 1), targets.flatten(0, 1))
        responsible = responsible.view_as(prior)
        pull = responsible[..., None] * (targets[:, :, None] - outputs)
        experts = weights[0] + rate * torch.einsum("spko,pj->skoj", pull, samples.inputs) / n_samples
        gates = weights[1] + rate * torch.einsum("spk,pj->skj", responsible - prior, samples.inputs) / n_samples
        weights = (experts, gates)
    return Trained(learner, weights, torch.stack(history))


class Climb(NamedTuple):
    """A tree of experts on the arm: log-likelihood a sample after each step, test errors of the map and of the tree."""

    log_likelihood: list[float]
    of_linear_map: float
    of_tree: float


def climb(depth: int, n_steps: int, seed: int = 0) -> Climb:
    """EM for a tree on the two-joint arm."""
    generator = torch.Generator().manual_seed(seed)
    training, test = arm_samples(generator)
    inputs, unseen = with_one(training.inputs), with_one(test.inputs)
    trees = list(islice(fit(inputs, training.accelerations, depth, generator), n_steps + 1))
    heights = [tree.log_likelihood(inputs, training.accelerations) / len(inputs) for tree in trees]
    linear = unseen @ linear_map(inputs, training.accelerations).mT
    errors = (relative_error(said, test.accelerations) for said in (linear, trees[-1].predict(unseen)))
    return Climb(heights, *errors)
