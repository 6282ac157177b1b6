"""`course doctor`: check this machine, and say what works, what does not, and what to do about it."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from course_lib.cli.doctor_checks import CHECKS, Row
from course_lib.measure.progress import bar

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def rows() -> Iterator[Row]:
    """Run every check in turn. A check that raises becomes an error row with its remedy."""
    for what, check, remedy in CHECKS:
        try:
            yield check()
        except Exception as error:  # one broken part must not hide the other rows
            lines = str(error).splitlines()
            yield Row(what, "error", f"{type(error).__name__}: {lines[0] if lines else 'no message'}", remedy)


def as_table(seen: list[Row]) -> Table:
    """Make a table of the rows; there is a column for remedies only if there are any."""
    columns = ["", "", *(Column(heading, overflow="fold") for heading in ("found", "what to do"))]
    headings = columns[: 3 + any(row.remedy for row in seen)]
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
    with bar(console=console) as shown:
        upcoming = [what for what, *_ in CHECKS]
        task = shown.add_task(f"checking {upcoming[0]}", total=len(upcoming))
        for row in rows():
            seen.append(row)
            shown.update(task, advance=1, description=f"checking {' '.join(upcoming[len(seen) :][:1])}")
    console.print(as_table(seen))
    if any(row.state == "error" for row in seen):
        console.print("Something does not work: follow the right-hand column, then run [bold]course doctor[/] again.")
        return 1
    if any(row.state == "warning" for row in seen):
        console.print("This machine is ready. The right-hand column says what to do about the warnings.")
    else:
        console.print("This machine is ready.")
    return 0
