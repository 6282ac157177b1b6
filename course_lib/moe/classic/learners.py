"""Learners of the vowels: a gated mixture of linear experts (Jacobs and others, 1991), and a perceptron.

Several learners with different seeds train in parallel: their weights are stacked along the axis S.

Dimension key: S learners, P samples, I inputs, J = I + 1 inputs with a constant 1 for the bias, K experts, H hidden
units, O outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.moe.classic.errors import ERRORS, likeliest_output, mean_output
from course_lib.settings import check_number, is_count

Weights = tuple[Tensor, Tensor]  # of a mixture: experts (S, K, O, J) and gate (S, K, J); of a perceptron: both layers


class Learner(ABC):
    """A learner holds settings only; its weights are passed to the methods."""

    scale: float

    @abstractmethod
    def shapes(self, n_inputs: int, n_outputs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the two weight tensors of one learner."""

    @abstractmethod
    def error(
        self, weights: Weights, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]
    ) -> Float[Tensor, "S P"]:
        """Return the error of every sample, which gradient descent minimises."""

    @abstractmethod
    def answer(self, weights: Weights, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "S P O"]:
        """Return the outputs; the predicted class is the index of the largest one."""

    def start(self, n_inputs: int, n_outputs: int, seeds: Sequence[int]) -> Weights:
        """Draw normal weights with standard deviation `scale`; those of a learner depend only on its seed."""
        if not seeds:
            raise ValueError("got no seeds: expected one for each learner; pass range(5) for five")
        starts = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            starts.append(
                [self.scale * torch.randn(shape, generator=generator) for shape in self.shapes(n_inputs, n_outputs)]
            )
        first, second = (torch.stack(parts) for parts in zip(*starts, strict=True))
        return first, second


@dataclass(frozen=True)
class Mixture(Learner):
    """o_i = W_i x, p = softmax(V x): linear experts, and a gate that reads the same inputs."""

    error_name: str = "mixture"
    n_experts: int = 4
    scale: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.error_name, str) or self.error_name not in ERRORS:
            raise ValueError(f"error_name={self.error_name!r}: expected one of {', '.join(ERRORS)}")
        if not is_count(self.n_experts, least=2):
            raise ValueError(f"n_experts={self.n_experts}: expected at least 2, for a gate to choose from")
        check_number("scale", self.scale)

    def shapes(self, n_inputs: int, n_outputs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (self.n_experts, n_outputs, n_inputs + 1), (self.n_experts, n_inputs + 1)

    def parts(
        self, weights: Weights, inputs: Float[Tensor, "P J"]
    ) -> tuple[Float[Tensor, "S P K"], Float[Tensor, "S P K O"]]:
        """Return the gate's probabilities and the output of every expert."""
        experts, gate = weights
        prior = torch.einsum("pj,skj->spk", inputs, gate).softmax(dim=-1)
        return prior, torch.einsum("pj,skoj->spko", inputs, experts)

    def error(
        self, weights: Weights, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]
    ) -> Float[Tensor, "S P"]:
        return ERRORS[self.error_name](*self.parts(weights, inputs), targets)

    def answer(self, weights: Weights, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "S P O"]:
        return mean_output(*self.parts(weights, inputs))

    def likeliest_answer(self, weights: Weights, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "S P O"]:
        """Return the output of the most likely expert only."""
        return likeliest_output(*self.parts(weights, inputs))


@dataclass(frozen=True)
class Perceptron(Learner):
    """y = σ(B f(A x)) with one hidden layer, and the squared error ‖d − y‖²; f is "sigmoid" or "tanh"."""

    HIDDEN: ClassVar = {"sigmoid": torch.sigmoid, "tanh": torch.tanh}
    n_hidden: int = 6
    hidden: str = "sigmoid"
    scale: float = 0.5

    def __post_init__(self) -> None:
        if not is_count(self.n_hidden) or not isinstance(self.hidden, str) or self.hidden not in self.HIDDEN:
            raise ValueError(
                f"got {self.n_hidden} hidden units of kind {self.hidden!r}: expected at least 1, of kind "
                f"{' or '.join(self.HIDDEN)}"
            )
        check_number("scale", self.scale)

    def shapes(self, n_inputs: int, n_outputs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (self.n_hidden, n_inputs + 1), (n_outputs, self.n_hidden + 1)

    def error(
        self, weights: Weights, inputs: Float[Tensor, "P J"], targets: Float[Tensor, "P O"]
    ) -> Float[Tensor, "S P"]:
        return (targets - self.answer(weights, inputs)).square().sum(dim=-1)

    def answer(self, weights: Weights, inputs: Float[Tensor, "P J"]) -> Float[Tensor, "S P O"]:
        lower, upper = weights
        units = self.HIDDEN[self.hidden](torch.einsum("pj,shj->sph", inputs, lower))
        return torch.sigmoid(torch.einsum("sph,soh->spo", units, upper[..., :-1]) + upper[:, None, :, -1])
