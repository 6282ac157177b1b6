"""The committed measurements of lesson 12: one row a recipe, by names, from whatever is measured by now."""

from collections.abc import Sequence
from typing import Any

from course_lib.compose.shares import Subset
from course_lib.lessons.capstone.recipes import FIVE, five, grid, text_of
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples

DENSE = "dense"
DOMAINS = {"wikipedia": "Wikipedia", "boolq": "BoolQ"}  # by their names in tables
PARTS = {
    "prune": "SparseGPT 50 %",
    "round": "3 bits",
    "cache": "H2O 20 %, 4 bits",
    "neurons": "CATS 50 %",
    "prompt": "prompt",
}
NAMES = {text_of(parts): name for name, parts in grid()}  # of the grid's recipes


def results() -> Measured:
    """What `course reproduce capstone` measured; no rows where that is not done."""
    return _own("measured")


def of_grid() -> Measured:
    """What `course reproduce capstone_front` measured; no rows where that is not done."""
    return _own("experiments/capstone_front")


def of_drafts() -> Measured:
    """What `course reproduce capstone_drafts` measured; no rows where that is not done."""
    return _own("experiments/capstone_drafts")


def _own(name: str) -> Measured:
    try:
        return load_measured("capstone", name)
    except ValueError:
        return {"tables": {}}


def some(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """Rows of a table; none where it is not measured."""
    tables = measured.get("tables", measured)
    return rows(measured, table, **wanted) if table in tables else []


def named(chosen: Subset) -> str:
    """The grid's name of a subset of the five parts, or its parts."""
    if known := NAMES.get(text_of(five(chosen))):
        return known
    weights = chosen & {"prune", "round"}
    others = [PARTS[name] for name in FIVE if name in chosen - weights]
    return " + ".join([named(weights), *others] if weights else others)


def recipes(measured: Measured | None = None, other: Measured | None = None) -> list[Row]:
    """Every recipe once, with its name, bytes and losses: the 32 subsets, then what the grid has beside them.

    Both experiments read the same windows, so that all can be paired.

    Raises:
        ValueError: results of which one read other windows than the other.
    """
    measured, other = measured or results(), other or of_grid()
    for key in ("windows", "length"):
        read = [each["sizes"][key] for each in (measured, other) if "sizes" in each]
        if len(set(read)) > 1:
            raise ValueError(f"got results with {key} = {read[0]} and {read[1]}; expected the same windows for both.")
    subsets = [row | {"name": named(frozenset(row["parts"]))} for row in some(measured, "subsets")]
    known = {row["name"] for row in subsets}
    return subsets + [row for row in some(other, "grid") if row["name"] not in known]


def one(recipes: Sequence[Row], name: str) -> Row | None:
    """The recipe of that name; None where it was not measured."""
    return next((row for row in recipes if row["name"] == name), None)


def held(row: Row) -> int:
    """Bytes of weights and cache together."""
    return row["stored"] + row["cache"]


def cost(row: Row, read: bool = False) -> int:
    """Bytes held, or read for a token."""
    return row["read"] if read else held(row)


def above(row: Row, other: Row, domain: str) -> Effect:
    """By how many nats a token it reads worse than the other, on the windows that both have read."""
    n = min(len(row[domain]), len(other[domain]))
    return of_samples([a - b for a, b in zip(row[domain][:n], other[domain][:n], strict=True)])


def worse(row: Row, other: Row) -> Effect:
    """The same of the domain in which it loses more."""
    return max((above(row, other, domain) for domain in DOMAINS), key=lambda effect: effect.value)
