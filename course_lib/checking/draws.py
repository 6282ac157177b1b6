"""What cases are drawn from: the generator of an exercise, and nothing else."""

import torch
from torch import Tensor


def randn(generator: torch.Generator, *shape: int) -> Tensor:
    """Normal numbers of that shape."""
    return torch.randn(*shape, generator=generator)


def whole(generator: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high − 1."""
    return int(torch.randint(low, high, (), generator=generator))
