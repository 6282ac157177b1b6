"""Can two small matrices predict which heads a token needs? Predictors compared with the oracle and a static set.

Dimension key: L blocks, n windows of N tokens.
"""

import torch

from course_lib.contextual.attention.heads import HeadScore
from course_lib.contextual.attention.parts import SeenHeads, look_through_heads
from course_lib.contextual.attention.predicted import collect_heads, predicted_heads
from course_lib.contextual.predictor.store import load_predictors, save_predictors
from course_lib.contextual.predictor.training import PredictorSchedule, train_predictor
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.lessons.dejavu.experiments import heads
from course_lib.lessons.dejavu.experiments.ground import GATED, Sizes, subject
from course_lib.lessons.dejavu.experiments.trained import PREDICTOR, folder
from course_lib.measure.experiment import Tables
from course_lib.models import heads as heads_of
from course_lib.sparsity.ranking import keep_highest

CHOICES = (PREDICTOR, heads.OUTPUT, heads.STATIC)


def n_active(sizes: Sizes, name: str, seed: int) -> int:
    """Return the number of labels: half of the heads, rounded up, with the longest contributions."""
    return (heads_of(subject(sizes, name, seed).model).n_query + 1) // 2


def train(sizes: Sizes, name: str, seed: int) -> Tables:
    """Train the predictors of all blocks on the inputs of the attention: their losses before and after."""
    of, rank = subject(sizes, name, seed), sizes.rank if name == GATED else sizes.rank_bytes
    data = collect_heads(of.model, of.calibration, n_active(sizes, name, seed))
    rows, predictors = [], []
    for block in range(data.n_blocks):
        x, labels = data.inputs(block), data.labels(block)
        predictor = Predictor(x.shape[1], rank, labels.shape[1], torch.Generator().manual_seed(seed + block))
        losses = train_predictor(predictor, x, labels, PredictorSchedule(epochs=sizes.epochs, seed=seed + block))
        row = {"model": name, "block": block, "rank": rank, "tokens": len(x), "steps": len(losses)}
        rows.append(row | {"first_loss": round(losses[0], 5), "last_loss": round(losses[-1], 5)})
        predictors.append(predictor)
    save_predictors(predictors, folder(sizes) / f"{name.replace(' ', '_')}_heads.safetensors")
    return {"head_training": rows}


def score(sizes: Sizes, name: str, chosen_by: str, seed: int) -> HeadScore:
    """Return the score that ranks the heads."""
    if chosen_by != PREDICTOR:
        return heads.score(sizes, name, chosen_by, seed)
    return predicted_heads(load_predictors(folder(sizes) / f"{name.replace(' ', '_')}_heads.safetensors"))


def kept(sizes: Sizes, name: str, n_kept: int, chosen_by: str, seed: int) -> Tables:
    """Measure the perplexity with this many heads per block."""
    of = subject(sizes, name, seed)
    return {"heads": [heads.heads_row(of, score(sizes, name, chosen_by, seed), n_kept) | {"chosen_by": chosen_by}]}


def recall(sizes: Sizes, name: str, seed: int) -> Tables:
    """By block, on evaluation windows of the dense model: the fraction of the labels that is found."""
    of, active = subject(sizes, name, seed), n_active(sizes, name, seed)
    leaving = heads_of(of.model).n_query - active
    scores = {by: score(sizes, name, by, seed) for by in (PREDICTOR, heads.STATIC)}
    found: dict[tuple[str, int], list[float]] = {}

    def look(block: int, seen: SeenHeads) -> None:
        labels = keep_highest(seen.part_norms, leaving)
        for by, ordered in scores.items():
            hits = (keep_highest(ordered(seen, block), leaving) & labels).sum() / labels.sum()
            found.setdefault((by, block), []).append(hits.item())

    look_through_heads(of.model, of.evaluation[: sizes.recalled], look)
    return {
        "head_recall": [
            {"model": name, "chosen_by": by, "block": block, "active": active, "recall": [round(s, 4) for s in shares]}
            for (by, block), shares in found.items()
        ]
    }
