"""The small byte model with ReLU neurons: train it from scratch, and measure how many neurons are active.

Training has pieces of 100 steps; each resumes from the state that the last one stored in build/reproduce; the last step
writes the weights into contextual/small_models/weights. About half an hour on two processors.

Tables: training; active, by step and block, the fraction of neurons that are not zero on held-out bytes; held_out;
models.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows, load_half, save_half
from course_lib.attention.small_models.training import Schedule, running, training_texts
from course_lib.contextual.small_models.relu_model import (
    NAME,
    WEIGHTS,
    active_shares,
    relu_configuration,
    relu_schedule,
    untrained_relu_model,
)
from course_lib.contextual.small_models.training import Piece, train_piece
from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step, Tables
from course_lib.measure.paired import mean_and_error


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model and its training, and the evaluation text."""

    width: int = 256
    n_blocks: int = 4
    n_heads: int = 4
    n_neurons: int = 4096
    schedule: Schedule = field(default_factory=relu_schedule)
    texts: int | None = None  # documents to train on; all when None
    piece: int = 100  # steps
    evaluation: int = 48  # held-out windows
    log_every: int = 20
    active_at: tuple[int, ...] = (1, 10, 25, 50, 100, 200, 300, 400, 500, 600)


QUICK = Sizes(
    16, 2, 2, 128, Schedule(4, 2, 32, 1e-2, 2, 0.1), texts=3, piece=2, evaluation=2, log_every=2, active_at=(1, 4)
)


def steps(sizes: Sizes) -> list[Step]:
    """List the pieces of the training, and the step that writes the model."""
    starts = range(0, sizes.schedule.n_steps, sizes.piece)
    return [
        *(Step(f"steps from {start}", partial(train, sizes, start)) for start in starts),
        Step("keep", partial(keep, sizes)),
    ]


def folder(sizes: Sizes) -> Path:
    """Return the folder of the weights; a quick run never overwrites those of a full run."""
    return WEIGHTS if sizes == Sizes() else QUICK_RESULTS / NAME


def piece(sizes: Sizes, start: int) -> Piece:
    """Return the piece that begins at `start`, with the file of its state."""
    stop = min(start + sizes.piece, sizes.schedule.n_steps)
    return Piece(start, stop, QUICK_RESULTS / f"{NAME}{'' if sizes == Sizes() else '_quick'}.state")


def begun(sizes: Sizes, seed: int) -> tuple[PreTrainedModel, Int[Tensor, "T"]]:
    """Return the model with its initial weights, and the text."""
    config = relu_configuration(sizes.width, sizes.n_blocks, sizes.n_heads, sizes.n_neurons)
    return untrained_relu_model(config, seed), running(training_texts()[: sizes.texts])


def train(sizes: Sizes, start: int, seed: int) -> Tables:
    (model, tokens), this, recent = begun(sizes, seed), piece(sizes, start), []
    tables: Tables = {"training": [], "active": []}

    def look(step: int, loss: float) -> None:
        recent.append(loss)
        if (step + 1) % sizes.log_every == 0:
            tables["training"].append({"step": step + 1, "loss": round(sum(recent) / len(recent), 5)})
            recent.clear()
        if step + 1 in sizes.active_at:
            shares = active_shares(model, byte_windows(sizes.evaluation)).tolist()
            tables["active"] += [
                {"step": step + 1, "block": i, "share": round(each, 5)} for i, each in enumerate(shares)
            ]

    train_piece(model, tokens, sizes.schedule, seed, this, look)
    return tables | {"held_out": [{"step": this.stop} | looked_at(model, sizes)]}


def keep(sizes: Sizes, seed: int) -> Tables:
    """Write the weights in half precision, and evaluate the written file."""
    (model, tokens), end = begun(sizes, seed), sizes.schedule.n_steps
    train_piece(model, tokens, sizes.schedule, seed, Piece(end, end, piece(sizes, 0).path))
    path = save_half(model, folder(sizes), NAME)
    kept = load_half(folder(sizes), NAME)
    piece(sizes, 0).path.unlink()
    row = {"parameters": sum(weight.numel() for weight in kept.parameters()), "bytes": path.stat().st_size}
    row |= {"read": end * sizes.schedule.batch * sizes.schedule.length, "text": len(tokens)}
    return {"models": [row | looked_at(kept, sizes)]}


@torch.no_grad()
def looked_at(model: PreTrainedModel, sizes: Sizes) -> dict[str, float | list[float]]:
    """Return the loss on held-out windows in nats per byte, its standard error, and the losses of the windows."""
    parts = byte_windows(sizes.evaluation).split(16)
    losses = torch.cat([byte_losses(model, part).double().mean(dim=1) for part in parts])
    mean, error = mean_and_error(losses)
    return {"loss": mean, "standard_error": error, "losses": [round(loss, 5) for loss in losses.tolist()]}


EXPERIMENT = Experiment("A small model of bytes with ReLU neurons", Sizes(), QUICK, steps)
