"""Claims of lesson 08 on one sink beside four, positions that are far away, and the length of a stream."""

import math
from typing import Any

from course_lib.lessons.common.effects import log_gap, of_repetitions
from course_lib.lessons.common.tables import load_bench, rows
from course_lib.lessons.common.verdicts import Effect, of_independent, of_samples, verdict
from course_lib.lessons.sinks.claims import measured as stream
from course_lib.measure.paired import mean_and_error

NOT_ENOUGH = 1.01  # times the perplexity
STEADY = 1.05
AFRESH = 22.0  # times as fast, in the paper


def one_sink(measured: dict[str, Any]) -> Effect:
    """By how much one sink is worse than four, beyond 1 % of perplexity."""
    one, four = stream.by_block(measured, "1 sink", "4 sinks")
    return of_samples(one - four, math.log(NOT_ENOUGH))


def far_away(measured: dict[str, Any]) -> Effect:
    """What positions of the text cost beside places in the cache, at the largest distance of the sinks."""
    farthest = max(row["gap"] for row in rows(measured, "gaps"))
    original, rolling = (
        rows(measured, "gaps", positions=positions, gap=farthest)[0] for positions in ("original", "rolling")
    )
    return log_gap(rolling, original)


def steady(measured: dict[str, Any]) -> Effect:
    """By how much the second half of the stream stays below 1.05 times the perplexity of the first."""
    (blocks,) = stream.by_block(measured, "4 sinks")
    first, second = blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]
    rise = of_independent(mean_and_error(first), mean_and_error(second))
    return Effect(value=math.log(STEADY) - rise.value, error=rise.error, n=len(second))


def faster(bench: dict[str, Any]) -> Effect:
    """How much faster a token of the stream is than the largest window read anew, beyond the paper's factor."""
    contests = [row for row in bench["tables"]["sides"] if row["contest"] == "a token of a stream"]
    largest = max((row for row in contests if row["side"] != row["anchor"]), key=lambda row: row["shape"])
    return of_repetitions(largest, AFRESH)


def further_verdict(measured: dict[str, Any] | None = None, bench: dict[str, Any] | None = None) -> str:
    """Each with its effect."""
    measured, bench = measured or stream.results(), bench or load_bench("cpu_kv")
    judged = {
        "one sink is not enough, four are better by over 1 %": one_sink(measured),
        "far sinks need positions of the cache": far_away(measured),
        f"the second half of a stream has at most {STEADY} times the perplexity of the first": steady(measured),
        f"a token of a stream is over {AFRESH:.0f} times as fast as the largest window read anew": faster(bench),
    }
    return "\n".join(f"Claim: {claim}: {verdict(effect, larger_models=True)}" for claim, effect in judged.items())
