"""Simple ideas for the open task of lesson 01: what stays of every matrix, in seven tenths of the bytes."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.patterns.budget import IDEAS, attempt
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model


@dataclass(frozen=True)
class Sizes:
    """Which ideas."""

    ideas: tuple[str, ...] = tuple(IDEAS)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(idea, partial(row, idea)) for idea in sizes.ideas]


def row(idea: str, seed: int) -> Tables:
    """One model, of which one idea keeps what it can."""
    made = attempt(IDEAS[idea], *load_model(), seed)
    numbers = {"size": made.size, "density": made.density, "formats": made.formats}
    return {"ideas": [{"idea": idea} | numbers | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


EXPERIMENT = Experiment("A budget of bytes", Sizes(), Sizes(tuple(IDEAS)[:2]), steps)
