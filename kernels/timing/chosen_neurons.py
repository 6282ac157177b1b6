"""Parts of the bench of chosen neurons: MLPs that are dense, masked or in 8 bits, and the predictor's choice.

Dimension key: D width, F neurons, L blocks, K chosen neurons, B tokens, r rank of the predictor.
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
    """Return a function that runs all blocks one after the other and stacks their outputs."""
    return torch.inference_mode()(lambda: torch.stack([run(index) for index in range(n_blocks)]))


def all_of(x: Tensor, mlp: NeuronMajor) -> Tensor:
    """Compute the activations h = silu(W_gate x) ⊙ (W_up x) of all neurons: (F,) for one token, or (B, F)."""
    return silu(x @ mlp.gate.T) * (x @ mlp.up.T)


def masked(x: Tensor, mlps: Sequence[NeuronMajor], chosen: Sequence[Tensor]) -> Tensor:
    """Compute the expected outputs (L, D): all neurons, with h set to 0 where a neuron is not chosen."""
    masks = [torch.zeros(mlp.n, device=x.device, dtype=x.dtype) for mlp in mlps]
    for mask, index in zip(masks, chosen, strict=True):
        mask[index] = 1
    return torch.stack([(all_of(x, mlp) * mask) @ mlp.down for mlp, mask in zip(mlps, masks, strict=True)])


def best(predictor: Predictor, x: Tensor, n_kept: int) -> Tensor:
    """Return the indices of the `n_kept` neurons with the largest predictor logits."""
    # U (V x): (F, r) (r, D) (D,), two small products instead of one of size F D
    logits = torch.mv(predictor.out.weight, torch.mv(predictor.into.weight, x))
    return logits.topk(n_kept, sorted=False).indices


def in_int8(weight: Tensor) -> Stored:
    """Quantize a matrix to 8 bits, symmetric, with one scale per row: max |w| / 127."""
    scale = weight.abs().amax(dim=1) / 127
    return (weight / scale[:, None]).round().to(torch.int8).contiguous(), scale


def rounded(mlp: NeuronMajor, stored: Sequence[Stored]) -> NeuronMajor:
    """Dequantize: return the MLP with the weights that the 8-bit codes represent."""
    gate, up, down = (codes.to(scale) * scale[:, None] for codes, scale in stored)
    return replace(mlp, gate=gate, up=up, down=down.T.contiguous())


def product_in_8_bits(x: Tensor, stored: Sequence[Stored]) -> Tensor:
    """Compute the MLP of one token with all neurons; gate, up and down are read in 8 bits."""
    gate, up, down = stored
    hidden = silu(_times(x[None], gate)) * _times(x[None], up)
    return _times(hidden, down)[0]


def _times(x: Tensor, stored: Stored) -> Tensor:
    return torch._weight_int8pack_mm(x, *stored)
