"""The folders of the course and of a student's notebooks: a checkout, or a package and a folder of the student."""

import tomllib
from pathlib import Path

CODE = Path(__file__).parents[2]  # a checkout of the course, or where an environment keeps its packages
# For notebooks and build results: the checkout, else the current folder.
ROOT = CODE if (CODE / "pyproject.toml").is_file() else Path.cwd()
# The original notebooks: in a package they are inside the library, so that no package `notebooks` is installed.
PACKAGED = CODE / "notebooks" if ROOT == CODE else CODE / "course_lib" / "notebooks"
FIRST = "notebooks/00_start_here.ipynb"


def to_open(root: Path = ROOT, code: Path = CODE) -> str:
    """Return the command that opens the lessons from here; if there are none yet, the one that writes them first."""
    return "course lab" if root == code or (root / FIRST).is_file() else "course start FOLDER"


def repository(root: Path = ROOT) -> str:
    """Read the address of the course's repository from `[tool.course]` in pyproject.toml; empty if it is not set."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return settings.get("tool", {}).get("course", {}).get("repository", "").rstrip("/")
