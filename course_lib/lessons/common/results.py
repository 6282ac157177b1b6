"""What the lessons print of long measurements: where the numbers come from, their rows, and how much was measured."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib import kernels
from course_lib.measure.result_files import load
from course_lib.models import WEIGHTS

Measured = dict[str, Any]

COLUMNS = 100  # of a printed line: what a page beside a notebook's prompts has room for

_LESSONS = Path(__file__).parents[1]


def load_measured(lesson: str, name: str = "measured") -> Measured:
    """What `course reproduce` measured for a lesson; "measured" is the experiment with the lesson's name."""
    return load(result_file(lesson, name))


def result_file(lesson: str, name: str) -> Path:
    """lessons/LESSON/experiments/NAME.json; lessons that do not have that folder yet keep NAME.json in their own."""
    in_experiments = _LESSONS / lesson / "experiments" / f"{lesson if name == 'measured' else name}.json"
    return in_experiments if in_experiments.exists() else _LESSONS / lesson / f"{name}.json"


def load_published(lesson: str) -> Measured:
    """What the authors of a lesson's papers report, with its sources: lessons/LESSON/published.json."""
    return load(_LESSONS / lesson / "published.json")


def load_bench(name: str) -> Measured:
    """What `course bench` measured: kernels/bench/results/NAME.json."""
    return load(Path(kernels.__path__[0]) / "bench" / "results" / f"{name}.json")


def rows(result: Measured, table: str, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of a table, of a result or of its tables alone, in which every wanted column has the wanted value."""
    tables = result.get("tables", result)
    return [row for row in tables[table] if all(row[key] == value for key, value in wanted.items())]


def origin(result: Measured, amounts: str, weights: str = WEIGHTS) -> str:
    """What was run, where, when; then the weights, and how much was measured, in each lesson's own words."""
    machine = result["machine"]
    return wrapped(
        f"`{result['command']}`, seed {result['seed']}, {result['started'][:10]}, {machine['cpu']} "
        f"({machine['cores']} cores), torch {machine['torch']}\n{weights}{'; ' if weights else ''}{amounts}"
    )


def wrapped(text: str) -> str:
    """The same lines, those of more than COLUMNS columns broken at words."""
    return "\n".join(textwrap.fill(line, COLUMNS, break_on_hyphens=False) for line in text.splitlines())


def say(text: str) -> None:
    """Print a text; lines of more than COLUMNS columns are broken at words, and go on indented."""
    for line in text.splitlines():
        print(textwrap.fill(line, COLUMNS, subsequent_indent="    ") if len(line) > COLUMNS else line)


def spaced(name: str) -> str:
    """A name from a table as it is printed, per cent signs apart: 50 % for 50%."""
    return re.sub(r"(?<=\d)%", " %", name)


def percent(share: float, digits: int = 0) -> str:
    """0.5 as 50 %, the sign apart as in the text around it."""
    return f"{100 * share:.{digits}f} %"


def listed(names: Sequence[object]) -> str:
    """Names as one says them: a; a and b; a, b and c."""
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last
