"""FlexPrefill on the clock: what `course bench sparse_prefill` measured beside torch's fused attention over all blocks.

Choosing blocks costs time, and a loop over blocks does not run at the speed of one fused call: so a density below 1 is
no gain yet. Ratios are those of the bench's own repetitions, side beside anchor.
"""

import re
from typing import Any

from course_lib.lessons.common.effects import Row, of_repetitions, side_by_side
from course_lib.lessons.common.table import Table, number, percent, with_range
from course_lib.lessons.common.tables import Measured, load_bench, origin, rows
from course_lib.lessons.common.verdicts import claim

CHOSEN_AND_READ, READ, CHOSEN, WHOLE = "choose and read blocks", "read blocks", "choose blocks", "sparse prefill"
FLEX = "read blocks, flex_attention"
_CONTEST = re.compile(r"(?P<tokens>\d+) tokens, γ (?P<gamma>[\d.]+), density (?P<density>[\d.]+)$")


def results() -> Measured:
    """The committed bench."""
    return load_bench("cpu_sparse_prefill")


def provenance(bench: Measured) -> str:
    """What was timed, where, when."""
    return origin(bench, "queries and keys of real text in five layers, float32; then the whole model's prefill")


def timed(bench: Measured, side: str) -> list[Row]:
    """The rows of a side, each with its length, γ and density."""
    return [row | _parts(row["contest"]) for row in rows(bench, "sides", side=side)]


def table(bench: Measured) -> Table:
    """By length and γ: how many times as fast as dense attention, with the choice inside the time and without it."""
    alone, whole = (_by_place(timed(bench, side)) for side in (READ, WHOLE))
    choice = _by_place(timed(bench, CHOSEN))
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
    both, alone = timed(bench, CHOSEN_AND_READ), timed(bench, READ)
    longest = max(row["tokens"] for row in both)
    at_longest = [of_repetitions(row) for row in both if row["tokens"] == longest]
    loop = _by_place(alone)
    beside_flex = [side_by_side(loop[row["tokens"], row["gamma"]], row) for row in timed(bench, FLEX)]
    promised = [of_repetitions(row, 1 / row["density"]) for row in alone]
    return "\n".join(
        [
            claim("with blocks chosen, attention takes less time, at every length and γ", map(of_repetitions, both)),
            claim(f"it does at {longest} tokens, at every γ", at_longest),
            claim("a loop over the blocks takes less time than flex_attention, compiled", beside_flex),
            claim("the whole prefill takes less time", map(of_repetitions, timed(bench, WHOLE)), larger_models=True),
            claim("reading alone is as many times faster as 1 / density says", promised),
        ]
    )


def _parts(contest: str) -> dict[str, Any]:
    found = _CONTEST.search(contest)
    return {name: (int if name == "tokens" else float)(found[name]) for name in ("tokens", "gamma", "density")}


def _by_place(found: list[Row]) -> dict[tuple[int, float], Row]:
    return {(row["tokens"], row["gamma"]): row for row in found}


def _times(name: str, row: Row | None) -> dict[str, float | None]:
    """Three columns: the middle of the repetitions, and their 10 % and 90 % points."""
    ends = {name: "times_anchor", f"{name}, slowest": "times_anchor_low", f"{name}, fastest": "times_anchor_high"}
    return {column: row and row[key] for column, key in ends.items()}
