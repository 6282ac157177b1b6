"""Deja Vu's predictor. Liu and others, 2023, https://arxiv.org/abs/2310.17157, section 4.1

Dimension key: T tokens, D width, r rank, F neurons.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import skip_init

SHORT = (torch.float16, torch.bfloat16)


class Predictor(nn.Module):
    """logits = x Vᵀ Uᵀ, with V (r, D) and U (F, r): a linear map, since there is no nonlinearity between the matrices.

    A neuron is among the nearest neighbours of x if its row and x have similar directions; the two matrices search for
    it in r dimensions instead of D.
    """

    def __init__(self, width: int, rank: int, n_neurons: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        for name, size in (("width", width), ("rank", rank), ("n_neurons", n_neurons)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"got {name} {size!r}; expected a whole number, 1 or more.")
        # Do not use torch's initial weights, which come from the global generator.
        self.into = skip_init(nn.Linear, width, rank, bias=False)
        self.out = skip_init(nn.Linear, rank, n_neurons, bias=False)
        with torch.no_grad():
            for linear in (self.into, self.out):
                linear.weight.normal_(std=linear.in_features**-0.5, generator=generator)

    @property
    def n_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.parameters())

    def forward(self, x: Float[Tensor, "T D"]) -> Float[Tensor, "T F"]:
        """Return the logit of each neuron's probability to be active."""
        return self.out(self.into(x))


def as_it_reads(predictor: object, x: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
    """Return x in the type of the predictor's weights if these have 16 bits, so that half of the bytes are read.
    Otherwise return it in float32, in which predictors are trained.
    """
    weight = next(predictor.parameters(), None) if isinstance(predictor, nn.Module) else None
    return x.to(weight.dtype) if weight is not None and weight.dtype in SHORT else x.float()
