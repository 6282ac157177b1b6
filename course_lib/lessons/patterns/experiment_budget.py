"""Simple ideas for the open task of lesson 01: what stays of every matrix, in seven tenths of the bytes."""

from dataclasses import replace

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.patterns.budget import IDEAS, attempt
from course_lib.measure.experiment import Tables
from course_lib.models import Part, load_model


def row(idea: str, seed: int) -> Tables:
    """One model, of which one idea keeps what it can."""
    made = attempt(IDEAS[idea], *load_model(), seed)
    numbers = {"size": made.size, "density": made.density, "formats": made.formats}
    return {"ideas": [{"idea": idea} | numbers | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


# Whole matrices: the densities of the ideas use up the budget where rows are as long as the model's.
EXPERIMENT = replace(
    by_idea("A budget of bytes", IDEAS, tuple(IDEAS)[:2], row), quick_part=Part(n_neurons=1536, width=None)
)
