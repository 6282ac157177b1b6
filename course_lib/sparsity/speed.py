"""How fast sparse formats multiply on this machine.

Dimension key: O outputs (rows), I inputs (columns).
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import linear

from course_lib.measure.roofline import Device, Work, linear_work
from course_lib.sparsity.formats import CSR, BlockSparse
from course_lib.sparsity.patterns import Block, Columns, Unstructured
from course_lib.sparsity.sizes import bitmap_bytes, csr_bytes, nofm_bytes

Name = TypeVar("Name")


def race(contestants: Mapping[Name, Callable[[], object]], seconds: float) -> dict[Name, float]:
    """The shortest time of each, all taking turns: a busy moment of the machine then hits all alike."""
    return {name: min(times) for name, times in rounds(contestants, seconds).items()}


def rounds(contestants: Mapping[Name, Callable[[], object]], seconds: float) -> dict[Name, list[float]]:
    """The times of each, in rounds in which all take their turn: those of a round may be compared in pairs."""
    times: dict[Name, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    end, n_rounds = time.perf_counter() + seconds, 0
    while n_rounds < 5 or time.perf_counter() < end:
        n_rounds += 1
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def layer_speed(
    weight: Float[Tensor, "O I"], densities: list[float], tokens: tuple[int, ...] = (1, 64), seconds: float = 3.0
) -> dict[int, dict[str, dict[float, float]]]:
    """How many times faster than dense a layer runs on this machine, by number of tokens, format and density.

    Formats: CSR (single weights), blocks of 16 x 16, and whole columns, which leave a smaller dense matrix.
    `promised`: bytes of the dense weight over bytes in CSR, the limit when memory decides. All take turns, so that
    none finds its weight still in the cache; choose a weight larger than the cache.
    """
    encoded = {density: _encoded(weight, 1 - density) for density in densities}
    promised = {density: weight.nbytes / csr.n_bytes for density, (csr, _, _, _) in encoded.items()}
    faster = {}
    for n_tokens in tokens:
        inputs = torch.randn(n_tokens, weight.shape[1], generator=torch.Generator().manual_seed(0))
        inputs = inputs[0] if n_tokens == 1 else inputs
        contestants = {("dense", 1.0): partial(linear, inputs, weight)}
        for density, (csr, tiles, columns, smaller) in encoded.items():
            contestants["CSR", density] = partial(csr.linear, inputs)
            contestants["blocks of 16", density] = partial(tiles.linear, inputs)
            contestants["columns", density] = partial(linear, inputs[..., columns].contiguous(), smaller)
        best = race(contestants, seconds)
        faster[n_tokens] = {
            name: {density: best["dense", 1.0] / best[name, density] for density in densities}
            for name in ("CSR", "blocks of 16", "columns")
        } | {"promised": promised}
    return faster


def speed_by_round(
    weight: Float[Tensor, "O I"], density: float, n_tokens: int, seconds: float = 1.5
) -> dict[str, Float[Tensor, "rounds"]]:
    """The same at one density, round by round: the log of dense time over the time of each format."""
    inputs = torch.randn(n_tokens, weight.shape[1], generator=torch.Generator().manual_seed(0))
    inputs = inputs[0] if n_tokens == 1 else inputs
    csr, _, columns, smaller = _encoded(weight, 1 - density)
    contestants = {
        "dense": partial(linear, inputs, weight),
        "CSR": partial(csr.linear, inputs),
        "columns": lambda: linear(inputs[..., columns].contiguous(), smaller),
    }
    times = {name: torch.tensor(spent).log() for name, spent in rounds(contestants, seconds).items()}
    return {name: times["dense"] - times[name] for name in ("CSR", "columns")}


def _encoded(weight: Float[Tensor, "O I"], sparsity: float) -> tuple[CSR, BlockSparse, Bool[Tensor, "I"], Tensor]:
    """The weight pruned by magnitude: single weights, blocks, the columns kept, and those columns."""
    squares = weight.square()
    csr = CSR.encode(weight * Unstructured(sparsity, per="layer").keep(squares))
    tiles = BlockSparse.encode(weight * Block(16, 16, sparsity).keep(squares), 16, 16)
    columns = Columns(sparsity).keep(squares)[0]
    return csr, tiles, columns, weight[:, columns].contiguous()


def speed_limits(rows: int, columns: int, n_tokens: int, device: Device) -> dict[str, float]:
    """The most that half of the weights can save a layer in float16 on a GPU, as dense time over sparse time.

    Tensor cores multiply dense tiles, or 2:4 ones at twice the rate; scattered zeros save them no arithmetic. So a
    format without that support saves bytes at best: it is expanded on the chip and then multiplied densely.
    """
    dense = linear_work(rows, columns, n_tokens)
    half, moved = rows * columns // 2, dense.bytes - 2 * rows * columns
    works = {
        "half of the columns": linear_work(rows, columns // 2, n_tokens),
        "2:4": Work(dense.flops / 2, moved + nofm_bytes(rows, columns, 2)),
        "bitmap": Work(dense.flops, moved + bitmap_bytes(rows, columns, half, 2)),
        "CSR": Work(dense.flops, moved + csr_bytes(rows, half, 2)),
    }
    return {name: dense.seconds(device) / work.seconds(device) for name, work in works.items()}
