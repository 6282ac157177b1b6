"""The results on disk: one file per student, written whole, so that an interrupted run loses no finished result."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from course_lib.grading.intake.submissions import file_name
from course_lib.grading.records import FAILED, CaseResult, ExerciseResult, Result


def to_json(result: Result) -> dict[str, Any]:
    """A result as plain data."""
    return asdict(result)


def from_json(stored: dict[str, Any]) -> Result:
    """The result that `to_json` made.

    Raises:
        TypeError, KeyError: when it is something else.
    """
    exercises = tuple(_exercise(**fields) for fields in stored["exercises"])
    failed = {"grader_failed": stored["problem"].startswith(FAILED)}  # which earlier versions do not tell otherwise
    return Result(**failed | stored | {"exercises": exercises, "notes": tuple(stored["notes"])})


def _exercise(**fields: Any) -> ExerciseResult:
    lists = {name: tuple(fields[name]) for name in ("notes", "touched", "uses")}
    return ExerciseResult(**fields | lists | {"cases": tuple(CaseResult(**case) for case in fields["cases"])})


def path_of(out: Path, student: str) -> Path:
    return out / "results" / f"{file_name(student)}.json"


def save(out: Path, result: Result, key: str) -> None:
    """Keep one result. `key` says what it was graded by and from."""
    write(path_of(out, result.student), as_json({"key": key, "result": to_json(result)}))


def load(out: Path, student: str, key: str) -> Result | None:
    """The kept result, if there is one that was made from the same notebook in the same way."""
    try:
        stored = json.loads(path_of(out, student).read_text(encoding="utf-8"))
        return from_json(stored["result"]) if stored["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # none, half written by another version, or edited: graded again


def as_json(data: Any) -> str:
    """Strict JSON once it is encoded: half a letter stays as it is for `write`, where an escape would pass unseen."""
    return json.dumps(data, indent=1, ensure_ascii=False)


def write(path: Path, text: str) -> None:
    """Whole or not at all. Lone surrogates, which a hostile notebook may bring along, become question marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(text.encode("utf-8", errors="replace"))
    temporary.replace(path)
