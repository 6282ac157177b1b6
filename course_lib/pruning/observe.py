"""Look at what the linears of a model read, without changing anything.

Dimension key: I inputs of a linear layer, T tokens in a window.
"""

import torch
from torch import Tensor, nn

from course_lib.models import blocks, input_groups
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import PruneReport, advance, collect, first_inputs


@torch.inference_mode()
def input_grams(model: nn.Module, calibration: Tensor, pruner: LayerPruner | None = None) -> dict:
    """The Gram of every distinct input in the dense model, by the first layer that reads it: "blocks.3.mlp.down_proj".

    Args:
        calibration: token ids (n, T).
        pruner: what it needs is collected; the diagonal by default.
    """
    batches, report, found = first_inputs(model, calibration), PruneReport(calibration.numel()), {}
    for index, block in enumerate(blocks(model)):
        grams = collect(block, batches, pruner or Wanda(), report)
        found |= {f"blocks.{index}.{group[0]}": grams[group[0]] for group in input_groups(block)}
        advance(block, batches)
    return found


def input_norms(model: nn.Module, calibration: Tensor) -> dict[str, Tensor]:
    """‖X_j‖₂ of every input feature (I,), by the first layer that reads it."""
    return {name: gram.diagonal.sqrt() for name, gram in input_grams(model, calibration).items()}
