"""Store the results: one file per student, written whole, so that an interrupted run loses no finished result."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from course_lib.grading.intake.submissions import file_name
from course_lib.grading.records import FAILED, CaseResult, ExerciseResult, Result


def to_json(result: Result) -> dict[str, Any]:
    """Convert a result to plain data."""
    return asdict(result)


def from_json(stored: dict[str, Any]) -> Result:
    """Convert the output of `to_json` back to a result.

    Raises:
        TypeError, KeyError: if `stored` has another form.
    """
    exercises = tuple(_exercise(**fields) for fields in stored["exercises"])
    failed = {"grader_failed": stored["problem"].startswith(FAILED)}  # which earlier versions did not store
    return Result(**failed | stored | {"exercises": exercises, "notes": tuple(stored["notes"])})


def _exercise(**fields: Any) -> ExerciseResult:
    lists = {name: tuple(fields[name]) for name in ("notes", "touched", "uses")}
    return ExerciseResult(**fields | lists | {"cases": tuple(CaseResult(**case) for case in fields["cases"])})


def path_of(out: Path, student: str) -> Path:
    return out / "results" / f"{file_name(student)}.json"


def save(out: Path, result: Result, key: str) -> None:
    """Store one result. `key` identifies the notebook and the settings of grading."""
    write(path_of(out, result.student), as_json({"key": key, "result": to_json(result)}))


def load(out: Path, student: str, key: str) -> Result | None:
    """Load the stored result if it was made from the same notebook with the same settings."""
    try:
        stored = json.loads(path_of(out, student).read_text(encoding="utf-8"))
        return from_json(stored["result"]) if stored["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # missing, written in part or by another version, or edited: graded again


def as_json(data: Any) -> str:
    """Return strict JSON. Lone surrogates are not escaped, so that `write` sees them."""
    return json.dumps(data, indent=1, ensure_ascii=False)


def write(path: Path, text: str) -> None:
    """Write the file whole or not at all. Lone surrogates, as in a hostile notebook, become question marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(text.encode("utf-8", errors="replace"))
    temporary.replace(path)
