"""The seam: an estimator says what gradient every draw would give, so that its mean and spread are sums, not samples.

The model: of E experts one is drawn, D ~ π = softmax(x), and its output is scaled by its own probability, as in Switch:
the loss is L(π_D o_D). Training wants the gradient of the expected loss Σ_i π_i L(π_i o_i), which has two parts:

    ∇0 = Σ_i L(π_i o_i) ∇π_i            how the draw moves
    ∇1 = Σ_i π_i L'(π_i o_i)·o_i ∇π_i   how the multiplier moves

A sparse model runs one expert, so it knows one L and one L' in a step.

Dimension key: n problems, E experts, V outputs of an expert, S draws (what chance may decide, E or 2 E cases).
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
    """n routers at once. `loss` maps outputs (n, ..., V) to losses (n, ...)."""

    logits: Float[Tensor, "n E"]
    outputs: Float[Tensor, "n E V"]
    loss: Callable[[Tensor], Tensor]

    @property
    def prior(self) -> Float[Tensor, "n E"]:
        return self.logits.softmax(dim=-1)

    def prior_slopes(self) -> Float[Tensor, "n E E"]:
        """∇π_i = π_i (e_i − π), one a row."""
        return self.prior[..., None] * (torch.eye(self.logits.shape[1], dtype=self.logits.dtype) - self.prior[:, None])

    def losses(self, scale: Float[Tensor, "n E"]) -> Float[Tensor, "n E"]:
        """L(s_i o_i) of every expert alone."""
        return self.loss(scale[..., None] * self.outputs)

    def slopes(self, scale: Float[Tensor, "n E"]) -> Float[Tensor, "n E V"]:
        """L'(s_i o_i): what flows back to the router's output when expert i was drawn."""
        at = (scale[..., None] * self.outputs).detach().requires_grad_()
        return torch.autograd.grad(self.loss(at).sum(), at)[0]

    def multiplier_slopes(self, scale: Float[Tensor, "n E"]) -> Float[Tensor, "n E"]:
        """L'(s_i o_i)·o_i: the gradient of the multiplier s_i."""
        return (self.slopes(scale) * self.outputs).sum(dim=-1)

    def gradient(self, target: Target = "whole") -> Float[Tensor, "n E"]:
        """∇0 + ∇1, or ∇0 alone, with every expert run."""
        weight = self.losses(self.prior)
        if target == "whole":
            weight = weight + self.prior * self.multiplier_slopes(self.prior)
        return (weight[..., None] * self.prior_slopes()).sum(dim=1)


@dataclass(frozen=True)
class Draws:
    """What may happen, how likely, and the gradient that the estimator would give then."""

    probability: Float[Tensor, "n S"]
    gradient: Float[Tensor, "n S E"]

    def mean(self) -> Float[Tensor, "n E"]:
        return (self.probability[..., None] * self.gradient).sum(dim=1)

    def deviation(self) -> Float[Tensor, "n"]:
        """The root of the expected squared distance from the mean."""
        spread = (self.gradient - self.mean()[:, None]).square().sum(dim=-1)
        return (self.probability * spread).sum(dim=1).sqrt()


class Estimator(ABC):
    """`draws` holds the formula. `experts_run`: how many a token needs; `target`: what the mean should be."""

    target: ClassVar[Target] = "whole"
    experts_run: ClassVar[Literal["one", "all"]] = "one"

    @property
    def name(self) -> str:
        return type(self).__name__

    @classmethod
    def variants(cls) -> list["Estimator"]:
        """Those that a comparison shows."""
        return [cls()]

    @abstractmethod
    def draws(self, problem: Problem) -> Draws:
        """Every case with its probability; the probabilities add up to 1."""
