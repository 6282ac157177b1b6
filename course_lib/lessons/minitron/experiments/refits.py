"""Least squares after the cut: what it brings, and whether it still helps a student that learns."""

import time
from dataclasses import replace

from transformers import PreTrainedModel

from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import BEST, PAPERS, calibration, perplexity_row, scores
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.pruning.structured.choice import choose
from course_lib.pruning.structured.refit import refit
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import take


def refitted(
    sizes: Sizes, seed: int, setting: str = BEST, damping: float | None = None
) -> tuple[PreTrainedModel, float]:
    """The narrower student after its refit, at the largest damping when None; and the processor seconds of that."""
    model, _ = loaded(sizes.model)
    now = shape_of(model)
    kept = choose(scores(sizes, seed, "activations", setting), now, replace(now, neurons=sizes.neurons))
    smaller, few = take(model, kept), calibration(sizes, seed)[: sizes.fewer]
    start = time.process_time()
    refit(model, smaller, kept, few, sizes.dampings[-1] if damping is None else damping, progress=False)
    return smaller, time.process_time() - start


def before_learning(sizes: Sizes, seed: int) -> Tables:
    """Both ways to choose neurons, at each damping; without a refit they are among the cuts."""
    rows = []
    for setting in (PAPERS, BEST):
        for damping in sizes.dampings:
            smaller, seconds = refitted(sizes, seed, setting, damping)
            label = {"method": "activations", "setting": setting, "damping": damping, "steps": 0}
            row = {"processor_seconds": round(seconds, 1)} | perplexity_row(sizes, smaller, seed)
            rows.append(label | row)
    return {"refit": rows}
