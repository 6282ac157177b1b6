"""Trained predictors of neurons: their training, recall, and the loss of a model that uses them.

Dimension key: T tokens, D width, F neurons.
"""

import shutil
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.predictor.collect import Collected, collect
from course_lib.contextual.predictor.labels import Label, fires, matters
from course_lib.contextual.predictor.scores import scores
from course_lib.contextual.predictor.store import load_predictors, save_predictors
from course_lib.contextual.predictor.training import PredictorSchedule, train_predictor
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.neighbours import Neighbours
from course_lib.contextual.selectors.static import Static
from course_lib.lessons.dejavu.experiments.ground import GATED, RELU, Row, Sizes, selected_row, subject
from course_lib.measure.experiment import QUICK_RESULTS, Tables
from course_lib.models import blocks

GROUP = 10  # blocks whose predictors are trained in one step
MEASURES = ("recall", "precision", "energy")


def folder(sizes: Sizes) -> Path:
    """Return the folder of the trained predictors; a quick run has its own."""
    return QUICK_RESULTS / ("dejavu_predictors" if sizes == Sizes() else "dejavu_predictors-quick")


def label_of(sizes: Sizes, name: str) -> Label:
    """Return the rule for active neurons: not zero after a ReLU; after a gate the larger half by |h| ‖w‖."""
    return {GATED: matters(sizes.label_density), RELU: fires}[name]


@lru_cache(maxsize=1)
def collected(sizes: Sizes, name: str, seed: int) -> Collected:
    """Collect the inputs and labels of all blocks; a predictor with lookahead reads the inputs of another block."""
    of = subject(sizes, name, seed)
    return collect(of.model, of.calibration, label_of(sizes, name), most=of.calibration.numel())


def train(sizes: Sizes, name: str, lookahead: int, group: int, seed: int) -> Tables:
    """Train the predictors of some blocks; return their losses before and after, and seconds."""
    data, rank = collected(sizes, name, seed), sizes.rank if name == GATED else sizes.rank_bytes
    rows = []
    for block in range(GROUP * group, min(GROUP * (group + 1), data.n_blocks)):
        x, labels = data.inputs(max(block - lookahead, 0)), data.labels(block)
        start = time.perf_counter()
        predictor = Predictor(x.shape[1], rank, labels.shape[1], torch.Generator().manual_seed(seed + block))
        schedule = PredictorSchedule(epochs=sizes.epochs, seed=seed + block)
        losses = train_predictor(predictor, x, labels, schedule)
        label: Row = {"model": name, "block": block, "lookahead": lookahead, "rank": rank, "tokens": len(x)}
        label |= {"positive": round(labels.float().mean().item(), 4), "steps": len(losses)}
        label |= {"first_loss": round(losses[0], 5), "last_loss": round(losses[-1], 5)}
        rows.append(label | {"seconds": round(time.perf_counter() - start, 2)})
        save_predictors((predictor,), path_of(sizes, name, lookahead, block))
    return {"training": rows}


def path_of(sizes: Sizes, name: str, lookahead: int, block: int) -> Path:
    return folder(sizes) / f"{name.replace(' ', '_')}_{lookahead}_{block}.safetensors"


def trained(sizes: Sizes, name: str, lookahead: int, seed: int) -> DejaVu:
    """Load all predictors with this lookahead as a selector."""
    n_blocks = len(blocks(subject(sizes, name, seed).model))
    found = [load_predictors(path_of(sizes, name, lookahead, block)) for block in range(n_blocks)]
    return DejaVu(predictors=tuple(predictor for (predictor,) in found), lookahead=lookahead)


def predicted(sizes: Sizes, name: str, lookahead: int, density: float, seed: int) -> Tables:
    """Measure the perplexity with the neurons that the predictors choose."""
    selector = trained(sizes, name, lookahead, seed)
    return {"predicted": [predicted_row(sizes, name, selector, density, PREDICTOR, seed)]}


def recall(sizes: Sizes, name: str, lookahead: int, seed: int) -> Tables:
    """Measure recall of the labels and the energy that is kept, by block, on evaluation windows of the dense model."""
    of, density = subject(sizes, name, seed), sizes.recall_density if name == GATED else sizes.predicted_bytes[0]
    selectors: dict[str, NeuronSelector] = {PREDICTOR: trained(sizes, name, lookahead, seed)}
    if lookahead == 0:
        selectors |= {by: fitted(sizes, name, by, seed) for by in (STATIC, COPY)}
    selectors = {by: replace(selector, density=density) for by, selector in selectors.items()}
    found: dict[tuple[str, int], list] = {}

    def look(block: int, seen: Seen) -> None:
        labels = label_of(sizes, name)(seen.hidden, seen.neurons)
        for by, selector in selectors.items():
            kept = scores(selector.keep(seen, block), labels, seen.hidden, seen.neurons.down_norm)
            found.setdefault((by, block), []).append((kept.recall, kept.precision, kept.energy))

    look_through(of.model, of.evaluation[: sizes.recalled], look, lookahead)
    rows = []
    for (by, block), windows in found.items():
        row: Row = {"model": name, "chosen_by": by, "block": block, "lookahead": lookahead, "density": density}
        means = torch.tensor(windows).mean(0).tolist()
        rows.append(row | {key: round(mean, 4) for key, mean in zip(MEASURES, means, strict=True)})
    return {"recall": rows}


def end(sizes: Sizes, seed: int) -> Tables:
    """Delete the predictors."""
    shutil.rmtree(folder(sizes), ignore_errors=True)
    return {}


STATIC, COPY, SCAN, PREDICTOR = "a static set", "a 2-bit copy", "nearest rows", "a trained predictor"
COPIES: dict[str, NeuronSelector] = {
    STATIC: Static(),
    COPY: LowBit(bits=2),
    "a 3-bit copy": LowBit(bits=3),
    "a 4-bit copy": LowBit(bits=4),
    "a copy of rank 31": LowRank(rank=31),
    "a copy of rank 64": LowRank(rank=64),
    SCAN: Neighbours(),
}


ON_BYTES = (STATIC, COPY, "a 4-bit copy")  # measured on the ReLU model too


@lru_cache(maxsize=2)
def fitted(sizes: Sizes, name: str, chosen_by: str, seed: int) -> NeuronSelector:
    """Fit a selector on the calibration windows; all densities share it."""
    of = subject(sizes, name, seed)
    return COPIES[chosen_by].fit(of.model, of.calibration)


def copied(sizes: Sizes, name: str, chosen_by: str, density: float, seed: int) -> Tables:
    """Measure the perplexity with a selector that was not trained."""
    return {"predicted": [predicted_row(sizes, name, fitted(sizes, name, chosen_by, seed), density, chosen_by, seed)]}


def predicted_row(sizes: Sizes, name: str, selector: NeuronSelector, density: float, chosen_by: str, seed: int) -> Row:
    """Return the perplexity, and the bytes of the selector and of the MLPs."""
    of = subject(sizes, name, seed)
    row = selected_row(of, selector, density) | {"chosen_by": chosen_by, "lookahead": selector.lookahead}
    return row | {"mlp_bytes": sum(each.n_bytes for each in neurons_of(of.model))}
