"""Claims of lesson 09 on time: decoding with predictors, and what a batch needs."""

from statistics import fmean
from typing import Any

from course_lib.lessons.common import gpu
from course_lib.lessons.common.effects import of_repetitions
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import claim, of_samples, verdict
from course_lib.lessons.dejavu.tables import clock, found
from course_lib.lessons.dejavu.tables.found import Measured
from course_lib.lessons.dejavu.tables.parts import BATCH

PAPERS = 2.0  # times as fast


def twice(bench: dict[str, Any] | None = None) -> str:
    """The ReLU model decodes a token with the neurons that predictors choose, by share kept."""
    sides = (bench or clock.results(clock.RELU))["tables"]["sides"]
    effects = [of_repetitions(row, PAPERS) for row in sides if row["side"] == "predicted"]
    claim = f"with predictors the ReLU model decodes over {PAPERS:.0f} times as fast as dense"
    return f"Claim: {claim}: {verdict(effects, larger_models=True)}"


def batch_needs_more(measured: Measured) -> str:
    """How many neurons sequences need together, above twice those of one; a case a model."""
    effects = []
    for model in found.models(measured, "batch"):
        alone, together = (rows(measured, "batch", model=model, batch=n)[0]["shares"] for n in (1, BATCH))
        effects.append(of_samples([share - 2 * fmean(alone) for share in together]))
    return f"Claim: {BATCH} sequences together need over twice the neurons of one: {verdict(effects)}"


def one_kernel(measured: Measured | None = None) -> str:
    """Rows gathered and multiplied in one kernel, beside copies of them that are multiplied then, on a GPU."""
    effects = gpu.faster("gathered_mlp", "kernel", "torch, gathered rows", measured)
    text = "on a GPU, one kernel takes less time than rows gathered first, wherever both were timed"
    return claim(text, effects)
