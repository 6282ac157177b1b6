"""The interface of estimators: each returns its gradient for every possible draw, so mean and spread are exact sums.

The model: one of E experts is sampled, D ~ π = softmax(x), and its output is scaled by its probability, as in Switch:
the loss is L(π_D o_D). Training wants the gradient of the expected loss Σ_i π_i L(π_i o_i), which has two parts:

    ∇0 = Σ_i L(π_i o_i) ∇π_i            through the probability of the draw
    ∇1 = Σ_i π_i L'(π_i o_i)·o_i ∇π_i   through the multiplier

A sparse model computes one expert, so in each step it has only one L and one L'.

Dimension key: n problems, E experts, V outputs of an expert, S random cases (E or 2 E).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

Target = Literal["whole", "choice"]  # ∇0 + ∇1, or ∇0 alone


@dataclass(frozen=True)
class Problem:
    """A batch of n routers. `loss` maps outputs (n, ..., V) to losses (n, ...)."""

    logits: Float[Tensor, "n E"]
    outputs: Float[Tensor, "n E V"]
    loss: Callable[[Tensor], Tensor]

    @property
    def prior(self) -> Float[Tensor, "n E"]:
        return self.logits.softmax(dim=-1)

    def prior_slopes(self) -> Float[Tensor, "n E E"]:
        """Return ∇π_i = π_i (e_i − π), one per row."""
        return self.prior[..., None] * (torch.eye(self.logits.shape[1], dtype=self.logits.dtype) - self.prior[:, None])

    def losses(self, scale: Float[Tensor, "n E"]) -> Float[Tensor, "n E"]:
        """Return L(s_i o_i), the loss for each expert by itself."""
        return self.loss(scale[..., None] * self.outputs)

    def slopes(self, scale: Float[Tensor, "n E"]) -> Float[Tensor, "n E V"]:
        """Return L'(s_i o_i): the gradient at the router's output if expert i was sampled."""
        at = (scale[..., None] * self.outputs).detach().requires_grad_()
        return torch.autograd.grad(self.loss(at).sum(), at)[0]

    def multiplier_slopes(self, scale: Float[Tensor, "n E"]) -> Float[Tensor, "n E"]:
        """Return L'(s_i o_i)·o_i: the gradient of the multiplier s_i."""
        return (self.slopes(scale) * self.outputs).sum(dim=-1)

    def gradient(self, target: Target = "whole") -> Float[Tensor, "n E"]:
        """Return ∇0 + ∇1, or ∇0 only; this computes every expert."""
        weight = self.losses(self.prior)
        if target == "whole":
            weight = weight + self.prior * self.multiplier_slopes(self.prior)
        return (weight[..., None] * self.prior_slopes()).sum(dim=1)


@dataclass(frozen=True)
class Draws:
    """All random cases, their probabilities, and the estimator's gradient in each case."""

    probability: Float[Tensor, "n S"]
    gradient: Float[Tensor, "n S E"]

    def mean(self) -> Float[Tensor, "n E"]:
        return (self.probability[..., None] * self.gradient).sum(dim=1)

    def deviation(self) -> Float[Tensor, "n"]:
        """Return the root of the expected squared distance from the mean."""
        spread = (self.gradient - self.mean()[:, None]).square().sum(dim=-1)
        return (self.probability * spread).sum(dim=1).sqrt()


class Estimator(ABC):
    """`draws` has the formula, `experts_run` the number of experts per token, `target` what the mean should be."""

    target: ClassVar[Target] = "whole"
    experts_run: ClassVar[Literal["one", "all"]] = "one"

    @property
    def name(self) -> str:
        return type(self).__name__

    @classmethod
    def variants(cls) -> list["Estimator"]:
        """Return the variants that a comparison shows."""
        return [cls()]

    @abstractmethod
    def draws(self, problem: Problem) -> Draws:
        """Return every case with its probability; the probabilities sum to 1."""
