"""Look at what the linears of a model read, without changing anything.

Dimension key: I inputs of a linear layer, T tokens in a window.
"""

import torch
from torch import Tensor, nn

from course_lib.models import blocks, input_groups, linears
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.sequential import PruneReport, advance, collect, first_inputs


@torch.inference_mode()
def input_norms(model: nn.Module, calibration: Tensor) -> dict[str, Tensor]:
    """‖X_j‖₂ of every input feature (I,) of the dense model, by the first layer that reads it.

    Names are such as "blocks.3.mlp.down_proj"; `calibration` holds token ids (n, T).
    """
    batches, report, found = first_inputs(model, calibration), PruneReport(calibration.numel()), {}
    for index, block in enumerate(blocks(model)):
        grams = collect(block, batches, "diagonal", report)
        found |= {f"blocks.{index}.{group[0]}": grams[group[0]].diagonal.sqrt() for group in input_groups(block)}
        advance(block, batches)
    return found


def input_gram(model: nn.Module, calibration: Tensor, index: int, layer: str) -> Gram:
    """The whole Gram matrix of one layer's input in the dense model, such as that of block 15's "mlp.down_proj".

    Raises:
        ValueError: when the model has no such block or the block no such layer.
    """
    layers = linears(blocks(model)[0])
    if layer not in layers:
        raise ValueError(f"got layer {layer!r}; expected one of {', '.join(layers)}.")
    return input_grams(model, calibration, index)[layer]


@torch.inference_mode()
def input_grams(model: nn.Module, calibration: Tensor, index: int) -> dict[str, Gram]:
    """The Gram matrices of the inputs of all layers of one block of the dense model, by the layer's name.

    Raises:
        ValueError: when the model has no such block.
    """
    n_blocks = len(blocks(model))
    if not 0 <= index < n_blocks:
        raise ValueError(f"got block {index}; expected 0 to {n_blocks - 1}.")
    batches = first_inputs(model, calibration)
    for block in blocks(model)[:index]:
        advance(block, batches)
    return collect(blocks(model)[index], batches, "matrix", PruneReport(calibration.numel()))
