"""How long the MLPs of a model take for one token, by how many neurons are read: short, and live.

Dimension key: D width, F neurons, K of them chosen.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag
from transformers import PreTrainedModel

from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.selector import check_density, n_kept


@dataclass(frozen=True)
class Timed:
    """Medians of seconds for one token through all MLPs."""

    dense: float
    gathered: dict[float, float]  # by density
    n_bytes: int  # of the dense weights

    def faster(self, density: float) -> float:
        """How many times as fast as dense."""
        return self.dense / self.gathered[density]


@torch.no_grad()
def time_over_density(model: PreTrainedModel, densities: Sequence[float], repetitions: int = 7, seed: int = 0) -> Timed:
    """Dense and gathered in turn, so that a busy moment meets all of them; sets by lot, new ones in each block.

    Raises:
        ValueError: for a density outside (0, 1], or an MLP without a gate.
    """
    for density in densities:
        check_density(density)
    mlps = neurons_of(model)
    if any(mlp.gate is None for mlp in mlps):
        raise ValueError("got an MLP without a gate; expected one of three matrices, as a Llama has.")
    draw, transposed = torch.Generator().manual_seed(seed), [mlp.down.T.contiguous() for mlp in mlps]
    token = torch.randn(mlps[0].width, generator=draw)
    sets = {density: [_lots(mlp.n, density, draw) for mlp in mlps] for density in densities}

    def gathered(density: float) -> None:
        for mlp, down, chosen in zip(mlps, transposed, sets[density], strict=True):
            with_chosen(token, mlp, down, chosen)

    def dense() -> None:
        for mlp in mlps:
            mlp.down @ mlp.values(token[None])[0]

    ways = {"dense": dense} | {density: lambda density=density: gathered(density) for density in densities}
    seconds: dict[str | float, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions + 1):
        for name, way in ways.items():
            seconds[name].append(_seconds(way))
    medians = {name: sorted(values[1:])[repetitions // 2] for name, values in seconds.items()}  # the first warms up
    return Timed(medians.pop("dense"), medians, sum(mlp.n_bytes for mlp in mlps))


def with_chosen(
    token: Float[Tensor, "D"], mlp: Neurons, transposed: Float[Tensor, "F D"], chosen: Int[Tensor, "K"]
) -> Float[Tensor, "D"]:
    """The MLP with these neurons alone; rows of down's transpose are summed up where they lie, without a copy."""
    hidden = mlp.act(mlp.gate.index_select(0, chosen) @ token) * (mlp.up.index_select(0, chosen) @ token)
    return embedding_bag(chosen[None], transposed, per_sample_weights=hidden[None], mode="sum")[0]


def _lots(n: int, density: float, draw: torch.Generator) -> Int[Tensor, "K"]:
    return torch.randperm(n, generator=draw)[: n_kept(density, n)].sort().values


def _seconds(way: Callable[[], None]) -> float:
    begun = time.perf_counter()
    way()
    return time.perf_counter() - begun
