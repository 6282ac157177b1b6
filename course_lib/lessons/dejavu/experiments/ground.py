"""The models, texts and sizes of the experiments of lesson 09."""

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
from course_lib.measure.perplexity import window_losses
from course_lib.models import DEFAULT_MODEL, load_model

Row = dict[str, Any]

GATED, RELU = "SmolLM2", "ReLU model"  # the default model, whose neurons have a gate, and the small one of bytes


@dataclass(frozen=True)
class Text:
    """Windows for calibration and for evaluation: no document is in both."""

    length: int = 256
    calibration: int = 48
    evaluation: int = 20


@dataclass(frozen=True)
class Sizes:
    """The sizes of `course reproduce dejavu`. A smaller number of windows always means the first of the larger set."""

    model: str = DEFAULT_MODEL
    tokens: Text = Text()
    bytes: Text = Text(length=128, calibration=320, evaluation=160)  # of the ReLU model
    densities: tuple[float, ...] = (0.75, 0.5, 0.3, 0.2, 0.1, 0.05)
    few: tuple[float, ...] = (0.5, 0.3)
    heads: tuple[int, ...] = (8, 7, 6, 5, 2)  # of nine; two are the fifth that the paper keeps
    static_heads: tuple[int, ...] = (8, 7)
    heads_bytes: tuple[int, ...] = (3, 2, 1)  # of four, of the ReLU model
    activations: tuple[float, ...] = (0.75, 0.6, 0.5)
    together: tuple[tuple[int, float], ...] = ((7, 0.5), (7, 0.3), (2, 0.05))  # heads, and the density of the neurons
    together_bytes: tuple[tuple[int, float], ...] = ((3, 0.2), (1, 0.05))
    batch_density: float = 0.2
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    searched: float = 0.3  # of the neurons
    rounds: int = 30  # pairs of a timing, each way once per round
    rank: int = 64  # of a predictor: 5 % of the bytes of the default model's MLP
    rank_bytes: int = 32  # on the ReLU model
    label_density: float = 0.5
    epochs: int = 8
    lookaheads: tuple[int, ...] = (0, 1, 2, 4)  # blocks
    predicted: tuple[float, ...] = (0.5, 0.3)
    predicted_bytes: tuple[float, ...] = (0.2, 0.1, 0.05)
    predicted_heads: tuple[int, ...] = (7,)
    predicted_heads_bytes: tuple[int, ...] = (3, 2)
    recall_density: float = 0.5
    recalled: int = 8  # evaluation windows


QUICK = Sizes(
    tokens=Text(120, 5, 2), bytes=Text(12, 2, 2), densities=(0.5,), few=(0.5,), heads=(7,), static_heads=(7,),
    heads_bytes=(1,), activations=(0.5,), together=((7, 0.5),), together_bytes=((1, 0.5),), batches=(1, 2), rounds=2,
    rank=4, rank_bytes=4, epochs=1, lookaheads=(0, 1), predicted=(0.5,), predicted_bytes=(0.2,), recalled=1,
    predicted_heads=(7,), predicted_heads_bytes=(1,),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Subject:
    """A model in float32, text to fit a selector on, and text to evaluate on."""

    name: str
    model: PreTrainedModel
    calibration: Int[Tensor, "n N"]
    evaluation: Int[Tensor, "m N"]


@lru_cache(maxsize=2)
def subject(sizes: Sizes, name: str, seed: int) -> Subject:
    """Load a model once for all steps; a `with` restores it after each of them."""
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
    """Perplexity of the subject's model, or of another one on the same windows, with the loss of each window."""
    losses = window_losses(model or of.model, of.evaluation, progress=False)
    return {"model": of.name} | losses_row(losses.tolist(), of.evaluation[:, 1:].numel())


def selected_row(of: Subject, selector: NeuronSelector, density: float) -> Row:
    """Return perplexity while a selector chooses the neurons: the density, also by block, and the selector's bytes."""
    with contextual(of.model, selector, density) as watch:
        row = loss_row(of)
    return row | {"density": density} | watch_row(watch)


def watch_row(watch: Watch) -> Row:
    """Return the density that was reached, and the bytes of the selector."""
    by_block = [round(share, 4) for share in watch.density]
    return {"reached": round(watch.mean_density, 4), "by_block": by_block, "bytes": watch.bytes}


def joined(rows: Sequence[Row]) -> Row:
    """Join rows of one selector on parts of the windows into a row for all windows."""
    losses, sizes = [loss for row in rows for loss in row["losses"]], [len(row["losses"]) for row in rows]
    by_block = [
        round(sum(n * share for n, share in zip(sizes, shares, strict=True)) / sum(sizes), 4)
        for shares in zip(*(row["by_block"] for row in rows), strict=True)
    ]
    row = rows[0] | losses_row(losses, sum(row["n_tokens"] for row in rows))
    kept = {"reached": round(fmean(by_block), 4), "by_block": by_block, "bytes": max(row["bytes"] for row in rows)}
    return row | kept


def forget() -> None:
    """Release models and texts."""
    subject.cache_clear()
