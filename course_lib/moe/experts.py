"""E feed-forward networks of equal shape, stored as two tensors, as in transformers.

Dimension key: E experts, D width, F neurons of an expert, H rows of its first matrix (2 F where half are gates), T
tokens.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.moe.checks import check_count

Activation = Literal["swiglu", "relu", "gelu"]


def _swiglu(hidden: Float[Tensor, "*t H"]) -> Float[Tensor, "*t F"]:
    gate, up = hidden.chunk(2, dim=-1)
    return F.silu(gate) * up


ACTIVATIONS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {  # rows of the first matrix per neuron
    "swiglu": (2, _swiglu),
    "relu": (1, F.relu),
    "gelu": (1, F.gelu),
}


class Experts(nn.Module):
    """y = W_out a(W_in x + b_in), with each expert's W_in and W_out; by default a is SwiGLU, silu(gate) · up.

    Args:
        into: (E, H, D), first the rows of the gate, then those of the linear half.
        out: (E, D, F).
        bias: (E, H) of the first matrix, if it has one. A bias of the second matrix would not belong to a single
            expert.

    Raises:
        ValueError: shapes that do not fit each other, or an unknown activation.
    """

    def __init__(
        self,
        into: Float[Tensor, "E H D"],
        out: Float[Tensor, "E D F"],
        activation: str = "swiglu",
        bias: Float[Tensor, "E H"] | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"got activation {activation!r}; expected one of {', '.join(ACTIVATIONS)}.")
        rows, self.activation = ACTIVATIONS[activation]
        n_experts, width, neurons = out.shape
        if into.shape != (n_experts, rows * neurons, width) or (bias is not None and bias.shape != into.shape[:2]):
            raise ValueError(
                f"got first matrices {tuple(into.shape)} and last ones {tuple(out.shape)}; expected (experts, "
                f"{rows} x neurons, width) and (experts, width, neurons) for {activation}, and a bias of (experts, "
                f"{rows} x neurons)."
            )
        self.into, self.out = nn.Parameter(into), nn.Parameter(out)
        self.bias = None if bias is None else nn.Parameter(bias)

    @property
    def n_experts(self) -> int:
        return len(self.out)

    @property
    def is_plain_swiglu(self) -> bool:
        return self.activation is _swiglu and self.bias is None

    @property
    def width(self) -> int:
        return self.out.shape[1]

    def one(self, expert: int, tokens: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Return the output of one expert for tokens."""
        bias = None if self.bias is None else self.bias[expert]
        return F.linear(self.activation(F.linear(tokens, self.into[expert], bias)), self.out[expert])


def random_experts(
    n_experts: int,
    width: int,
    neurons: int,
    activation: str = "swiglu",
    std: float = 0.02,
    generator: torch.Generator | None = None,
) -> Experts:
    """Return experts with random normal weights, all of them different.

    Raises:
        ValueError: sizes below 1, or an unknown activation.
    """
    for name, value in (("n_experts", n_experts), ("width", width), ("neurons", neurons)):
        check_count(name, value)
    rows = ACTIVATIONS[activation][0] * neurons if activation in ACTIVATIONS else neurons
    into = std * torch.randn(n_experts, rows, width, generator=generator)
    return Experts(into, std * torch.randn(n_experts, width, neurons, generator=generator), activation)
