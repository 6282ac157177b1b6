"""How long the MLPs of a model take for one token, by how many neurons are read: short, and live."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from transformers import PreTrainedModel

from course_lib.contextual.execute.gathered import by_rows, dense
from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.room import Room
from course_lib.contextual.neurons import neurons_of
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
    """Dense and gathered in turn, so that a busy moment meets all of them; sets by lot, other ones in each block.

    Raises:
        ValueError: for a density outside (0, 1].
    """
    for density in densities:
        check_density(density)
    draw, room = torch.Generator().manual_seed(seed), Room()  # blocks come one after the other
    mlps = [NeuronMajor.of(each, room) for each in neurons_of(model)]
    token = torch.randn(mlps[0].width, generator=draw)
    orders = [torch.randperm(mlp.n, generator=draw) for mlp in mlps]

    def gathered(density: float) -> None:
        for mlp, order in zip(mlps, orders, strict=True):
            by_rows(token, mlp, order[: n_kept(density, mlp.n)])

    def all_of_them() -> None:
        for mlp in mlps:
            dense(token, mlp)

    ways: dict[str | float, Callable[[], None]] = {"dense": all_of_them}
    ways |= {density: lambda density=density: gathered(density) for density in densities}
    seconds: dict[str | float, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions + 1):
        for name, way in ways.items():
            seconds[name].append(_seconds(way))
    medians = {name: median(values[1:]) for name, values in seconds.items()}  # the first time warms up
    return Timed(medians.pop("dense"), medians, sum(mlp.n_bytes for mlp in mlps))


def _seconds(way: Callable[[], None]) -> float:
    begun = time.perf_counter()
    way()
    return time.perf_counter() - begun
