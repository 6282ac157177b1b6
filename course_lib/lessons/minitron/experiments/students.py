"""The students before training: width or depth at equal parameters, and the narrower one after a least-squares refit.

Dimension key: L blocks.
"""

import time
from dataclasses import replace
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import (
    BEST,
    PAPERS,
    Sizes,
    calibration,
    evidence,
    perplexity_row,
    scores,
)
from course_lib.measure.experiment import Tables
from course_lib.pruning.structured.choice import Kept, Scores, choose
from course_lib.pruning.structured.refit import refit
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.perplexity_drop import PerplexityDrop
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take

WIDTH = "neurons"
DEPTH = {
    "blocks by influence": "influence",
    "blocks by perplexity drop": "perplexity drop",
    "the last blocks": "place",
    "blocks at even distances": "distance",
}
SHAPES = (WIDTH, *DEPTH)


@lru_cache(maxsize=8)  # the perplexity without each block takes a minute
def block_scores(sizes: Sizes, seed: int, by: str) -> Float[Tensor, "L"]:
    """Score the blocks: "place" prunes the last ones, "distance" every fifth, starting with the third."""
    if by == "influence":
        return BlockInfluence().score(evidence(sizes, seed)).blocks
    model, _ = loaded(sizes.model)
    if by == "perplexity drop":
        few = Evidence(model, calibration(sizes, seed)[: sizes.drops], progress=False)
        return PerplexityDrop().score(few).blocks
    n = shape_of(model).blocks
    n_pruned = n - sizes.blocks
    if by == "place":
        return -torch.arange(n).float()
    keep = torch.ones(n)
    keep[[n // (2 * n_pruned) + index * n // n_pruned for index in range(n_pruned)]] = 0
    return keep


def kept_of(sizes: Sizes, seed: int, name: str, setting: str = BEST) -> Kept:
    """Return what a student of that name keeps."""
    now = shape_of(loaded(sizes.model)[0])
    if name == WIDTH:
        return choose(scores(sizes, seed, "activations", setting), now, replace(now, neurons=sizes.neurons))
    return choose(Scores(blocks=block_scores(sizes, seed, DEPTH[name])), now, replace(now, blocks=sizes.blocks))


def student(sizes: Sizes, seed: int, name: str) -> PreTrainedModel:
    """Return a student right after pruning; every call returns the same one."""
    return take(loaded(sizes.model)[0], kept_of(sizes, seed, name))


def refit_student(
    sizes: Sizes, seed: int, setting: str = BEST, damping: float | None = None
) -> tuple[PreTrainedModel, float]:
    """Return the narrower student after its refit (largest damping if None), and the processor seconds of the refit."""
    model, _ = loaded(sizes.model)
    kept = kept_of(sizes, seed, WIDTH, setting)
    smaller, few = take(model, kept), calibration(sizes, seed)[: sizes.fewer]
    start = time.process_time()
    refit(model, smaller, kept, few, sizes.dampings[-1] if damping is None else damping, progress=False)
    return smaller, time.process_time() - start


def refit_rows(sizes: Sizes, seed: int) -> Tables:
    """Refit both choices of neurons with each damping; the rows without a refit are among the cuts."""
    rows = []
    for setting in (PAPERS, BEST):
        for damping in sizes.dampings:
            smaller, seconds = refit_student(sizes, seed, setting, damping)
            label = {"method": "activations", "setting": setting, "damping": damping, "steps": 0}
            row = {"processor_seconds": round(seconds, 1)} | perplexity_row(sizes, smaller, seed)
            rows.append(label | row)
    return {"refit": rows}
