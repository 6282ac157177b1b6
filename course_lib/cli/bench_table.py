"""The output of `course bench`: times and bounds by implementation, and sentences on where sparsity is slower."""

from itertools import groupby
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from course_lib.kernels.timing import WORDS
from course_lib.kernels.timing.rows import verdict

COLUMNS = ("median", "bound", "of bound", "speed", "10-90 %", "verdict")


def show(console: Console, name: str, result: dict[str, Any]) -> None:
    """Print one table per comparison of a bench, then its sentences. A table fits into 80 columns."""
    for (contest, shape), rows in groupby(result["tables"]["sides"], lambda row: (row["contest"], row["shape"])):
        title = f"{name}: {contest}, {' x '.join(map(str, shape))}"
        table = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1))
        table.add_column("implementation", overflow="fold")
        for heading in COLUMNS:
            table.add_column(heading, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(Text(row["side"]), *_cells(row))
        console.print(table)
    for sentence in sentences(result["tables"]["sides"], result["absent"]):
        console.print(sentence, markup=False)


def sentences(rows: list[dict[str, Any]], absent: dict[str, str]) -> list[str]:
    """Say where a side is slower, where the difference is within the spread, what is wrong, and what could not run."""
    lines = []
    for word, claim in (("loses", "slower than"), ("even", "within the spread of")):
        by_pair: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            if verdict(row) == word:
                where = f"{row['contest']} ({row['times_anchor']:.2f}x)"
                by_pair.setdefault((row["side"], row["anchor"]), []).append(where)
        lines += [f"'{side}' is {claim} '{anchor}' at: {'; '.join(at)}." for (side, anchor), at in by_pair.items()]
    for row in rows:
        if verdict(row) == "wrong":
            lines.append(f"WRONG: '{row['side']}' at {row['contest']}, relative error {row['relative_error']:.1e}.")
    return lines + [f"Absent: {side}: {why}" for side, why in absent.items()]


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["repetitions"]:
        return ["", _time(row["bound_seconds"]), "", "", "", _word(row)]
    return [
        _time(row["median_seconds"]),
        _time(row["bound_seconds"]),
        f"{100 * row['share_of_bound']:.0f} %",
        f"{row['times_anchor']:.2f}x",
        f"{row['times_anchor_low']:.2f}-{row['times_anchor_high']:.2f}",
        _word(row),
    ]


def _word(row: dict[str, Any]) -> str:
    return WORDS.get(verdict(row), verdict(row))


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"
