"""Gradients of a router that draws one expert: the bias and the deviation of every estimator, counted and not sampled.

Claims of SparseMixer (https://arxiv.org/abs/2310.00811) on 200 problems of three kinds of loss. One table, estimators:
medians and the values of every problem, so that two estimators are compared problem by problem. Seconds.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.moe.experiments.steps.gradients import LOSSES, estimators
from course_lib.measure.experiment import Experiment, Step


@dataclass(frozen=True)
class Sizes:
    """Problems of a kind, and how many tokens an estimate is averaged over."""

    problems: int = 200
    tokens: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000, 3000)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(loss, partial(estimators, loss, sizes.problems, sizes.tokens)) for loss in LOSSES]


EXPERIMENT = Experiment("Gradients of a router, enumerated", Sizes(), Sizes(5, (1, 10)), steps)
