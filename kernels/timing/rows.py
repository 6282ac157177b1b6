"""The rows of a bench: each is one side of one contest, checked, timed, and compared with its bound and its anchor."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from course_lib.kernels.timing.contest import (
    Clock,
    Contest,
    DoesNotFit,
    Side,
    poisoned_outputs,
    race,
    relative_error,
    run_once,
    time_alone,
)

from course_lib.measure.roofline import Device

RESULTS = Path(__file__).parents[1] / "bench" / "results"  # measurements that are kept, one JSON a device and bench
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}  # relative; a wrong index or mask is off by about 1
REPETITIONS = (5, 30)  # at least, at most
LAST_WORDS = 1000  # characters that are kept of an error
SECONDS = 8.0  # for one contest, unless the fewest repetitions take longer
SECONDS_ALONE = 0.2  # the same for a side that is timed alone


def measure(
    contest: Contest,
    clock: Clock,
    limit: Device,
    tolerance: float,
    seconds: float = SECONDS,
    refused: dict[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return one row per side: first the result is checked, then the side is timed. Wrong sides are not timed.

    If a side raises an error, the error is raised; with `refused`, it is stored there and the side has no row.
    """
    rows = measured(contest, clock, limit, tolerance, seconds, refused)
    return [row for some in rows for row in some]


def measured(
    contest: Contest,
    clock: Clock,
    limit: Device,
    tolerance: float,
    seconds: float = SECONDS,
    refused: dict[str, str] | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows when they are known: all at once, or one by one if the sides are timed alone."""
    if any(side.opened for side in contest.sides):
        yield from _one_after_another(contest, clock, limit, tolerance, refused)
        return
    times: dict[str, list[float]] = {}
    errors = relative_errors(contest, refused, clock, times)
    contest = replace(contest, sides=[side for side in contest.sides if side.name in errors])
    right = [side for side in contest.sides if errors[side.name] <= tolerance]
    if not contest.once:
        times = race(replace(contest, sides=right), clock, seconds, REPETITIONS)
    anchor, rows = contest.sides[0].name if contest.sides else "", []
    for side in contest.sides:
        row = _row(contest, side, anchor, errors[side.name], side in right, limit)
        rows.append(row | _statistics(times, side.name, anchor, row["bound_seconds"]))
    yield rows


def _one_after_another(
    contest: Contest, clock: Clock, limit: Device, tolerance: float, refused: dict[str, str] | None
) -> Iterator[list[dict[str, Any]]]:
    """Yield one row per side, or none if it cannot run; the first side that was timed is the anchor."""
    times: dict[str, list[float]] = {}
    for side in contest.sides:
        errors = relative_errors(replace(contest, sides=[side]), refused)
        right = errors.get(side.name, math.nan) <= tolerance
        if right and (seconds := _seconds_alone(side, clock, contest.absent, refused)):
            times[side.name] = seconds
        if not errors or (right and side.name not in times):
            yield []
            continue
        anchor = next(iter(times), contest.sides[0].name)
        row = _row(contest, side, anchor, errors[side.name], right, limit) | {"alone": True}
        row |= _statistics(times, side.name, anchor, row["bound_seconds"], paired=False)
        if row["repetitions"] and side.numbers:
            row["numbers"] = side.numbers(row["median_seconds"])
        yield [row]


def _seconds_alone(side: Side, clock: Clock, absent: dict[str, str], refused: dict[str, str] | None) -> list[float]:
    """Return the times, or nothing if the side does not fit or was refused; `absent` or `refused` gets the reason."""
    try:
        return time_alone(side, clock, SECONDS_ALONE, REPETITIONS)
    except DoesNotFit as why:
        absent[side.name] = str(why)
    except Exception as error:  # as in `relative_errors`
        if refused is None:
            raise
        refused[side.name] = _words(error)
    return []


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LAST_WORDS]


def _row(contest: Contest, side: Side, anchor: str, error: float, right: bool, limit: Device) -> dict[str, Any]:
    row = {"contest": contest.name, "shape": contest.shape, "side": side.name, "anchor": anchor}
    row |= {"right": right, "relative_error": error}
    return row | {"bytes": side.work.bytes, "flops": side.work.flops, "bound_seconds": side.work.seconds(limit)}


def relative_errors(
    contest: Contest,
    refused: dict[str, str] | None = None,
    clock: Clock | None = None,
    times: dict[str, list[float]] | None = None,
) -> dict[str, float]:
    """Return the error of each side. Values that a side does not write are NaN, not the result of an earlier side.

    Each side runs once, since some continue from their last state. In a contest that runs only once, `times` gets the
    seconds of that run.
    """
    errors = {}
    for side in contest.sides:
        try:
            if contest.once and clock:
                errors[side.name], seconds = run_once(side, contest, clock)
                times[side.name] = [seconds]
                continue
            with poisoned_outputs():
                got = side.run()
            errors[side.name] = relative_error(got, contest.expected if side.expected is None else side.expected)
        except Exception as error:  # after any error, the other sides still have to run
            if refused is None:
                raise
            refused[side.name] = _words(error)
    return errors


def _statistics(
    seconds: dict[str, list[float]], side: str, anchor: str, bound: float, paired: bool = True
) -> dict[str, Any]:
    """Return median and spread of a side, and of its speed relative to the anchor.

    If the sides took turns, speeds are compared within each repetition; otherwise the range comes from both spreads.
    """
    if side not in seconds or anchor not in seconds:
        return {"repetitions": 0}
    median, low, high = _spread(seconds[side])
    if paired:
        ratio, ratio_low, ratio_high = _spread([a / b for a, b in zip(seconds[anchor], seconds[side], strict=True)])
    else:
        of_anchor, anchor_low, anchor_high = _spread(seconds[anchor])
        ratio, ratio_low, ratio_high = of_anchor / median, anchor_low / high, anchor_high / low
    row = {"repetitions": len(seconds[side]), "median_seconds": median, "low_seconds": low, "high_seconds": high}
    row |= {"share_of_bound": bound / median, "times_anchor": ratio}
    return row | {"times_anchor_low": ratio_low, "times_anchor_high": ratio_high}


def _spread(values: list[float]) -> tuple[float, float, float]:
    """Return median, 10th and 90th percentile; a single value stands for all three."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return statistics.median(values), deciles[0], deciles[-1]


def verdict(row: dict[str, Any]) -> str:
    """Compare with the anchor; if the range contains 1, the verdict is "even"."""
    if not row["right"]:
        return "wrong"
    if row["side"] == row["anchor"]:
        return "anchor"
    if not row["repetitions"]:
        return "not timed"
    if row["times_anchor_low"] > 1:
        return "wins"
    return "loses" if row["times_anchor_high"] < 1 else "even"
