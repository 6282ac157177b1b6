"""A grid of recipes: memory, bytes read, and the loss of every window of two domains, for the Pareto front.

Tables:

    grid      each recipe by its name: bytes, multiply-adds, losses

The front, and recipes that are worse by more than two errors, follow from the table (course_lib/compose/front.py).
"""

from functools import partial

from course_lib.lessons.capstone.experiments import ground
from course_lib.lessons.capstone.experiments.ground import QUICK, Sizes
from course_lib.lessons.capstone.experiments.recipes import Parts, grid, text_of
from course_lib.measure.experiment import Experiment, Step, Tables


def steps(sizes: Sizes) -> list[Step]:
    """List the steps; recipes with the same weights are consecutive."""
    return [Step(name, partial(recipe, sizes, name, parts)) for name, parts in list(grid())[: sizes.recipes]]


def recipe(sizes: Sizes, name: str, parts: Parts, seed: int) -> Tables:
    """Measure one recipe."""
    row = ground.row_of(ground.made(parts, sizes, seed), sizes, seed)
    return {"grid": [{"name": name, "recipe": text_of(parts)} | row]}


EXPERIMENT = Experiment("A grid of recipes", Sizes(), QUICK, steps)
