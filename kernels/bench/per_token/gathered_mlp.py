"""An MLP of a few chosen neurons, over density, against the dense MLP and against gathering by torch.

Dimension key: T tokens that share one choice, D width, F neurons, K of them chosen.
The choice is given here: what a predictor costs is another bench's question (`course bench contextual`).
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.per_token import gathered_mlp
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from torch.nn.functional import linear, silu

from course_lib.measure.roofline import Work

SHAPE = {"cpu": (2048, 8192), "cuda": (4096, 14336)}  # D, F: beyond the last-level cache; a layer of a model of 8B
DENSITIES = (1.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
TOKENS = {"cpu": (1,), "cuda": (1, 8)}


def contests(place: Place) -> Iterator[Contest]:
    size, n_neurons = (64, 96) if place.quick else SHAPE[place.device.type]
    for n_tokens in (1, 3) if place.quick else TOKENS[place.device.type]:
        shape = (n_tokens, size, n_neurons)
        given = gathered_mlp.example(place.generator, place.dtype, str(place.device), shape, n_neurons)
        for density in (0.5, 0.1) if place.quick else DENSITIES:
            yield _contest(
                f"density {density:g}, tokens: {n_tokens}", given[:4], given[4][: round(density * n_neurons)]
            )


def _contest(name: str, layer: tuple[Tensor, Tensor, Tensor, Tensor], chosen: Tensor) -> Contest:
    inputs, up = layer[0], layer[2]
    every = torch.arange(len(up), dtype=torch.int32, device=inputs.device)
    flops = 6 * len(inputs) * inputs.shape[1]  # of a neuron
    dense = Work(flops * len(every), gathered_mlp.bytes_moved(*layer, every) - every.nbytes)  # it needs no indices
    sparse = Work(flops * len(chosen), gathered_mlp.bytes_moved(*layer, chosen))
    expected = gathered_mlp.reference(*layer, every)
    sides = [
        Side("dense", lambda: _mlp(*layer), dense, expected),
        Side("torch, gathered rows", lambda: _gathered(*layer, chosen), sparse),
    ]
    if inputs.is_cuda:
        sides.append(Side("kernel", lambda: gathered_mlp.launch(*layer, chosen), sparse))
    return Contest(name, tuple(up.shape), sides, gathered_mlp.reference(*layer, chosen))


def _mlp(inputs: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Compute the dense MLP, also neuron-major, so that no side is slower because of its strides."""
    return (silu(linear(inputs, gate)) * linear(inputs, up)) @ down


def _gathered(inputs: Tensor, gate: Tensor, up: Tensor, down: Tensor, chosen: Tensor) -> Tensor:
    """Copy the rows, then compute dense products: each row is read, written and read again."""
    rows = chosen.long()
    return _mlp(inputs, gate.index_select(0, rows), up.index_select(0, rows), down.index_select(0, rows))
