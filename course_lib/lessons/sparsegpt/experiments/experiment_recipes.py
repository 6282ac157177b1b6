"""Simple ideas for the open task of lesson 03: SparseGPT on four layers with other blocks, damping, orders, masks."""

from dataclasses import replace

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.sparsegpt.recipes import BLOCK, IDEAS, USUAL, attempt, layers
from course_lib.measure.experiment import Tables
from course_lib.models import Part


def row(idea: str, seed: int) -> Tables:
    """Four layers, pruned by one idea."""
    made = attempt(IDEAS[idea], layers(seed))
    return {"ideas": [{"idea": idea, "calibration": made.calibration.tolist(), "held_out": made.held_out.tolist()}]}


EXPERIMENT = replace(
    by_idea("Recipes for four layers", IDEAS, (USUAL, "damping of 0.1"), row),
    quick_part=Part(n_blocks=BLOCK + 1),
)
