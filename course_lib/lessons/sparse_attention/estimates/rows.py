"""The rows of a measurement that may have been stopped: what is not there is said, not supposed."""

from pathlib import Path
from typing import Any

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, load_measured, origin, rows, wrapped
from course_lib.measure.experiment import Step

LESSON = Path(__file__).parents[1]
TABLES = ("gate", "search", "named", "answers", "read", "heads")


def load_joined(name: str, further: str) -> Measured:
    """A committed measurement, and the rows of the one that continues it where that was made."""
    first = load_measured("sparse_attention", name)
    if not (LESSON / f"{further}.json").exists():
        return first
    return joined(first, load_measured("sparse_attention", further))


def joined(first: Measured, second: Measured | None = None) -> Measured:
    """A measurement with the rows of the one that continues it."""
    if second is None:
        return first
    tables = {table: first["tables"].get(table, []) + second["tables"].get(table, []) for table in TABLES}
    both = {"steps": first["steps"] | second["steps"], "tables": {k: v for k, v in tables.items() if v}}
    return first | both | {"joined": f"with `{second['command']}`, {second['started'][:10]}"}


def some(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """The rows of that kind; none where the table was not reached."""
    return rows(measured, table, **wanted) if table in measured["tables"] else []


def one(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """The only row of that kind; None where it was not measured."""
    found = some(measured, table, **wanted)
    return found[0] if found else None


def provenance(measured: Measured, amounts: str, further: list[Step] | None = None) -> str:
    """What was run, where, when, with how much; and what `sparse_attention_further` added, or has not added yet."""
    text = origin(measured, f"{amounts}; {measured['joined']}" if "joined" in measured else amounts)
    missing = [step.name for step in further or [] if step.name not in measured["steps"]]
    if not missing:
        return text
    said = f"Not measured: {len(missing)} further steps, the first of them {missing[0]}"
    return text + "\n" + wrapped(f"{said}. `course reproduce sparse_attention_further` measures them.")
