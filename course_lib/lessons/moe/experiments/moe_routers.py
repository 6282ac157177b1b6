"""Other routers over the same experts: jitter, a z-loss, a bias in place of the balance loss, expert choice.

Seeds, bytes and tables are those of `course reproduce moe`, so that each model here has its matched control there:
"top-1, balanced" for jitter, "top-2, balanced" for the z-loss. "top-2, sigmoid" is the control of the bias. One more
table:

    future    for the model in which experts choose bytes: its loss with expert choice, which uses later bytes, and with
              each byte choosing; and the fraction of earlier bytes that change experts when we replace the last byte

A run is a step of about seven minutes with one thread, 100 minutes for all 15 (next to other work).

Dimension key: N windows, L bytes in a window.
"""

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.moe.experiments.runs import KINDS, QUICK, SIZES, Row, Sizes, held_out_row, run
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.small_models.training import Seen, read
from course_lib.moe.upcycling.swapping import layers_inside


def future(model: PreTrainedModel, seen: Seen, windows: Int[Tensor, "N L"]) -> Tables:
    """Evaluate the same weights twice: with expert choice, and with each byte choosing two experts by the softmax."""
    rows = [{"read_by": "experts choose"} | read_by(model, seen, windows)]
    own = [layer.router for layer in layers_inside(model)]
    for layer in layers_inside(model):
        layer.router = OLMoE(2)
    rows.append({"read_by": "bytes choose"} | read_by(model, seen, windows))
    for layer, router in zip(layers_inside(model), own, strict=True):
        layer.router = router
    return {"future": rows}


def read_by(model: PreTrainedModel, seen: Seen, windows: Int[Tensor, "N L"]) -> Row:
    """Losses; the fraction of earlier bytes that change experts in some block when we replace the last byte; and the
    fraction of bytes that no expert of a block computes, as the mean over blocks.
    """
    found = read(model, seen, windows)
    before, after = (choices(model, seen, ids) for ids in (windows, exchanged(windows)))
    moved = (before != after)[:, :-1].flatten(2).any(dim=2).double().mean().item()
    alone = (~before.any(dim=3)).double().mean().item()
    row = held_out_row(found) | {"losses": [round(loss, 4) for loss in found.losses.tolist()]}
    return row | {"moved": round(moved, 5), "without_expert": round(alone, 5)}


def exchanged(windows: Int[Tensor, "N L"]) -> Int[Tensor, "N L"]:
    """Replace the last byte that the model reads; the very last one is only predicted."""
    other = windows.clone()
    other[:, -2] = 255 - other[:, -2]
    return other


def choices(model: PreTrainedModel, seen: Seen, windows: Int[Tensor, "N L"]) -> Tensor:
    """Return the experts that compute each byte, by block: (N, L - 1, blocks, E)."""
    routings = read(model, seen, windows).routings
    return torch.stack([its.keep for its in routings], dim=1).unflatten(0, (len(windows), -1))


NAMES = (
    "top-1, balanced, jitter", "top-2, balanced, z-loss", "top-2, sigmoid", "top-2, sigmoid, bias", "expert choice",
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    """List all models of one seed, then those of the next."""
    return [
        Step(f"{name}, seed {seed}", partial(measured, sizes, name, seed))
        for seed in sizes.seeds
        for name in sizes.kinds
    ]


def measured(sizes: Sizes, name: str, seed_of_run: int, seed: int) -> Tables:
    """Measure one run; with expert choice, also the table `future`."""
    look = future if KINDS[name].router.chooses == "tokens" else None
    return run(sizes, name, seed_of_run, seed, look)


EXPERIMENT = Experiment(
    "Other routers over the same experts",
    replace(SIZES, kinds=NAMES),
    replace(QUICK, kinds=NAMES, seeds=(0,)),
    steps,
)
