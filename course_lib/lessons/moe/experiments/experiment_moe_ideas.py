"""Simple ideas for the open task of lesson 06: the lowest loss of a byte model at a fixed number of FLOP a byte.

One table, ideas. Two beginnings an idea, since another beginning can be worth as much as an idea. Six minutes with one
thread, as its result says step by step.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.moe.experiments.steps.ideas import IDEAS, measured
from course_lib.measure.experiment import Experiment, Step


@dataclass(frozen=True)
class Sizes:
    """Which of the ideas are measured, and from which beginnings."""

    ideas: tuple[str, ...] = tuple(IDEAS)
    seeds: tuple[int, ...] = (0, 1)


def steps(sizes: Sizes) -> list[Step]:
    """All ideas from one beginning before those from the next."""
    return [Step(f"{idea}, seed {seed}", partial(measured, idea, seed)) for seed in sizes.seeds for idea in sizes.ideas]


EXPERIMENT = Experiment("Byte models of equal FLOP", Sizes(), Sizes(("16 experts",), (0,)), steps)
