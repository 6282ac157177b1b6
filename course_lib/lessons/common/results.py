"""Load the stored results of lessons and benches, select their rows, and describe where the numbers come from."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib import kernels
from course_lib.measure.result_files import load
from course_lib.models import WEIGHTS

Measured = dict[str, Any]

COLUMNS = 100  # of a printed line, so that it fits into a notebook's output

_LESSONS = Path(__file__).parents[1]


def load_measured(lesson: str, name: str = "measured") -> Measured:
    """Load a result of `course reproduce` for a lesson; "measured" is the experiment with the lesson's name."""
    return load(result_file(lesson, name))


def result_file(lesson: str, name: str) -> Path:
    """Return lessons/LESSON/experiments/NAME.json, or lessons/LESSON/NAME.json where that file does not exist."""
    in_experiments = _LESSONS / lesson / "experiments" / f"{lesson if name == 'measured' else name}.json"
    return in_experiments if in_experiments.exists() else _LESSONS / lesson / f"{name}.json"


def load_published(lesson: str) -> Measured:
    """Load the numbers that the authors of a lesson's papers report, with sources: lessons/LESSON/published.json."""
    return load(_LESSONS / lesson / "published.json")


def load_bench(name: str) -> Measured:
    """Load a result of `course bench`: kernels/bench/results/NAME.json."""
    return load(Path(kernels.__path__[0]) / "bench" / "results" / f"{name}.json")


def rows(result: Measured, table: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows of a table of a result (or of its `tables`) whose columns have the wanted values."""
    tables = result.get("tables", result)
    return [row for row in tables[table] if all(row[key] == value for key, value in wanted.items())]


def origin(result: Measured, amounts: str, weights: str = WEIGHTS) -> str:
    """Describe a result: command, seed, day, machine and torch version, then the weights and the amounts measured."""
    machine = result["machine"]
    return wrapped(
        f"`{result['command']}`, seed {result['seed']}, {result['started'][:10]}, {machine['cpu']} "
        f"({machine['cores']} cores), torch {machine['torch']}\n{weights}{'; ' if weights else ''}{amounts}"
    )


def wrapped(text: str) -> str:
    """Wrap each line at words to at most COLUMNS columns."""
    return "\n".join(textwrap.fill(line, COLUMNS, break_on_hyphens=False) for line in text.splitlines())


def say(text: str) -> None:
    """Print a text; wrap lines of more than COLUMNS columns at words and indent what follows."""
    for line in text.splitlines():
        print(textwrap.fill(line, COLUMNS, subsequent_indent="    ") if len(line) > COLUMNS else line)


def spaced(name: str) -> str:
    """Put a space before the per cent signs of a name: 50% becomes 50 %."""
    return re.sub(r"(?<=\d)%", " %", name)


def percent(share: float, digits: int = 0) -> str:
    """Format a fraction in per cent: 0.5 becomes 50 %."""
    return f"{100 * share:.{digits}f} %"


def listed(names: Sequence[object]) -> str:
    """Join names as in a sentence: a; a and b; a, b and c."""
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last
