"""What `course reproduce` measures: an experiment is a list of steps, each of which gives rows of tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUICK_RESULTS = Path("build") / "reproduce"

Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Step:
    """One resumable piece of work. `run(seed)` returns rows of plain data by table."""

    name: str
    run: Callable[[int], Tables]


@dataclass(frozen=True)
class Experiment:
    """`sizes` and `quick`, two of one dataclass, say how much is measured; `steps` turns either into the work to do.

    A quick run has `quick_part` alone of the default model: its first blocks, and of each MLP the first neurons; of the
    vocabulary it has a part of one size. It is None for those that look at what lies beyond.
    """

    title: str
    sizes: Any
    quick: Any
    steps: Callable[[Any], list[Step]]
    seed: int = 0
    quick_part: tuple[int, int] | None = (4, 192)
