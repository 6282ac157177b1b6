"""Outlier features and massive activations: how large the largest input feature of each layer is.

Outlier features are large on most tokens: Dettmers, Lewis, Belkada, Zettlemoyer, 2022. https://arxiv.org/abs/2208.07339
Massive activations are large at single tokens, often the first: Sun, Chen, Kolter, Liu, 2024.
https://arxiv.org/abs/2402.17762. So every norm is taken twice, over all tokens and without the first of each window.

Dimension key: B windows, T tokens of a window, I inputs of a layer.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.hooks import hooking
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import blocks, layers_of, load_model, trunk


@dataclass(frozen=True)
class Sizes:
    """Calibration windows of `length` tokens."""

    calibration: int = 8
    length: int = 256


def steps(sizes: Sizes) -> list[Step]:
    return [Step("activations", partial(every_input, sizes))]


def every_input(sizes: Sizes, seed: int) -> Tables:
    """Return a row per distinct input of a layer; for the middle block's first input the norms of all features."""
    model, tokenizer = load_model()
    ids = windows("wikipedia", sizes.calibration, sizes.length, tokenizer, seed=seed)
    layers = [layer for layer in layers_of(model) if layer.is_first]
    rows: dict[str, dict[str, Any]] = {}
    norms: dict[str, list[float]] = {}
    middle = f"blocks.{len(blocks(model)) // 2}."
    with hooking() as handles, torch.inference_mode():
        for layer in layers:

            def record(_, arguments: tuple, name: str = layer.name) -> None:
                rows[name] = {"layer": name} | largest_and_median(arguments[0])
                if name.startswith(middle) and not norms:
                    norms[name] = [round(norm, 4) for norm in arguments[0].norm(dim=(0, 1)).tolist()]

            handles.append(layer.module.register_forward_pre_hook(record))
        trunk(model)(ids, use_cache=False)
    ((middle_layer, middle_norms),) = norms.items()
    return {"activations": list(rows.values()), "norms": [{"layer": middle_layer, "norms": middle_norms}]}


def largest_and_median(inputs: Float[Tensor, "B T I"]) -> dict[str, float]:
    """Return the largest and the median feature norm, over all tokens and without the first token of each window."""
    norms, without_first = inputs.norm(dim=(0, 1)), inputs[:, 1:].norm(dim=(0, 1))
    return {
        "largest": norms.max().item(),
        "median": norms.median().item(),
        "largest_without_first": without_first.max().item(),
        "median_without_first": without_first.median().item(),
    }


EXPERIMENT = Experiment("Outlier features and massive activations", Sizes(), Sizes(2, 64), steps)
