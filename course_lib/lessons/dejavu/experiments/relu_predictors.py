"""Train predictors of the ReLU model's neurons on the training text of the model, and evaluate them.

Rank 32, one per block; training writes them into contextual/small_models/weights, 1.1 MB. A few minutes on
one processor. Run `course reproduce relu_model` first.

Tables: predictors, one row per block on held-out bytes; decoded, losses of oracle and predicted by density; 1 is dense.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses, byte_windows
from course_lib.contextual.apply import contextual
from course_lib.contextual.predictor.collect import collect
from course_lib.contextual.predictor.labels import fires
from course_lib.contextual.predictor.scores import Scores, scores
from course_lib.contextual.predictor.store import load_predictors, save_predictors
from course_lib.contextual.predictor.training import PredictorSchedule, train_predictors
from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.small_models.relu_model import (
    PREDICTORS,
    WEIGHTS,
    load_relu_model,
    relu_configuration,
    untrained_relu_model,
)
from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step, Tables
from course_lib.measure.paired import mean_and_error


@dataclass(frozen=True)
class Sizes:
    """The sizes of the training; the model's sizes are None for the committed model."""

    untrained: tuple[int, int, int, int] | None = None
    rank: int = 32
    windows: int = 256  # training windows, of 128 bytes
    schedule: PredictorSchedule = field(default_factory=partial(PredictorSchedule, epochs=10))
    densities: tuple[float, ...] = (0.3, 0.2, 0.15, 0.1, 0.05)
    evaluation: int = 48  # held-out windows


QUICK = Sizes((16, 2, 2, 64), rank=4, windows=2, schedule=PredictorSchedule(epochs=2), densities=(0.3,), evaluation=2)


def steps(sizes: Sizes) -> list[Step]:
    return [
        Step("train", partial(train, sizes)),
        *(Step(f"density {density}", partial(decoded, sizes, density)) for density in (1.0, *sizes.densities)),
    ]


def path(sizes: Sizes) -> Path:
    """Return the file of the predictors; a quick run never overwrites that of a full run."""
    return (WEIGHTS if sizes == Sizes() else QUICK_RESULTS) / f"{PREDICTORS}.safetensors"


def model_of(sizes: Sizes) -> PreTrainedModel:
    if sizes.untrained is None:
        return load_relu_model(1, 1).model
    return untrained_relu_model(relu_configuration(*sizes.untrained), 0).eval()


def train(sizes: Sizes, seed: int) -> Tables:
    """Train the predictors, write them in half precision, and evaluate a fifth of the neurons on held-out bytes."""
    model = model_of(sizes)
    read = collect(model, byte_windows(sizes.windows, "calibration"), fires, most=sizes.windows * 128, seed=seed)
    file = save_predictors(train_predictors(read, sizes.rank, sizes.schedule), path(sizes))
    selector, found = DejaVu(predictors=load_predictors(file), density=0.2), {}

    def look(block: int, seen: Seen) -> None:
        active = fires(seen.hidden, seen.neurons)
        kept = scores(selector.keep(seen, block), active, seen.hidden, seen.neurons.down_norm)
        found.setdefault(block, []).append((active.float().mean().item(), *kept))

    look_through(model, byte_windows(sizes.evaluation), look)
    rows = []
    for block, windows in found.items():
        means = [round(mean, 5) for mean in torch.tensor(windows).mean(dim=0).tolist()]
        rows.append({"block": block, "kept": 0.2} | dict(zip(("active", *Scores._fields), means, strict=True)))
    return {"predictors": [row | {"bytes": file.stat().st_size, "tokens": read.n_tokens} for row in rows]}


def decoded(sizes: Sizes, density: float, seed: int) -> Tables:
    """Measure the losses of the windows with chosen neurons; density 1 is the dense model."""
    predictors = load_predictors(path(sizes))
    ways: dict[str, NeuronSelector] = {"oracle": Oracle(), "predicted": DejaVu(predictors=predictors)}
    return {"decoded": [row_of(sizes, way, ways[way], density) for way in ways]}


@torch.no_grad()
def row_of(sizes: Sizes, way: str, selector: NeuronSelector, density: float) -> dict[str, object]:
    """Return the loss in nats per byte, its standard error, and the losses of the windows."""
    model = model_of(sizes)
    with contextual(model, selector, density) as watch:
        parts = byte_windows(sizes.evaluation).split(16)
        losses = torch.cat([byte_losses(model, part).double().mean(dim=1) for part in parts])
    mean, error = mean_and_error(losses)
    row = {"way": way, "density": density, "bytes": watch.bytes, "loss": mean, "standard_error": error}
    return row | {"losses": [round(loss, 5) for loss in losses.tolist()]}


EXPERIMENT = Experiment("Predictors of the ReLU model's neurons", Sizes(), QUICK, steps)
