"""The measurements of `course reproduce`: an experiment is a list of steps, and each step returns rows of tables."""

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
    """An experiment in two sizes, `sizes` and `quick`, of one dataclass; `steps` turns either into a list of steps.

    A quick run uses only the part `quick_part` of the default model; None for experiments that need the whole model.
    """

    title: str
    sizes: Any
    quick: Any
    steps: Callable[[Any], list[Step]]
    seed: int = 0
    quick_part: Part | None = SMALL
