"""A student's progress: solved and attempted exercises and hints. It is stored by exercise, not by notebook."""

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import platformdirs
from filelock import FileLock
from rich.console import Console
from rich.table import Table

from course_lib.workbook.folders import to_open
from course_lib.workbook.outline import outlines


@dataclass
class Record:
    """The state of one exercise."""

    attempts: int = 0
    hints: int = 0
    solved: str | None = None  # time of the first right answer, ISO 8601


def home() -> Path:
    """Return the folder of a student's progress: COURSE_HOME, else the user's data folder."""
    return Path(os.environ.get("COURSE_HOME") or platformdirs.user_data_dir("sparsity-workbook"))


def load() -> dict[str, Record]:
    """Load all records. A file that cannot be read is kept under another name, never overwritten."""
    path = home() / "progress.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {name: _record(**fields) for name, fields in stored.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        os.replace(path, path.with_name(f"progress.unreadable-{stamp}.json"))
        return {}


def _record(attempts: int = 0, hints: int = 0, solved: str | None = None) -> Record:
    """Make a record of the right types, or raise: a file edited by hand may contain anything."""
    return Record(int(attempts), int(hints), None if solved is None else str(solved))


def update(exercise_id: str, *, attempts: int = 0, hints: int = 0, solved: bool = False) -> Record:
    """Add to the record of one exercise and return it. The file is locked, so two notebooks may be open."""
    home().mkdir(parents=True, exist_ok=True)
    with FileLock(home() / "progress.lock"):
        records = load()
        record = records.setdefault(exercise_id, Record())
        record.attempts += attempts
        record.hints += hints
        if solved and record.solved is None:
            record.solved = datetime.now(UTC).isoformat(timespec="seconds")
        fresh = home() / f"progress.{os.getpid()}.tmp"
        fresh.write_text(json.dumps({name: asdict(r) for name, r in records.items()}, indent=1), encoding="utf-8")
        os.replace(fresh, home() / "progress.json")
    return record


def seen_hints(exercise_id: str) -> int:
    """Return the number of hints of an exercise that have been shown."""
    return load().get(exercise_id, Record()).hints


def in_lesson(points: dict[str, int]) -> str:
    """Summarise the progress in a lesson: "3 of 8 exercises, 7 of 21 points in this lesson".

    Args:
        points: the points of each exercise of the lesson, by its id.
    """
    records = load()
    solved = [exercise for exercise in points if records.get(exercise, Record()).solved]
    earned = sum(points[exercise] for exercise in solved)
    return f"{len(solved)} of {len(points)} exercises, {earned} of {sum(points.values())} points in this lesson"


def not_kept(error: OSError) -> str:
    """Make the message for a record that could not be written, for example on a full disk."""
    return (
        f"Progress was not stored: cannot write to {home()} ({error.strerror or error}). Set COURSE_HOME to a folder "
        "that you may write to, and start JupyterLab again."
    )


def table() -> Table:
    """Make the table with one row per lesson: solved, attempted, hints used, points."""
    records = load()
    table = Table(title="Progress", caption=f"Stored in {home() / 'progress.json'}", caption_justify="left")
    table.add_column("lesson")
    for column in ("solved", "attempted", "exercises", "hints used", "points"):
        table.add_column(column, justify="right")
    for outline in outlines():
        mine = {exercise: records.get(exercise, Record()) for exercise in outline.points}
        solved = sum(outline.points[exercise] for exercise, record in mine.items() if record.solved)
        table.add_row(
            outline.lesson,
            str(sum(record.solved is not None for record in mine.values())),
            str(sum(record.attempts > 0 for record in mine.values())),
            str(len(mine)),
            str(sum(record.hints for record in mine.values())),
            f"{solved} of {sum(outline.points.values())}",
        )
    return table


def show() -> None:
    """Print the progress table, in a notebook or a terminal."""
    Console().print(table())


def run() -> int:
    """Run `course progress`."""
    show()
    records = load()
    for kept in sorted(home().glob("progress.unreadable-*.json")):
        print(f"A progress file could not be read. It was kept as {kept}")
    if not any(record.attempts for record in records.values()):
        print(f"Nothing attempted yet. Start with: {to_open()}")
    return 0
