"""Simple ideas for the open task of lesson 04: which layers lose how much, 40 % in all."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.wanda.shares import IDEAS, attempt
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.pruning.allocation.owl import OWL

EQUAL, BY_OUTLIERS = "equal shares", "by outliers (OWL)"


@dataclass(frozen=True)
class Sizes:
    """Which ideas."""

    ideas: tuple[str, ...] = (EQUAL, *IDEAS, BY_OUTLIERS)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(idea, partial(row, idea)) for idea in sizes.ideas]


def row(idea: str, seed: int) -> Tables:
    """One model, pruned by one idea."""
    made = attempt({EQUAL: None, BY_OUTLIERS: OWL()}.get(idea) or IDEAS.get(idea), seed)
    return {"ideas": [{"idea": idea, "sparsity": made.sparsity, "losses": made.losses.tolist()}]}


EXPERIMENT = Experiment("Shares by layer", Sizes(), Sizes((EQUAL, "the MLP alone")), steps)
