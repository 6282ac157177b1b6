"""FlexPrefill's times from `course bench sparse_prefill`, with their length, γ and density, and from `make gpu`."""

import re
from typing import Any

from course_lib.lessons.common import gpu
from course_lib.lessons.common.effects import Row, of_repetitions, side_by_side
from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.verdicts import Effect

CHOSEN_AND_READ, READ, CHOSEN, WHOLE = "choose and read blocks", "read blocks", "choose blocks", "sparse prefill"
FLEX = "read blocks, flex_attention"
ON_A_GPU, WHOLE_ON_A_GPU = "FlexPrefill, index and attention", "FlexPrefill, γ = 0.15"
_CONTEST = re.compile(r"(?P<tokens>\d+) tokens, γ (?P<gamma>[\d.]+), density (?P<density>[\d.]+)$")


def timed(bench: Measured, side: str) -> list[Row]:
    """The rows of a side, each with its length, γ and density."""
    return [row | _parts(row["contest"]) for row in rows(bench, "sides", side=side)]


def _parts(contest: str) -> dict[str, Any]:
    found = _CONTEST.search(contest)
    return {name: (int if name == "tokens" else float)(found[name]) for name in ("tokens", "gamma", "density")}


def by_place(found: list[Row]) -> dict[tuple[int, float], Row]:
    return {(row["tokens"], row["gamma"]): row for row in found}


def case(row: Row) -> str:
    return f"{row['tokens']} tokens at γ {row['gamma']:g}"


def speedups(bench: Measured, side: str) -> dict[str, Effect]:
    """Log of dense attention's time over that of a side, by length and γ."""
    return {case(row): of_repetitions(row) for row in timed(bench, side)}


def longest_speedups(bench: Measured) -> dict[str, Effect]:
    """The same for choosing and reading blocks of the longest text."""
    both = timed(bench, CHOSEN_AND_READ)
    longest = max(row["tokens"] for row in both)
    return {case(row): of_repetitions(row) for row in both if row["tokens"] == longest}


def speedups_over_flex(bench: Measured) -> dict[str, Effect]:
    """Log of flex_attention's time over that of a loop over the same blocks."""
    loop = by_place(timed(bench, READ))
    return {case(row): side_by_side(loop[row["tokens"], row["gamma"]], row) for row in timed(bench, FLEX)}


def speedups_over_promised(bench: Measured) -> dict[str, Effect]:
    """Log of the speedup of reading alone over 1 / density."""
    return {case(row): of_repetitions(row, 1 / row["density"]) for row in timed(bench, READ)}


def gpu_speedups(run: Measured, side: str) -> dict[str, Effect]:
    """Log of dense attention's time on a GPU over that of a side, by contest: length, kind of heads, density."""
    found = gpu.timed("prefilling", sides=[side], measured=run)
    return {row["contest"].partition(", ")[2]: of_repetitions(row) for row in found}
