"""Where the time of pruning goes, and what is held at most. To be measured on a machine left alone.

Times belong to one machine, so they lie in a file of their own: perplexities may come from another machine, a busy one.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from course_lib.lessons.common import benchmarks
from course_lib.lessons.sparsegpt import experiment
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """Calibration windows, tokens of each, and how many of the model's first blocks, all of them for None."""

    windows: int = 32
    length: int = 512
    n_blocks: int | None = None


def steps(sizes: Sizes) -> list[Step]:
    return [
        Step(f"seconds: {method} {pattern}", partial(seconds, sizes, method, pattern))
        for pattern in ("50%", "2:4")
        for method in ("wanda", "sparsegpt")
    ]


def seconds(sizes: Sizes, method: str, pattern: str, seed: int) -> Tables:
    """Seconds by phase, and bytes of activations and Gram matrices at their largest."""
    pruner = experiment.METHODS[method](experiment.pattern_of(method, pattern))
    of_pruning = experiment.Sizes(benchmarks.Sizes(length=sizes.length), sizes.n_blocks)
    _, _, report = experiment.pruned(of_pruning, seed, pruner, sizes.windows)
    label: dict[str, Any] = {"method": method, "pattern": pattern, "calibration_tokens": report.n_tokens}
    return {"seconds": [label | report.seconds | {f"bytes_{what}": n for what, n in report.bytes.items()}]}


EXPERIMENT = Experiment("Seconds and bytes of pruning", Sizes(), Sizes(2, 64, 3), steps)
