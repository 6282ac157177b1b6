"""Simple ideas for the open task of lesson 05: which shape of 100 million parameters reads best once it is cut."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.minitron.running.shapes import IDEAS, attempt
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """Which of the ideas are measured."""

    ideas: tuple[str, ...] = tuple(IDEAS)


def steps(sizes: Sizes) -> list[Step]:
    """One an idea."""
    return [Step(idea, partial(one, idea)) for idea in sizes.ideas]


def one(idea: str, seed: int) -> Tables:
    made = attempt(IDEAS[idea], seed=seed)
    losses = [round(loss, 5) for loss in made.losses.tolist()]
    return {"ideas": [{"idea": idea, "sizes": made.sizes, "parameters": made.parameters, "losses": losses}]}


EXPERIMENT = Experiment(
    "Shapes of 100 million parameters, cut from the default model", Sizes(), Sizes(("less width",)), steps
)
