"""FlexPrefill on the clock: what `course bench sparse_prefill` measured beside torch's fused attention over all blocks.

Choosing blocks costs time, and a loop over blocks does not run at the speed of one fused call: so a density below 1 is
no gain yet. Ratios are those of the bench's own repetitions, side beside anchor.
"""

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import Table, number, percent, with_range
from course_lib.lessons.common.tables import Measured, load_bench, origin
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates.clock import CHOSEN, CHOSEN_AND_READ, READ, WHOLE, by_place, timed


def results() -> Measured:
    """The committed bench."""
    return load_bench("cpu_sparse_prefill")


def provenance(bench: Measured) -> str:
    """What was timed, where, when."""
    return origin(bench, "queries and keys of real text in five layers, float32; then the whole model's prefill")


def table(bench: Measured) -> Table:
    """By length and γ: how many times as fast as dense attention, with the choice inside the time and without it."""
    alone, whole = (by_place(timed(bench, side)) for side in (READ, WHOLE))
    choice = by_place(timed(bench, CHOSEN))
    frame = []
    for row in timed(bench, CHOSEN_AND_READ):
        place = row["tokens"], row["gamma"]
        frame.append(
            {"tokens": row["tokens"], "γ": row["gamma"], "density": row["density"]}
            | _times("choose and read", row)
            | _times("read alone", alone[place])
            | {"choice": 1 / choice[place]["times_anchor"]}
            | _times("whole model", whole.get(place))
        )
    columns = ("choose and read", "read alone", "whole model")
    return Table(
        frame,
        caption="Speedup over dense attention",
        formats={"density": number(2), "choice": percent}
        | {tuple(_times(name, None)): with_range(2) for name in columns},
        note="In brackets: 10 % to 90 % of the repetitions. choice: compared with the time of dense attention. A dash: "
        "not timed.",
    )


def verdicts(bench: Measured) -> str:
    """Is attention faster, is the whole prefill, and is it as much faster as the density promises?"""
    return report(claims.CLOCK_CLAIMS, bench)


def _times(name: str, row: Row | None) -> dict[str, float | None]:
    """Three columns: the middle of the repetitions, and their 10 % and 90 % points."""
    ends = {name: "times_anchor", f"{name}, slowest": "times_anchor_low", f"{name}, fastest": "times_anchor_high"}
    return {column: row and row[key] for column, key in ends.items()}
