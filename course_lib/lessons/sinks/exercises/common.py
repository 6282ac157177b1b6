"""What the cases of several exercises of lesson 08 are drawn with."""

import torch
from torch import Tensor


def randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def whole(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=generator))
