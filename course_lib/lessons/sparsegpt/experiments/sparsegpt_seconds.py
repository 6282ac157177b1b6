"""The time and memory that pruning needs. Run it on an idle machine.

Times depend on the machine, so they have their own result file; perplexities may come from another machine.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from course_lib.lessons.common import benchmarks
from course_lib.lessons.sparsegpt.experiments import sparsegpt
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """Calibration windows, tokens per window, and the number of transformer blocks (None: all)."""

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
    """Measure the seconds of each phase, and the largest size of activations and Gram matrices in bytes."""
    pruner = sparsegpt.METHODS[method](sparsegpt.pattern_of(method, pattern))
    of_pruning = sparsegpt.Sizes(benchmarks.Sizes(length=sizes.length), sizes.n_blocks)
    _, _, report = sparsegpt.pruned(of_pruning, seed, pruner, sizes.windows)
    label: dict[str, Any] = {"method": method, "pattern": pattern, "calibration_tokens": report.n_tokens}
    return {"seconds": [label | report.seconds | {f"bytes_{what}": n for what, n in report.bytes.items()}]}


EXPERIMENT = Experiment("Seconds and bytes of pruning", Sizes(), Sizes(2, 64, 3), steps)
