"""Store predictors in one file, in half precision."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes

from course_lib.attention.small_models.training import write
from course_lib.contextual.predictor.two_layer import Predictor


def save_predictors(predictors: Sequence[Predictor], path: Path) -> Path:
    """Write one predictor per block, in the order of the blocks; the file is written completely or not at all."""
    halves = {
        f"{block}.{name}": weight.detach().half().contiguous()
        for block, predictor in enumerate(predictors)
        for name, weight in predictor.named_parameters()
    }
    return write(as_bytes(halves), path)


def load_predictors(path: Path) -> tuple[Predictor, ...]:
    """Load in float32 what `save_predictors` wrote.

    Raises:
        ValueError: there is no such file.
    """
    if not path.exists():
        raise ValueError(f"got {path}, which is not there; train them first: `course reproduce relu_predictors`.")
    weights, predictors = load_file(path), []
    while f"{len(predictors)}.into.weight" in weights:
        of_this = {name: weights[f"{len(predictors)}.{name}"] for name in ("into.weight", "out.weight")}
        into, out = of_this["into.weight"], of_this["out.weight"]
        predictor = Predictor(into.shape[1], into.shape[0], out.shape[0], torch.Generator())
        predictor.load_state_dict(of_this)  # float16 is copied into float32
        predictors.append(predictor.requires_grad_(False).eval())
    return tuple(predictors)
