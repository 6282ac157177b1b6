"""Copies of an MLP that differ. Nakamura and others, Drop-Upcycling, 2025, https://arxiv.org/abs/2502.19261

Dimension key: E experts, F neurons, D width, H = 2 F rows of the gate and of the linear half.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.models import architecture, weight_of
from course_lib.moe.checks import check_number


@dataclass(frozen=True)
class Difference:
    """What makes copies differ.

    Args:
        noise: normal noise on every weight, over the deviation of its matrix.
        redrawn: the share of each expert's neurons that are drawn anew, from a normal of the mean and deviation of
            their matrices, as the paper has it.
    """

    noise: float = 0.0
    redrawn: float = 0.0

    def __post_init__(self) -> None:
        check_number("noise", self.noise)
        check_number("redrawn", self.redrawn)
        if self.redrawn > 1:
            raise ValueError(f"got redrawn {self.redrawn}; expected a share of the neurons, 0 to 1.")


def copies(
    block: nn.Module, n_experts: int, difference: Difference, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "E H D"], Float[Tensor, "E D F"]]:
    """The block's MLP as E experts, first matrices and last ones."""
    gate, up, down = (weight_of(block.get_submodule(name)) for name in architecture(block).mlp)
    n_neurons, made = len(gate), []
    for matrix, axis in ((gate, 0), (up, 0), (down, 1)):
        values = matrix.float().expand(n_experts, *matrix.shape).clone()
        values += difference.noise * matrix.float().std() * _normal(values, generator)
        made.append([values, axis, _normal(values, generator) * matrix.float().std() + matrix.float().mean()])
    n_redrawn = round(difference.redrawn * n_neurons)
    for expert in range(n_experts if n_redrawn else 0):
        chosen = torch.randperm(n_neurons, generator=generator)[:n_redrawn]  # the same neurons in all three
        for values, axis, anew in made:
            values[expert].index_copy_(axis, chosen, anew[expert].index_select(axis, chosen))
    gates, ups, downs = (values.to(gate.dtype) for values, _, _ in made)
    return torch.cat([gates, ups], dim=1), downs


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator).to(like.device)
