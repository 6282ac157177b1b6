"""Plain gradient descent, as Jacobs and others (1991) train their mixtures, on the vowels that they classify.

Dimension key: S learners, P samples, J inputs and the one that is always 1, O outputs, E epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.data.vowels import VOWELS, by_speaker, vowels
from course_lib.moe.classic.learners import Learner, Mixture, Weights


class Samples(NamedTuple):
    """What is learnt from or tested on: inputs with a one at their end, targets of 0 and 1, and classes."""

    inputs: Float[Tensor, "P J"]
    targets: Float[Tensor, "P O"]
    classes: Int[Tensor, "P"]


@dataclass(frozen=True)
class Trained:
    """Learners, and the share of training samples that each had right before each epoch."""

    learner: Learner
    weights: Weights
    accuracy: Float[Tensor, "E S"]

    def epochs_to(self, share: float) -> list[int | None]:
        """Of each learner: how many epochs it took to have this share right; None where it never had."""
        return [
            int(reached.int().argmax()) if reached.any() else None for reached in (self.accuracy >= share).unbind(1)
        ]


def vowel_samples() -> tuple[Samples, Samples]:
    """Training (408) and test (200). Formants are standardised by the mean and standard deviation in training."""
    training, test = by_speaker(vowels())
    mean, deviation = training.formants.mean(dim=0), training.formants.std(dim=0)
    return tuple(
        Samples(
            torch.cat([(part.formants - mean) / deviation, torch.ones(len(part.vowel), 1)], dim=1).float(),
            torch.nn.functional.one_hot(part.vowel, len(VOWELS)).float(),
            part.vowel,
        )
        for part in (training, test)
    )


def train(learner: Learner, samples: Samples, seeds: Sequence[int], epochs: int, rate: float = 0.5) -> Trained:
    """Steps of the whole training set: w ← w − rate ∂E/∂w, with E the mean over samples. One learner for each seed."""
    if epochs < 1 or not rate > 0:
        raise ValueError(f"epochs={epochs}, rate={rate}: expected at least 1 epoch and a rate above 0")
    weights = learner.start(samples.inputs.shape[1] - 1, samples.targets.shape[1], seeds)
    history = []
    for _ in range(epochs):
        for part in weights:
            part.requires_grad_()
        history.append(accuracy(learner.answer(weights, samples.inputs), samples.classes))
        error = learner.error(weights, samples.inputs, samples.targets).mean(dim=1)
        slopes = torch.autograd.grad(error.sum(), weights)  # a sum: no learner knows of another
        weights = tuple((part - rate * slope).detach() for part, slope in zip(weights, slopes, strict=True))
    if not all(part.isfinite().all() for part in weights):
        raise ValueError(f"the weights are not finite after {epochs} epochs at rate={rate}: choose a smaller rate")
    return Trained(learner, weights, torch.stack(history))


def accuracy(answers: Float[Tensor, "S P O"], classes: Int[Tensor, "P"]) -> Float[Tensor, "S"]:
    """The share of samples whose largest output is that of their class."""
    return (answers.argmax(dim=-1) == classes).float().mean(dim=-1).detach()


class Report(NamedTuple):
    """Of each learner on samples it was not trained on. The last three are of mixtures alone, else None."""

    accuracy: Float[Tensor, "S"]
    likeliest_accuracy: Float[Tensor, "S"] | None  # by the one most likely expert
    gate_entropy: Float[Tensor, "S"] | None  # nats, mean over samples: 0 where the gate is sure, log K at most
    experts_used: Int[Tensor, "S"] | None  # that are the likeliest for at least a hundredth of the samples


def report(trained: Trained, samples: Samples) -> Report:
    """How good the blended answer is, how good that of one expert, and how the gate divides the samples."""
    learner, weights = trained.learner, trained.weights
    right = accuracy(learner.answer(weights, samples.inputs), samples.classes)
    if not isinstance(learner, Mixture):
        return Report(right, None, None, None)
    prior, _ = learner.parts(weights, samples.inputs)
    entropy = -torch.xlogy(prior, prior).sum(dim=-1).mean(dim=-1)
    share = torch.nn.functional.one_hot(prior.argmax(dim=-1), learner.n_experts).double().mean(dim=1)
    alone = accuracy(learner.likeliest_answer(weights, samples.inputs), samples.classes)
    return Report(right, alone, entropy, (share >= 0.01).sum(dim=-1))
