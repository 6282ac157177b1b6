"""What the sides of the bench of chosen neurons are made of.

Dimension key: D width, F neurons, L blocks, K chosen neurons, B tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import silu

from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.predictor.two_layer import Predictor

Stored = tuple[Tensor, Tensor]  # 8-bit weights, and the scale of each row


def walk(run: Callable[[int], Tensor], n_blocks: int) -> Callable[[], Tensor]:
    """All blocks, one after the other."""
    return torch.inference_mode()(lambda: torch.stack([run(index) for index in range(n_blocks)]))


def all_of(x: Tensor, mlp: NeuronMajor) -> Tensor:
    """h of all neurons, (F,) of one token or (B, F)."""
    return silu(x @ mlp.gate.T) * (x @ mlp.up.T)


def masked(x: Tensor, mlps: Sequence[NeuronMajor], chosen: Sequence[Tensor]) -> Tensor:
    """What the sides should give: all neurons, 0 for those that are not chosen."""
    keep = [torch.zeros(mlp.n, device=x.device, dtype=x.dtype) for mlp in mlps]
    for of, index in zip(keep, chosen, strict=True):
        of[index] = 1
    return torch.stack([(all_of(x, mlp) * of) @ mlp.down for mlp, of in zip(mlps, keep, strict=True)])


def best(predictor: Predictor, x: Tensor, n_kept: int) -> Tensor:
    """The neurons of the highest logits."""
    logits = torch.mv(predictor.out.weight, torch.mv(predictor.into.weight, x))  # out's columns in one stretch each
    return logits.topk(n_kept, sorted=False).indices


def in_int8(weight: Tensor) -> Stored:
    """Rounded to 255 steps a row, symmetric."""
    scale = weight.abs().amax(dim=1) / 127
    return (weight / scale[:, None]).round().to(torch.int8).contiguous(), scale


def rounded(mlp: NeuronMajor, stored: Sequence[Stored]) -> NeuronMajor:
    """The MLP whose weights are what was stored."""
    gate, up, down = (codes.to(scale) * scale[:, None] for codes, scale in stored)
    return replace(mlp, gate=gate, up=up, down=down.T.contiguous())


def product_in_8_bits(x: Tensor, stored: Sequence[Stored]) -> Tensor:
    """All neurons of one token; gate, up and down are read in 8 bits."""
    gate, up, down = stored
    hidden = silu(_times(x[None], gate)) * _times(x[None], up)
    return _times(hidden, down)[0]


def _times(x: Tensor, stored: Stored) -> Tensor:
    return torch._weight_int8pack_mm(x, *stored)
