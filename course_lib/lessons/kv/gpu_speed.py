"""How fast caches decode on a GPU, from the bench "decoding" of `make gpu`: a model of 8B parameters, random weights.

Each side of this bench is timed alone. The error of a median follows from the repetitions, and says nothing of how much
another run would differ.
"""

import math
import re
from typing import Any

from course_lib.lessons.common import gpu
from course_lib.lessons.common.claim import TIMES
from course_lib.lessons.common.effects import Row, of_repetitions
from course_lib.lessons.common.verdicts import Effect

BENCH = "decoding"
FULL, H2O, D2O = "Full", "H2O, 20 %", "D2O, 20 %"
LIKE_FULL = r"batch \d+, [\d,]+ tokens"  # contests with a CUDA graph and the library's own layers
LARGEST = "largest batch"
Measured = dict[str, Any]


def speedups(measured: Measured, side: str = H2O) -> dict[str, Effect]:
    """Log of the full cache's time per step over that of a side, by batch and length, where both fit and were timed."""
    return {
        row["contest"]: of_repetitions(row)
        for row in gpu.timed(BENCH, sides=[side], measured=measured)
        if row["anchor"] == FULL and row["repetitions"] and re.fullmatch(LIKE_FULL, row["contest"])
    }


def show_speedups(measured: Measured) -> str:
    return ", ".join(f"{TIMES(effect)} ({contest})" for contest, effect in speedups(measured).items())


def throughput_gain(measured: Measured, side: str) -> Effect:
    """Log of a side's tokens per second over those of the full cache, each at its own largest batch."""
    mine, full = (_at_largest_batch(measured, name) for name in (side, FULL))
    value = math.log(_tokens_per_second(mine) / _tokens_per_second(full))
    errors = [_of_own_seconds(row).error for row in (mine, full)]
    return Effect(value=value, error=math.hypot(*errors), n=min(mine["repetitions"], full["repetitions"]))


def show_throughput(measured: Measured, side: str) -> str:
    mine, full = (_at_largest_batch(measured, name) for name in (side, FULL))
    each = [
        f"{row['numbers']['largest_batch']} sequences, {_tokens_per_second(row):,.0f} tokens per second"
        for row in (mine, full)
    ]
    return f"{TIMES(throughput_gain(measured, side))}: {each[0]}; the full cache {each[1]}"


def _at_largest_batch(measured: Measured, side: str) -> Row:
    rows = gpu.timed(BENCH, sides=[side], measured=measured)
    (row,) = (row for row in rows if row["contest"].startswith(LARGEST))
    return row


def _tokens_per_second(row: Row) -> float:
    return row["numbers"]["tokens_per_second"]


def _of_own_seconds(row: Row) -> Effect:
    """The median time of a step, as a logarithm: rows of different contests have no anchor in common."""
    ends = {"": "median", "_low": "low", "_high": "high"}
    times = {f"times_anchor{end}": row[f"{name}_seconds"] for end, name in ends.items()}
    return of_repetitions(times | {"repetitions": row["repetitions"]})
