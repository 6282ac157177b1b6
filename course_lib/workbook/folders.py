"""Where the course lies, and where a student's notebooks do: a checkout, or a package and a folder of the student's."""

import tomllib
from pathlib import Path

CODE = Path(__file__).parents[2]  # a checkout of the course, or where an environment keeps its packages
# Where notebooks are and what is built goes: the checkout, else the folder in which a command is given.
ROOT = CODE if (CODE / "pyproject.toml").is_file() else Path.cwd()
# As they came: in a package inside the library, so that no top-level package `notebooks` is installed.
PACKAGED = CODE / "notebooks" if ROOT == CODE else CODE / "course_lib" / "notebooks"
FIRST = "notebooks/00_start_here.ipynb"


def to_open(root: Path = ROOT, code: Path = CODE) -> str:
    """The command that opens the lessons from here; where there are none yet, the one that writes them first."""
    return "course lab" if root == code or (root / FIRST).is_file() else "course start FOLDER"


def repository(root: Path = ROOT) -> str:
    """Where the course's repository is, from `[tool.course]` in pyproject.toml; empty when nobody has said so."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return settings.get("tool", {}).get("course", {}).get("repository", "").rstrip("/")
