"""Steps beyond SparseGPT: Refit computes the least-squares weights on its mask, SparseSwaps improves the mask first.

Swaps take several times as long, so they are measured only at 50 % and 2:4 and without tasks, on the windows of the
curves. The sweep measured the other methods at 50 % on the same windows.
"""

from functools import partial

from course_lib.lessons.sparsegpt.experiments import sparsegpt
from course_lib.measure.experiment import Experiment, Step, Tables

SUCCESSORS = (("swaps + refit", "50%"), *((m, "2:4") for m in ("wanda", *sparsegpt.NEW, "swaps + refit")))


def steps(sizes: sparsegpt.Sizes) -> list[Step]:
    return [Step(f"successor: {m} {pattern}", partial(successor, sizes, m, pattern)) for m, pattern in SUCCESSORS]


def successor(sizes: sparsegpt.Sizes, method: str, pattern: str, seed: int) -> Tables:
    """Measure one method on the windows of the curves."""
    row = sparsegpt.curve_point(sizes, sparsegpt.METHODS[method](sparsegpt.pattern_of(method, pattern)), seed)
    return {"successors": [{"method": method, "pattern": pattern} | row]}


EXPERIMENT = Experiment("Steps beyond SparseGPT", sparsegpt.Sizes(), sparsegpt.QUICK, steps)
