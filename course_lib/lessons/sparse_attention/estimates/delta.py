"""Delta-coded keys: what a threshold costs and how many products it leaves out."""

import math
from statistics import fmean

from course_lib.lessons.common.claim import NO_LOSS
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.results import Measured
from course_lib.lessons.common.verdicts import Effect, Effects, of_samples
from course_lib.lessons.sparse_attention.estimates import rows as found

CLOSE = NO_LOSS  # nats per token above the model as it is


def dense(measured: Measured) -> Row:
    """The model as it is."""
    return found.some(measured, "read", theta=0.0)[0]


def above(measured: Measured, row: Row) -> Effect:
    """Its loss minus that of the unchanged model, in nats per token."""
    return log_gap(dense(measured), row)


def main(measured: Measured) -> list[Row]:
    """The thresholds with a window, exact sinks, and keys coded after RoPE."""
    sizes = measured["sizes"]
    return found.some(measured, "read", window=sizes["window"], sinks=sizes["sinks"], side="after")


def below(measured: Measured, row: Row) -> Effect:
    """By how much less than CLOSE it costs."""
    pairs = zip(dense(measured)["losses"], row["losses"], strict=True)
    return of_samples([CLOSE - (coded - whole) for whole, coded in pairs])


def ratio(measured: Measured, row: Row) -> float:
    """Of its perplexity to that of the model as it is, paired."""
    return math.exp(above(measured, row).value)


def left_out(measured: Measured) -> Effect:
    """The largest fraction of the products that is left out at significantly less than CLOSE: exact."""
    fractions = [row["sparsity"] for row in main(measured) if below(measured, row).holds]
    return Effect(value=max(fractions, default=0.0), error=0.0, n=len(dense(measured)["losses"]))


def fractions_and_costs(measured: Measured) -> str:
    """Of all thresholds that were measured: the fraction left out, and the increase of the perplexity."""
    every = sorted(main(measured), key=lambda row: row["sparsity"])
    return ", ".join(f"{100 * row['sparsity']:.0f} % ({100 * ratio(measured, row) - 100:+.1f} %)" for row in every)


def changed(measured: Measured, **change: int | str) -> list[Row]:
    """The rows in which one setting differs from those of `main`."""
    sizes = measured["sizes"]
    return found.some(
        measured, "read", **{"window": sizes["window"], "sinks": sizes["sinks"], "side": "after"} | change
    )


def cost_of_change(measured: Measured, **change: int | str) -> dict[str, Effect]:
    """Loss with one setting changed minus that of `main`, by threshold."""
    by_theta = {row["theta"]: row for row in main(measured)}
    return {f"θ = {row['theta']:g}": log_gap(by_theta[row["theta"]], row) for row in changed(measured, **change)}


def distances(measured: Measured) -> list[float]:
    """By window: squared distance of neighbouring keys over that of any two, mean over layers."""
    return [fmean(row["share"]) for row in found.some(measured, "moved")]


def distance(measured: Measured) -> Effects:
    return of_samples(means) if (means := distances(measured)) else {}


def decoding_difference(measured: Measured) -> Effects:
    """The largest difference between decoding a window and reading it at once, in nats per token."""
    row = found.one(measured, "decoded")
    return Effect(value=row["largest_difference"], error=0.0) if row else {}
