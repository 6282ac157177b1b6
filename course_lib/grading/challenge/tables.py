"""Write the files of a graded challenge: the ranking, the full data, and the tables that course systems import."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from course_lib.grading.challenge.ranking import Row
from course_lib.grading.export.csv_safe import MARK, cell, written
from course_lib.grading.report.text import NAME, number

COLUMNS = ("place", "student", "points", "of", "state", "held_mb", "held_share", "read_share", "nats", "error")
COLUMNS += ("domain", "swing", "reason", "file", "notes")


def ranking_csv(rows: Sequence[Row], full: float) -> str:
    """Return challenge.csv: one row per student, the best first, including students whose recipe was refused."""
    return MARK + written(COLUMNS, [_line(row, full) for row in rows])


def _line(row: Row, full: float) -> list[str]:
    side, measured = row.judged, [""] * 6
    if side is not None:
        domain, (mean, error) = side.worse
        measured = [f"{side.found.held / 1e6:.2f}", f"{side.held:.4f}", f"{side.read:.4f}"]
        measured += [f"{mean:.4f}", f"{error:.4f}", domain]
    head = [str(row.place or ""), cell(row.student, NAME), "" if row.failed else number(row.points), number(full)]
    swing = f"{row.swing:.2f}" if row.place else ""
    return [*head, row.state, *measured, swing, cell(row.reason), cell(row.origin), cell("; ".join(row.notes))]


def as_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the data of challenge.json."""
    return [asdict(row) for row in rows]
