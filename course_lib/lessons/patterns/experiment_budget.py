"""Simple ideas for the open task of lesson 01: what stays of every matrix, in seven tenths of the bytes."""

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.patterns.budget import IDEAS, attempt
from course_lib.measure.experiment import Tables
from course_lib.models import load_model


def row(idea: str, seed: int) -> Tables:
    """One model, of which one idea keeps what it can."""
    made = attempt(IDEAS[idea], *load_model(), seed)
    numbers = {"size": made.size, "density": made.density, "formats": made.formats}
    return {"ideas": [{"idea": idea} | numbers | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


EXPERIMENT = by_idea("A budget of bytes", IDEAS, tuple(IDEAS)[:2], row)
