"""Simple ideas for the open task of lesson 09: three tenths of the neurons, chosen by 5 % of the MLPs' bytes.

One table, ideas. Planned: three quarters of a minute an idea on two idle cores, five in all.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.dejavu.claims.ideas import IDEAS, attempt
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
    row = {"idea": idea, "bytes": made.bytes, "density": round(made.density, 4)}
    return {"ideas": [row | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


EXPERIMENT = Experiment(
    "Selectors of equal bytes, three tenths of the neurons", Sizes(), Sizes(("one set for all tokens",)), steps
)
