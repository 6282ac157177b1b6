"""Does it read the future? A model whose experts choose their bytes, read with and without later bytes.

Dimension key: N windows, L bytes in a window.
"""

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.moe.experiments.steps.looks import Row, held_out_row
from course_lib.measure.experiment import Tables
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.small_models.training import Seen, read
from course_lib.moe.upcycling.swapping import layers_inside


def future(model: PreTrainedModel, seen: Seen, windows: Int[Tensor, "N L"]) -> Tables:
    """By its own router, and with each byte choosing: the same weights, p of softmax, two experts in place of two on
    average.
    """
    rows = [{"read_by": "experts choose"} | read_by(model, seen, windows)]
    own = [layer.router for layer in layers_inside(model)]
    for layer in layers_inside(model):
        layer.router = OLMoE(2)
    rows.append({"read_by": "bytes choose"} | read_by(model, seen, windows))
    for layer, router in zip(layers_inside(model), own, strict=True):
        layer.router = router
    return {"future": rows}


def read_by(model: PreTrainedModel, seen: Seen, windows: Int[Tensor, "N L"]) -> Row:
    """Losses; the share of bytes before the last that change experts in some block when the last one changes; and the
    share that no expert of a block computes, the mean over blocks.
    """
    found = read(model, seen, windows)
    before, after = (choices(model, seen, ids) for ids in (windows, exchanged(windows)))
    moved = (before != after)[:, :-1].flatten(2).any(dim=2).double().mean().item()
    alone = (~before.any(dim=3)).double().mean().item()
    row = held_out_row(found) | {"losses": [round(loss, 4) for loss in found.losses.tolist()]}
    return row | {"moved": round(moved, 5), "without_expert": round(alone, 5)}


def exchanged(windows: Int[Tensor, "N L"]) -> Int[Tensor, "N L"]:
    """Another byte in the last place that is read; the last of all is only predicted."""
    other = windows.clone()
    other[:, -2] = 255 - other[:, -2]
    return other


def choices(model: PreTrainedModel, seen: Seen, windows: Int[Tensor, "N L"]) -> Tensor:
    """Which experts compute each byte, by block: (N, L - 1, blocks, E)."""
    routings = read(model, seen, windows).routings
    return torch.stack([its.keep for its in routings], dim=1).unflatten(0, (len(windows), -1))
