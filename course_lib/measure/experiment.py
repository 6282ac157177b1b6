"""What `course reproduce` measures: an experiment is a list of steps, each of which gives rows of tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.models import Part

QUICK_RESULTS = Path("build") / "reproduce"

SMALL = Part()
Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Step:
    """One resumable piece of work. `run(seed)` returns rows of plain data by table."""

    name: str
    run: Callable[[int], Tables]


@dataclass(frozen=True)
class Experiment:
    """`sizes` and `quick`, two of one dataclass, say how much is measured; `steps` turns either into the work to do.

    A quick run has `quick_part` alone of the default model. It is None for those that look at what lies beyond.
    """

    title: str
    sizes: Any
    quick: Any
    steps: Callable[[Any], list[Step]]
    seed: int = 0
    quick_part: Part | None = SMALL
