"""Statistics of the inputs of a model's linear layers; the model is not changed.

Dimension key: I inputs of a linear layer, T tokens in a window.
"""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn

from course_lib.models import Layer, by_block, layers_of
from course_lib.pruning.layerwise.gram import Gram, Needs
from course_lib.pruning.sequential import PruneReport, advance, collect, collect_and_advance, first_inputs
from course_lib.repetition import evaluated, in_evaluation_mode


@torch.inference_mode()
def grams_by_block(
    model: nn.Module, calibration: Tensor, needs: Needs, parts: Collection[str] | None = None
) -> Iterator[tuple[list[Layer], dict[str, Gram]]]:
    """Yield, block by block, the statistics of the layers' inputs in the dense model, by layer name.

    Layers with the same input share a Gram.

    Args:
        calibration: token ids (n, T).
        parts: only these layers, such as "mlp.down_proj", and layers with the same inputs; all if None.
    """
    layers_in, report = by_block(layers_of(model)), PruneReport(calibration.numel())
    with in_evaluation_mode(model):
        batches = first_inputs(model, calibration, list(layers_in))
    for layers in layers_in.values():
        wanted = layers if parts is None else [layer for layer in layers if _reads_with(layer, parts)]
        with in_evaluation_mode(model):
            grams = collect_and_advance(wanted, batches, needs, report)
        yield wanted, grams


def _reads_with(layer: Layer, parts: Collection[str]) -> bool:
    return any(name.removeprefix(f"{layer.block_name}.") in parts for name in layer.group)


def input_norms(model: nn.Module, calibration: Tensor) -> dict[str, Tensor]:
    """Return ‖X_j‖₂ of every input feature (I,) of the dense model, by the name of the first layer with this input.

    Names are such as "blocks.3.mlp.down_proj"; `calibration` holds token ids (n, T).
    """
    norms = {}
    for layers, grams in grams_by_block(model, calibration, "diagonal"):
        norms |= {layer.name: grams[layer.name].diagonal.sqrt() for layer in layers if layer.is_first}
    return norms


def input_gram(model: nn.Module, calibration: Tensor, index: int, layer: str) -> Gram:
    """Return the full Gram matrix of one layer's input in the dense model, such as that of block 15's "mlp.down_proj".

    Raises:
        ValueError: if the model has no such block or the block no such layer.
    """
    parts = [inside.part for inside in next(iter(by_block(layers_of(model)).values()))]
    if layer not in parts:
        raise ValueError(f"got layer {layer!r}; expected one of {', '.join(parts)}.")
    return input_grams(model, calibration, index)[layer]


@torch.inference_mode()
@evaluated
def input_grams(model: nn.Module, calibration: Tensor, index: int) -> dict[str, Gram]:
    """Return the Gram matrices of the inputs of a block's layers in the dense model, by the layer's name in the block.

    Raises:
        ValueError: if the model has no such block.
    """
    layers_in = by_block(layers_of(model))
    model_blocks = list(layers_in)
    if not 0 <= index < len(model_blocks):
        raise ValueError(f"got block {index}; expected 0 to {len(model_blocks) - 1}.")
    batches = first_inputs(model, calibration, model_blocks)
    for block in model_blocks[:index]:
        advance(block, batches)
    layers = layers_in[model_blocks[index]]
    grams = collect(layers, batches, "matrix", PruneReport(calibration.numel()))
    return {layer.part: grams[layer.name] for layer in layers}
