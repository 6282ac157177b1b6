"""Random inputs for cases, which depend only on the generator of an exercise."""

import torch
from torch import Tensor


def randn(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw normal numbers of this shape."""
    return torch.randn(*shape, generator=generator)


def whole(generator: torch.Generator, low: int, high: int) -> int:
    """Draw a whole number from low to high − 1."""
    return int(torch.randint(low, high, (), generator=generator))
