"""What must hold before a weight is touched, and what is said when pruning stops halfway."""

import torch
from torch import Tensor, nn

from course_lib.models import blocks, linears, weight_of
from course_lib.pruning.base import LayerPruner
from course_lib.sparsity.patterns import Pattern


class PruningError(RuntimeError):
    """Pruning stopped in the middle, at the block or layer `reached`. Earlier blocks are pruned, later ones are not."""

    def __init__(self, reached: str, n_layers: int, cause: Exception):
        self.reached = reached
        super().__init__(
            f"pruning stopped at {reached}, after {n_layers} layers were pruned: {type(cause).__name__}: {cause}. "
            "The model is half pruned: load it again before going on."
        )


def check_ready(model: nn.Module, pruner: object, calibration: object) -> None:
    """Raises ValueError, with what was got, what is expected and what to do, unless pruning can run."""
    if not isinstance(pruner, LayerPruner):
        raise ValueError(f"got pruner {pruner!r}; expected an instance such as Wanda() or Magnitude(NofM(2, 4)).")
    if not isinstance(pruner.pattern, Pattern):
        raise ValueError(f"got pattern {pruner.pattern!r}; expected one such as Unstructured(0.5) or NofM(2, 4).")
    blocks(model)
    _check_calibration(model, calibration)
    layers = {
        f"blocks.{index}.{name}": weight_of(module)
        for index, block in enumerate(blocks(model))
        for name, module in linears(block).items()
    }
    for name, weight in layers.items():
        if weight.is_meta:
            raise ValueError(f"got {name} on the meta device, without data; load the weights before pruning.")
        if not weight.isfinite().all():
            raise ValueError(
                f"got {int((~weight.isfinite()).sum())} NaN or infinite weights in {name}; load a sound checkpoint."
            )
    for shape in dict.fromkeys(weight.shape for weight in layers.values()):
        try:
            pruner.pattern.keep(torch.zeros(shape))
        except ValueError as error:
            name = next(name for name, weight in layers.items() if weight.shape == shape)
            raise ValueError(
                f"the pattern {pruner.pattern} does not fit {name} of shape {tuple(shape)}: {error}"
            ) from error


def _check_calibration(model: nn.Module, calibration: object) -> None:
    if not isinstance(calibration, Tensor):
        kind = type(calibration).__name__
        raise ValueError(f"got calibration of type {kind}; expected a tensor of token ids. Use corpora.windows(...).")
    got = f"got calibration of shape {tuple(calibration.shape)} and {calibration.dtype}"
    if calibration.ndim != 2 or calibration.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{got}; expected token ids, one window a row. Use corpora.windows(...).")
    if calibration.numel() == 0:
        raise ValueError(
            f"{got}, which is empty; expected at least one window. Use corpora.windows('wikipedia', 32, 512, ...)."
        )
    size = model.config.vocab_size
    low, high = int(calibration.min()), int(calibration.max())
    if low < 0 or high >= size:
        raise ValueError(
            f"got token ids from {low} to {high}; expected 0 to {size - 1}. Use this model's own tokenizer."
        )
