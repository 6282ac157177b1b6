"""Small multilayer networks whose weights are one flat vector, so that a Hessian is a matrix.

As in the papers, a bias is a weight from a unit that is always 1. It counts as a weight, and it can be deleted.

Dimension key: P samples (the papers call them patterns), I inputs, O outputs, d free weights, c connections; in a layer
J inputs (1 more for the bias), K outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.settings import check_count

DTYPE = torch.float64


@dataclass(frozen=True)
class Activation:
    """An activation function f(a) and its derivatives; the derivatives are functions of the VALUE f(a)."""

    value: Callable[[Tensor], Tensor]
    first: Callable[[Tensor], Tensor]
    second: Callable[[Tensor], Tensor]


ACTIVATIONS = {
    "sigmoid": Activation(torch.sigmoid, lambda f: f * (1 - f), lambda f: f * (1 - f) * (1 - 2 * f)),
    "tanh": Activation(torch.tanh, lambda f: 1 - f * f, lambda f: -2 * f * (1 - f * f)),
    "identity": Activation(lambda a: a, torch.ones_like, torch.zeros_like),
}


def activation(name: str) -> Activation:
    """Return the function with this name. Raise ValueError, with a list of names, if there is none."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"got activation {name!r}; expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class Samples:
    """The patterns on which a network is trained or tested."""

    inputs: Float[Tensor, "P I"]
    targets: Float[Tensor, "_ O"]  # as many as inputs

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets) or not len(self.inputs):
            raise ValueError(
                f"got {len(self.inputs)} inputs and {len(self.targets)} targets; expected as many of both, at least one"
            )
        if not (self.inputs.isfinite().all() and self.targets.isfinite().all()):
            raise ValueError("inputs or targets hold NaN or infinity: expected finite numbers; drop those patterns")


@dataclass(frozen=True)
class Network:
    """A network with `sizes` units per layer, from inputs to outputs.

    Args:
        share: for every connection the index of the free weight that it uses, or -1 for no connection; None if each
            connection has its own weight. LeCun's networks were convolutions: many connections, few free weights.
    """

    sizes: tuple[int, ...]
    hidden: str = "sigmoid"
    output: str = "sigmoid"
    share: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sizes, tuple):
            raise ValueError(f"got sizes {self.sizes!r}; expected a tuple of at least inputs and outputs")
        for size in self.sizes:
            check_count("sizes", size)
        if len(self.sizes) < 2:
            raise ValueError(f"sizes={self.sizes}: expected at least inputs and outputs, each of 1 unit or more")
        activation(self.hidden), activation(self.output)
        if self.share is not None and (len(self.share) != self.n_connections or min(self.share) < -1):
            raise ValueError(
                f"share has {len(self.share)} entries from {min(self.share)}; expected {self.n_connections}, one for "
                "each connection, from 0 for the first free weight, and -1 where there is no connection"
            )

    @property
    def n_connections(self) -> int:
        return sum((n_in + 1) * n_out for n_in, n_out in pairwise(self.sizes))

    @property
    def n_weights(self) -> int:
        return self.n_connections if self.share is None else max(self.share) + 1

    def start(self, generator: torch.Generator, scale: float = 1.0) -> Float[Tensor, "d"]:
        """Return random normal weights with a standard deviation of scale / sqrt(inputs of the unit)."""
        parts = [
            scale * torch.randn(k, j + 1, generator=generator, dtype=DTYPE) / j**0.5 for j, k in pairwise(self.sizes)
        ]
        theta = torch.cat([part.flatten() for part in parts])
        return theta if self.share is None else theta[[self.share.index(i) for i in range(self.n_weights)]]

    def layers(self, theta: Float[Tensor, "d"]) -> list[Float[Tensor, "K J"]]:
        """Return the weight matrix of each layer, with its biases in the last column."""
        if len(theta) != self.n_weights:
            raise ValueError(f"got {len(theta)} weights; a network of {self.sizes} has {self.n_weights}")
        if self.share is not None:
            theta = torch.cat([theta, theta.new_zeros(1)])[list(self.share)]  # -1 picks the zero at the end
        shapes = [(k, j + 1) for j, k in pairwise(self.sizes)]
        return [
            part.reshape(shape) for part, shape in zip(theta.split([k * j for k, j in shapes]), shapes, strict=True)
        ]

    def collect(self, per_connection: Float[Tensor, "*n c"]) -> Float[Tensor, "*n d"]:
        """Sum a quantity over the connections that share a weight."""
        if self.share is None:
            return per_connection
        index = torch.tensor(self.share) % (self.n_weights + 1)  # -1 becomes the last entry, which is dropped
        total = per_connection.new_zeros(*per_connection.shape[:-1], self.n_weights + 1)
        return total.index_add(-1, index, per_connection)[..., :-1]

    def activities(self, theta: Float[Tensor, "d"], inputs: Float[Tensor, "P I"]) -> list[Float[Tensor, "P J"]]:
        """Return the values of every layer of units, from the inputs to the outputs."""
        if inputs.shape[1] != self.sizes[0]:
            raise ValueError(f"got patterns of {inputs.shape[1]} inputs; expected {self.sizes[0]}")
        units = [inputs]
        for index, weight in enumerate(layers := self.layers(theta)):
            name = self.output if index == len(layers) - 1 else self.hidden
            units.append(activation(name).value(units[-1] @ weight[:, :-1].T + weight[:, -1]))
        return units

    def __call__(self, theta: Float[Tensor, "d"], inputs: Float[Tensor, "P I"]) -> Float[Tensor, "P O"]:
        return self.activities(theta, inputs)[-1]


def error(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> Float[Tensor, ""]:
    """Compute E = 1/(2P) Σ ‖t − o‖², summed over outputs, averaged over samples (the error of Hassibi and Stork)."""
    return 0.5 * (network(theta, samples.inputs) - samples.targets).square().sum(1).mean()


def accuracy(network: Network, theta: Float[Tensor, "d"], samples: Samples) -> float:
    """Return the fraction of samples classified correctly: by the largest output, or by 0.5 if there is one output."""
    outputs = network(theta, samples.inputs)
    if outputs.shape[1] == 1:
        right = (outputs > 0.5) == (samples.targets > 0.5)
    else:
        right = outputs.argmax(1) == samples.targets.argmax(1)
    return right.double().mean().item()


def convolution(width: int, kernel: int, n_out: int) -> Network:
    """Return one feature map that slides a kernel over `width` inputs, then a dense layer: few shared weights."""
    positions = width - kernel + 1
    if positions < 1:
        raise ValueError(f"got a kernel of {kernel} on {width} inputs; expected one that fits")
    share = []
    for position in range(positions):
        taps = range(position, position + kernel)
        share += [j - position if j in taps else -1 for j in range(width)] + [kernel]  # the map has one bias
    n_shared = kernel + 1
    share += range(n_shared, n_shared + n_out * (positions + 1))
    return Network((width, positions, n_out), share=tuple(share))
