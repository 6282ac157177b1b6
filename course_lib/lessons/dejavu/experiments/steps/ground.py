"""What all steps share: the two models with their text, and rows of perplexity with the loss of every window."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.apply import Watch, contextual
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.small_models.relu_model import load_relu_model
from course_lib.data.corpora import windows
from course_lib.lessons.common.losses import losses_row
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.perplexity import window_losses
from course_lib.models import load_model

Row = dict[str, Any]

GATED, RELU = "SmolLM2", "ReLU model"  # the default model, whose neurons have a gate, and the small one of bytes


@dataclass(frozen=True, eq=False)
class Subject:
    """A model in float32, text to learn a choice from, and text to evaluate on."""

    name: str
    model: PreTrainedModel
    calibration: Int[Tensor, "n N"]
    evaluation: Int[Tensor, "m N"]


@lru_cache(maxsize=2)
def subject(sizes: Sizes, name: str, seed: int) -> Subject:
    """Once for all steps: what is done to a model inside a `with` is gone behind it."""
    if name == RELU:
        text = sizes.bytes
        found = load_relu_model(text.evaluation, text.calibration)
        return Subject(name, found.model, found.training[:, : text.length], found.held_out[:, : text.length])
    text, (model, tokenizer) = sizes.tokens, load_model(sizes.model)
    parts = [
        windows("wikipedia", n, text.length, tokenizer, split, seed)
        for n, split in ((text.calibration, "calibration"), (text.evaluation, "evaluation"))
    ]
    return Subject(name, model, *parts)


def loss_row(of: Subject, model: PreTrainedModel | None = None) -> Row:
    """Perplexity of the subject's model as it is now, or of another on the same windows, with the loss of each."""
    losses = window_losses(model or of.model, of.evaluation, progress=False)
    return {"model": of.name} | losses_row(losses.tolist(), of.evaluation[:, 1:].numel())


def selected_row(of: Subject, selector: NeuronSelector, density: float) -> Row:
    """The same while a selector chooses the neurons: the share that it kept, by block too, and the bytes it holds."""
    with contextual(of.model, selector, density) as watch:
        row = loss_row(of)
    return row | {"density": density} | watch_row(watch)


def watch_row(watch: Watch) -> Row:
    """What was kept, and what that needs beside the weights."""
    by_block = [round(share, 4) for share in watch.density]
    return {"reached": round(watch.mean_density, 4), "by_block": by_block, "bytes": watch.bytes}


def joined(rows: Sequence[Row]) -> Row:
    """Rows of one selector on parts of the windows, as one of all of them."""
    losses, sizes = [loss for row in rows for loss in row["losses"]], [len(row["losses"]) for row in rows]
    by_block = [
        round(sum(n * share for n, share in zip(sizes, shares, strict=True)) / sum(sizes), 4)
        for shares in zip(*(row["by_block"] for row in rows), strict=True)
    ]
    row = rows[0] | losses_row(losses, sum(row["n_tokens"] for row in rows))
    kept = {"reached": round(fmean(by_block), 4), "by_block": by_block, "bytes": max(row["bytes"] for row in rows)}
    return row | kept


def forget() -> None:
    """Let go of models and texts."""
    subject.cache_clear()
