"""A small language model on bytes, trained from random weights: its losses, and the weights that were written.

Training writes the weights into attention/small_models/weights; about four minutes of one processor.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import (
    NAME,
    byte_losses,
    byte_windows,
    configuration,
    load_half,
    save_half,
    schedule,
    untrained,
)
from course_lib.attention.small_models.training import WEIGHTS, Schedule, running, train, training_texts
from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step, Tables
from course_lib.measure.paired import mean_and_error


@dataclass(frozen=True)
class Sizes:
    """The model, its training, and what is evaluated."""

    width: int = 128
    n_blocks: int = 4
    n_heads: int = 4
    n_neurons: int = 512
    schedule: Schedule = field(default_factory=schedule)
    texts: int | None = None  # documents to train on; all when None
    evaluation: int = 48  # held-out windows
    log_every: int = 20
    look_every: int = 100


QUICK = Sizes(16, 2, 2, 24, Schedule(4, 2, 32, 1e-2, 2, 0.1), texts=3, evaluation=2, log_every=2, look_every=2)


def steps(sizes: Sizes) -> list[Step]:
    return [Step("train", partial(train_model, sizes))]


def folder(sizes: Sizes) -> Path:
    """Return the folder of the weights; a quick run never overwrites those of a full run."""
    return WEIGHTS if sizes == Sizes() else QUICK_RESULTS / NAME


def train_model(sizes: Sizes, seed: int) -> Tables:
    """Train the model, write it, and return training losses, held-out losses and a row on the model."""
    tokens = running(training_texts()[: sizes.texts])
    model = untrained(configuration(sizes.width, sizes.n_blocks, sizes.n_heads, sizes.n_neurons), seed).train()
    log, held_out, recent = [], [], []

    def look(step: int, loss: float) -> None:
        recent.append(loss)
        if (step + 1) % sizes.log_every == 0:
            log.append({"step": step + 1, "loss": round(sum(recent) / len(recent), 5)})
            recent.clear()
        if (step + 1) % sizes.look_every == 0:
            held_out.append({"step": step + 1} | evaluate(model, sizes))

    train(model, tokens, sizes.schedule, seed, look, byte_losses)
    path = save_half(model, folder(sizes))
    kept = load_half(folder(sizes))
    row = {"parameters": sum(weight.numel() for weight in kept.parameters()), "bytes": path.stat().st_size}
    row |= {"read": sizes.schedule.n_steps * sizes.schedule.batch * sizes.schedule.length, "text": len(tokens)}
    return {"training": log, "held_out": held_out, "models": [row | evaluate(kept, sizes)]}


@torch.no_grad()
def evaluate(model: PreTrainedModel, sizes: Sizes) -> dict[str, float | list[float]]:
    """Return the loss on held-out windows in nats per byte, its standard error, and the loss of each window."""
    losses = byte_losses(model, byte_windows(sizes.evaluation)).double().mean(dim=1)
    mean, error = mean_and_error(losses)
    return {"loss": mean, "standard_error": error, "losses": [round(loss, 5) for loss in losses.tolist()]}


EXPERIMENT = Experiment("A small model of bytes", Sizes(), QUICK, steps)
