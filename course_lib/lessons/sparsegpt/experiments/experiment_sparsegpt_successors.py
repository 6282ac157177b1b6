"""Steps beyond SparseGPT: Refit finds the best weights on its mask, SparseSwaps looks for a better mask first.

Swaps take several times as long, and so are measured at half of the weights only, without tasks: on the windows of the
curves, where the sweep has the other methods at 50 %.
"""

from functools import partial

from course_lib.lessons.sparsegpt import experiment
from course_lib.measure.experiment import Experiment, Step, Tables

SUCCESSORS = (("swaps + refit", "50%"), *((m, "2:4") for m in ("wanda", *experiment.NEW, "swaps + refit")))


def steps(sizes: experiment.Sizes) -> list[Step]:
    return [Step(f"successor: {m} {pattern}", partial(successor, sizes, m, pattern)) for m, pattern in SUCCESSORS]


def successor(sizes: experiment.Sizes, method: str, pattern: str, seed: int) -> Tables:
    """One more method on the windows of the curves."""
    row = experiment.curve_point(sizes, experiment.METHODS[method](experiment.pattern_of(method, pattern)), seed)
    return {"successors": [{"method": method, "pattern": pattern} | row]}


EXPERIMENT = Experiment("Steps beyond SparseGPT", experiment.Sizes(), experiment.QUICK, steps)
