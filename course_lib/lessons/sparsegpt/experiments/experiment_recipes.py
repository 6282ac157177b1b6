"""Simple ideas for the open task of lesson 03: SparseGPT on four layers with other blocks, damping, orders, masks."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.sparsegpt.recipes import IDEAS, USUAL, attempt, layers
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """Which ideas."""

    ideas: tuple[str, ...] = tuple(IDEAS)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(idea, partial(row, idea)) for idea in sizes.ideas]


def row(idea: str, seed: int) -> Tables:
    """Four layers, pruned by one idea."""
    made = attempt(IDEAS[idea], layers(seed))
    return {"ideas": [{"idea": idea, "calibration": made.calibration.tolist(), "held_out": made.held_out.tolist()}]}


EXPERIMENT = Experiment("Recipes for four layers", Sizes(), Sizes((USUAL, "damping of 0.1")), steps)
