"""Train the small model that answers questions about images from scratch; record its losses and evaluate it.

Training writes the weights into attention/visual/weights; about five minutes of one processor.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.attention.small_models.training import Schedule, train
from course_lib.attention.visual.canvas import NOTHING, QUESTIONS, Canvases, draw
from course_lib.attention.visual.model import Shape, SmallVLM
from course_lib.attention.visual.training import (
    ENCODER,
    WEIGHTS,
    WHOLE,
    Answering,
    Namer,
    Naming,
    load,
    right,
    save,
)
from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step, Tables
from course_lib.measure.paired import mean_and_error


@dataclass(frozen=True)
class Sizes:
    """The model, its training, and what is evaluated."""

    shape: Shape = field(default_factory=Shape)
    encoder: Schedule = field(default_factory=lambda: ENCODER)
    whole: Schedule = field(default_factory=lambda: WHOLE)
    canvases: int = 20_000  # of digits to train on
    watched: int = 200  # canvases of other digits, for evaluation during training
    evaluation: int = 1000  # likewise, for evaluation at the end
    log_every: int = 25
    look_every: int = 100


QUICK = Sizes(
    Shape(16, 2, 24, 1, 3),
    Schedule(4, 2, 0, 1e-2, 2, 0.1),
    Schedule(4, 2, 0, 1e-2, 2, 0.1),
    canvases=8,
    watched=2,
    evaluation=3,
    log_every=2,
    look_every=2,
)


def steps(sizes: Sizes) -> list[Step]:
    return [Step("train", partial(trained, sizes))]


def weights(sizes: Sizes) -> Path:
    """Return the folder of the weights; a quick run never overwrites those of a full run."""
    return WEIGHTS if sizes == Sizes() else QUICK_RESULTS / "visual_model" / WEIGHTS.name


def trained(sizes: Sizes, seed: int) -> Tables:
    """Train the encoder, then the whole model: losses, accuracies during training, and the written model."""
    canvases, numbers = draw(sizes.canvases, "train", seed), torch.arange(sizes.canvases)
    watched, generator = draw(sizes.watched, "test", seed), torch.Generator().manual_seed(seed)
    model = SmallVLM(sizes.shape, generator)
    namer = Namer(model, generator)
    first = Log(sizes, "encoder", lambda: {"named": named(namer, watched)})
    train(namer, numbers, sizes.encoder, seed, first, Naming(canvases))
    then = Log(sizes, "whole", lambda: {"accuracy": right(model, watched).mean().item()})
    train(model, numbers, sizes.whole, seed, then, Answering(canvases))
    path = save(model, weights(sizes))
    row = {"bytes": path.stat().st_size, "canvases": sizes.whole.n_steps * sizes.whole.batch}
    return {
        "training": first.losses + then.losses,
        "watched": first.seen + then.seen,
        "models": [row | last(sizes, seed)],
    }


class Log:
    """Record mean losses and the accuracy on held-out canvases; called after every step."""

    def __init__(self, sizes: Sizes, phase: str, look: Any):
        self.sizes, self.phase, self.look = sizes, phase, look
        self.losses, self.seen, self.recent = [], [], []

    def __call__(self, step: int, loss: float) -> None:
        label = {"phase": self.phase, "step": step + 1}
        self.recent.append(loss)
        if (step + 1) % self.sizes.log_every == 0:
            self.losses.append(label | {"loss": round(sum(self.recent) / len(self.recent), 5)})
            self.recent.clear()
        if (step + 1) % self.sizes.look_every == 0:
            self.seen.append(label | {name: round(value, 4) for name, value in self.look().items()})


@torch.no_grad()
def named(namer: Namer, canvases: Canvases) -> float:
    """Compute the fraction of patches with ink, of digits and clutter, that are classified correctly."""
    inked = canvases.belongs != NOTHING
    return (namer(canvases.images).argmax(dim=2) == canvases.belongs)[inked].float().mean().item()


def last(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Return the size of the written model, and its accuracy by question, on canvases not used during training."""
    model: nn.Module = load(weights(sizes))
    answered = right(model, draw(sizes.evaluation, "test", seed + 1))
    by_question = dict(zip(QUESTIONS, answered.mean(dim=0).tolist(), strict=True))
    row: dict[str, Any] = {"parameters": sum(weight.numel() for weight in model.parameters()), "n": answered.numel()}
    accuracy, error = mean_and_error(answered.mean(dim=1))  # questions about one canvas are not independent samples
    return row | {"accuracy": accuracy, "standard_error": error, "by_question": by_question}


EXPERIMENT = Experiment("A small model that sees and answers", Sizes(), QUICK, steps)
