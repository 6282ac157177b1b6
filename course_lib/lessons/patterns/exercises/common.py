"""What the cases of several exercises of lesson 01 are drawn with."""

import torch
from torch import Tensor


def randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)
