"""Copies of an MLP that differ from each other. Nakamura and others, Drop-Upcycling, 2025, https://arxiv.org/abs/2502.19261

Dimension key: E experts, F neurons, D width, H = 2 F rows: gate and up projection.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.models import architecture, weight_of
from course_lib.moe.checks import check_number


@dataclass(frozen=True)
class Difference:
    """How the copies differ from the dense MLP and from each other.

    Args:
        noise: standard deviation of normal noise on every weight, relative to the standard deviation of its matrix.
        redrawn: fraction of each expert's neurons whose weights are replaced by normal random numbers with the mean and
            standard deviation of their matrix, as in the paper.
    """

    noise: float = 0.0
    redrawn: float = 0.0

    def __post_init__(self) -> None:
        check_number("noise", self.noise)
        check_number("redrawn", self.redrawn)
        if self.redrawn > 1:
            raise ValueError(f"got redrawn {self.redrawn}; expected a fraction of the neurons, 0 to 1.")


def copies(
    block: nn.Module, n_experts: int, difference: Difference, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "E H D"], Float[Tensor, "E D F"]]:
    """Copy the block's MLP into E experts.

    Returns the stacked gate and up projections (E, 2 F, D), and the down projections (E, D, F).
    """
    gate, up, down = (weight_of(block.get_submodule(name)) for name in architecture(block).mlp)
    n_neurons, matrices = len(gate), []
    for matrix, axis in ((gate, 0), (up, 0), (down, 1)):  # `axis` counts the neurons: gate, up (F, D), down (D, F)
        values = matrix.float().expand(n_experts, *matrix.shape).clone()
        # W + noise · σ_W · ε with ε ~ N(0, 1), and the replacement for redrawn neurons, μ_W + σ_W · ε′
        values += difference.noise * matrix.float().std() * _normal(values, generator)
        matrices.append([values, axis, _normal(values, generator) * matrix.float().std() + matrix.float().mean()])
    n_redrawn = round(difference.redrawn * n_neurons)
    for expert in range(n_experts if n_redrawn else 0):
        neurons = torch.randperm(n_neurons, generator=generator)[:n_redrawn]  # the same ones in all three matrices
        for values, axis, replacement in matrices:
            values[expert].index_copy_(axis, neurons, replacement[expert].index_select(axis, neurons))
    gates, ups, downs = (values.to(gate.dtype) for values, _, _ in matrices)
    return torch.cat([gates, ups], dim=1), downs


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator).to(like.device)
