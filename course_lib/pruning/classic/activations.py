"""The functions of a unit with their first two derivatives, which second-order pruning needs at every pattern."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Activation:
    """f(a) and its derivatives; the derivatives take the VALUE f(a), from which all of them can be had."""

    value: Callable[[Tensor], Tensor]
    first: Callable[[Tensor], Tensor]
    second: Callable[[Tensor], Tensor]


ACTIVATIONS = {
    "sigmoid": Activation(torch.sigmoid, lambda f: f * (1 - f), lambda f: f * (1 - f) * (1 - 2 * f)),
    "tanh": Activation(torch.tanh, lambda f: 1 - f * f, lambda f: -2 * f * (1 - f * f)),
    "identity": Activation(lambda a: a, torch.ones_like, torch.zeros_like),
}


def activation(name: str) -> Activation:
    """The function of that name, or a ValueError that lists them."""
    if name not in ACTIVATIONS:
        raise ValueError(f"got activation {name!r}; expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
