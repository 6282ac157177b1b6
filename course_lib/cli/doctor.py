"""Look over this machine and say what works, what does not, and what to do about it; what `course doctor` calls."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_lib.cli.doctor_checks import CHECKS, Row

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def rows() -> Iterator[Row]:
    """Every check, one after the other. One that raises becomes an error row with its remedy."""
    for what, check, remedy in CHECKS:
        try:
            yield check()
        except Exception as error:  # whatever is broken on this machine, the other rows must still come
            lines = str(error).splitlines()
            yield Row(what, "error", f"{type(error).__name__}: {lines[0] if lines else 'no message'}", remedy)


def as_table(seen: list[Row]) -> Table:
    """The rows as a table; the remedies get a column only where there are any."""
    headings = ["", "", "found", "what to do"] if any(row.remedy for row in seen) else ["", "", "found"]
    table = Table(*headings, title="course doctor", title_justify="left")
    for row in seen:
        colour = COLOURS[row.state]
        cells = (row.what, f"[{colour}]{row.state}[/]", escape(row.found), escape(row.remedy))
        table.add_row(*cells[: len(headings)])
    return table


def run(console: Console | None = None) -> int:
    """Print the table. Returns the exit code: 1 when a row is an error."""
    console = console or Console()
    seen = []
    with console.status("Looking this machine over") as status:
        for row in rows():
            status.update(f"Looked at {row.what}")
            seen.append(row)
    console.print(as_table(seen))
    if any(row.state == "error" for row in seen):
        console.print("Something is broken: follow the right-hand column, then run [bold]course doctor[/] again.")
        return 1
    console.print("This machine is ready.")
    return 0
