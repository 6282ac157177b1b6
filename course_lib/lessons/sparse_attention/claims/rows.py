"""The rows of a measurement that may have been stopped: what is not there is said, not supposed."""

from typing import Any

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, origin, rows, wrapped
from course_lib.measure.experiment import Experiment


def some(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """The rows of that kind; none where the table was not reached."""
    return rows(measured, table, **wanted) if table in measured["tables"] else []


def one(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """The only row of that kind; None where it was not measured."""
    found = some(measured, table, **wanted)
    return found[0] if found else None


def provenance(measured: Measured, of: Experiment, amounts: str) -> str:
    """What was run, where, when, with how much, and which steps of the whole plan are missing."""
    planned = (step.name for step in of.steps(of.sizes))
    missing = [name for name in planned if name not in measured["steps"]]
    text = origin(measured, amounts)
    if missing and measured["sizes"]:
        text += "\n" + wrapped(
            f"Not measured: {len(missing)} steps of the plan, the first of them {'; '.join(missing[:3])}. "
            f"`{measured['command']}` goes on with them."
        )
    return text
