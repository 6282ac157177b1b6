"""The stored results of lesson 11 and their rows. A measurement that was stopped early may lack some tables."""

from typing import Any

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, load_measured, rows

TABLES = ("gate", "search", "named", "answers", "read", "heads")
CONTINUED = ("sparse_attention", "steering")  # by the experiment sparse_attention_further


def results(name: str) -> Measured:
    """Load the result of an experiment, joined with the one that continues it."""
    first = load_measured("sparse_attention", name)
    return joined(first, load_measured("sparse_attention", "sparse_attention_further")) if name in CONTINUED else first


def joined(first: Measured, second: Measured | None = None) -> Measured:
    """Add the rows of the measurement that continues the first one."""
    if second is None:
        return first
    tables = {table: first["tables"].get(table, []) + second["tables"].get(table, []) for table in TABLES}
    return first | {"steps": first["steps"] | second["steps"], "tables": {k: v for k, v in tables.items() if v}}


def some(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """Return the rows of that kind; none if the table was not measured."""
    return rows(measured, table, **wanted) if table in measured["tables"] else []


def one(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """Return the only row of that kind; None if it was not measured."""
    found = some(measured, table, **wanted)
    return found[0] if found else None
