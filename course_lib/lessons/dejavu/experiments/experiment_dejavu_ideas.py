"""Simple ideas for the open task of lesson 09: three tenths of the neurons, chosen by 5 % of the MLPs' bytes.

One table, ideas. Planned: three quarters of a minute an idea on two idle cores, five in all.
"""

from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.dejavu.experiments.steps.ideas import IDEAS, attempt
from course_lib.measure.experiment import Tables


def one(idea: str, seed: int) -> Tables:
    made = attempt(IDEAS[idea], seed=seed)
    row = {"idea": idea, "bytes": made.bytes, "density": round(made.density, 4)}
    return {"ideas": [row | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


EXPERIMENT = by_idea("Selectors of equal bytes, three tenths of the neurons", IDEAS, ("one set for all tokens",), one)
