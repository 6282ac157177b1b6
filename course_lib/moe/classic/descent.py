"""Gradient descent on the vowel task of Jacobs, Jordan, Nowlan, Hinton, 1991, https://doi.org/10.1162/neco.1991.3.1.79

Dimension key: S learners, P samples, J inputs including the constant 1 of the bias, O outputs, E epochs.
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
    """Training or test samples: inputs with a constant 1 in the last column, one-hot targets, and class indices."""

    inputs: Float[Tensor, "P J"]
    targets: Float[Tensor, "P O"]
    classes: Int[Tensor, "P"]


@dataclass(frozen=True)
class Trained:
    """Trained learners, and the training accuracy of each learner before each epoch."""

    learner: Learner
    weights: Weights
    accuracy: Float[Tensor, "E S"]

    def epochs_to(self, share: float) -> list[int | None]:
        """Count the epochs until each learner first reaches this training accuracy; None if it never does."""
        # The first True of each learner's column (E,).
        return [
            int(is_reached.int().argmax()) if is_reached.any() else None
            for is_reached in (self.accuracy >= share).unbind(1)
        ]


def vowel_samples() -> tuple[Samples, Samples]:
    """Return the 408 training and 200 test samples.

    The formants are standardised with the mean and standard deviation of the training samples.
    """
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
    """Train one learner per seed by full-batch gradient descent.

    Each epoch is one step w ← w − rate ∂E/∂w, where E is the learner's error averaged over the training samples.

    Raises:
        ValueError: fewer than one epoch, a rate of 0 or less, or weights that diverge.
    """
    if epochs < 1 or not rate > 0:
        raise ValueError(f"epochs={epochs}, rate={rate}: expected at least 1 epoch and a rate above 0")
    weights = learner.start(samples.inputs.shape[1] - 1, samples.targets.shape[1], seeds)
    history = []
    for _ in range(epochs):
        for part in weights:
            part.requires_grad_()
        history.append(accuracy(learner.answer(weights, samples.inputs), samples.classes))
        error = learner.error(weights, samples.inputs, samples.targets).mean(dim=1)
        # E is (S,). Learners share no weights, so the gradient of Σ_s E_s holds ∂E_s/∂w_s for each learner s.
        slopes = torch.autograd.grad(error.sum(), weights)
        weights = tuple((part - rate * slope).detach() for part, slope in zip(weights, slopes, strict=True))
    if not all(part.isfinite().all() for part in weights):
        raise ValueError(f"the weights are not finite after {epochs} epochs at rate={rate}: choose a smaller rate")
    return Trained(learner, weights, torch.stack(history))


def accuracy(answers: Float[Tensor, "S P O"], classes: Int[Tensor, "P"]) -> Float[Tensor, "S"]:
    """Return the fraction of samples whose largest output belongs to their class, per learner."""
    return (answers.argmax(dim=-1) == classes).float().mean(dim=-1).detach()


class Report(NamedTuple):
    """Results of each learner on held-out samples. The last three fields are None unless the learner is a mixture."""

    accuracy: Float[Tensor, "S"]
    likeliest_accuracy: Float[Tensor, "S"] | None  # with the output of the most probable expert alone
    gate_entropy: Float[Tensor, "S"] | None  # nats, mean over samples: from 0 (one expert per sample) to log K
    experts_used: Int[Tensor, "S"] | None  # experts that are the most probable one for at least 1 % of the samples


def report(trained: Trained, samples: Samples) -> Report:
    """Measure the accuracy of the blended output and of the most probable expert, and how the gate uses the experts."""
    learner, weights = trained.learner, trained.weights
    accuracy_blended = accuracy(learner.answer(weights, samples.inputs), samples.classes)
    if not isinstance(learner, Mixture):
        return Report(accuracy_blended, None, None, None)
    prior, _ = learner.parts(weights, samples.inputs)  # gate probabilities p (S, P, K)
    # H = −Σ_k p_k log p_k, averaged over samples: (S,)
    entropy = -torch.xlogy(prior, prior).sum(dim=-1).mean(dim=-1)
    # Fraction of samples for which expert k is the most probable: (S, K)
    fraction = torch.nn.functional.one_hot(prior.argmax(dim=-1), learner.n_experts).double().mean(dim=1)
    accuracy_likeliest = accuracy(learner.likeliest_answer(weights, samples.inputs), samples.classes)
    return Report(accuracy_blended, accuracy_likeliest, entropy, (fraction >= 0.01).sum(dim=-1))
