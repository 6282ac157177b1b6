"""Models of one seed side by side: what `course reproduce moe` and `moe_routers` measured, as one.

They read the same bytes in the same order. Window by window a seed is a case of a claim; where a single number is known
of each model, a seed is a sample.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples

Row = dict[str, Any]


def joined(measured: Measured, routers: Measured) -> Measured:
    """The rows of both.

    Raises:
        ValueError: for results of other bytes, steps or windows.
    """
    sizes = [{key: value for key, value in each["sizes"].items() if key != "kinds"} for each in (measured, routers)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"got results of sizes {sizes[0]} and {sizes[1]}; expected the same. Measure both anew.")
    tables = (measured["tables"], routers["tables"])
    names = dict.fromkeys(name for each in tables for name in each)
    return {"tables": {name: [row for each in tables for row in each.get(name, ())] for name in names}}


def busiest(block: Row) -> float:
    """The share of the expert with most choices."""
    return max(block["load"])


def of_seeds(found: Measured, name: str, key: str | Callable[[Row], float]) -> dict[int, float]:
    """A number of each block, the mean over blocks, by seed."""
    of_block = key if callable(key) else lambda block: block[key]
    return {row["seed"]: fmean(map(of_block, row["blocks"])) for row in rows(found, "models", model=name)}


def falls(found: Measured, name: str, twin: str, key: str | Callable[[Row], float]) -> Effect:
    """By how much that number is lower than the twin's; a seed is a sample."""
    mine, theirs = (of_seeds(found, each, key) for each in (name, twin))
    return of_samples([theirs[seed] - mine[seed] for seed in mine])


def gains(better: Sequence[Row], worse: Sequence[Row]) -> list[list[float]]:
    """Of each seed and window, by how much the second is above the first."""
    other = {row["seed"]: row["losses"] for row in worse}
    return [[high - low for low, high in zip(row["losses"], other[row["seed"]], strict=True)] for row in better]


def costs_more(found: Measured, dear: tuple[str, str], cheap: tuple[str, str]) -> list[list[float]]:
    """Of each seed and window, how much more the dear way from its first model to its second costs than the cheap."""
    costs = [gains(*(rows(found, "models", model=name) for name in pair)) for pair in (dear, cheap)]
    return [[a - b for a, b in zip(*of_seed, strict=True)] for of_seed in zip(*costs, strict=True)]
