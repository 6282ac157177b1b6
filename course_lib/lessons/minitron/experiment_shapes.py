"""Simple ideas for the open task of lesson 05: which shape of 100 million parameters reads best once it is cut."""

from dataclasses import replace

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.minitron.running.shapes import IDEAS, attempt
from course_lib.measure.experiment import Tables
from course_lib.models import Part


def one(idea: str, seed: int) -> Tables:
    made = attempt(IDEAS[idea], seed=seed)
    losses = [round(loss, 5) for loss in made.losses.tolist()]
    return {"ideas": [{"idea": idea, "sizes": made.sizes, "parameters": made.parameters, "losses": losses}]}


EXPERIMENT = replace(
    by_idea("Shapes of 100 million parameters, cut from the default model", IDEAS, ("less width",), one),
    quick_part=Part(width=None),
)
