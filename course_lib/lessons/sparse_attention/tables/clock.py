"""FlexPrefill on the clock: what `course bench sparse_prefill` measured beside torch's fused attention over all blocks.

Choosing blocks costs time, and a loop over blocks does not run at the speed of one fused call: so a density below 1 is
no gain yet. Ratios are those of the bench's own repetitions, side beside anchor.
"""

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, load_bench, origin
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates.clock import CHOSEN, CHOSEN_AND_READ, READ, WHOLE, by_place, timed


def results() -> Measured:
    """The committed bench."""
    return load_bench("cpu_sparse_prefill")


def provenance(bench: Measured) -> str:
    """What was timed, where, when."""
    return origin(bench, "queries and keys of real text in five layers, float32; then the whole model's prefill")


def table(bench: Measured) -> str:
    """By length and γ: how many times as fast as dense attention, with the choice inside the time and without it."""
    heading = f"{'tokens':>6}{'γ':>6}{'density':>9}{'choose and read':>20}{'read alone':>18}"
    lines = [
        heading + f"{'choice':>11}{'whole model':>20}",
        "        (times as fast as dense, with 10 and 90 % of repetitions; the choice: % of its time)",
    ]
    alone, whole = (by_place(timed(bench, side)) for side in (READ, WHOLE))
    choice = by_place(timed(bench, CHOSEN))
    for row in timed(bench, CHOSEN_AND_READ):
        place = row["tokens"], row["gamma"]
        cells = f"{_times(row):>20}{_times(alone[place]):>18}{100 / choice[place]['times_anchor']:>9.0f} %"
        cells += f"{_times(whole[place]):>20}" if place in whole else f"{'not timed':>20}"
        lines.append(f"{row['tokens']:>6}{row['gamma']:>6g}{row['density']:>9.2f}{cells}")
    return "\n".join(lines)


def verdicts(bench: Measured) -> str:
    """Is attention faster, is the whole prefill, and is it as much faster as the density promises?"""
    return report(claims.CLOCK_CLAIMS, bench)


def _times(row: Row) -> str:
    """The middle of the repetitions, and their 10 and 90 % points."""
    return f"{row['times_anchor']:.2f} ({row['times_anchor_low']:.2f}-{row['times_anchor_high']:.2f})"
