"""Functions for notebooks: `check` and `check_all`, `hint`, `show_progress`, and `mine` and `earlier`, which return the
student's function once it is right.

Each is imported on first use: a check needs torch, which would slow down `course progress`. A notebook that imports one
of them gets them all, because a check tells students to type functions that the notebook itself does not import.
"""

import sys
from importlib import import_module
from typing import Any

_PLACES = {
    "check": ("course_lib.workbook.checks", "check"),
    "check_all": ("course_lib.cli.check_all", "check_all"),  # in cli, because it reads a notebook as grading does
    "earlier": ("course_lib.workbook.yours", "earlier"),
    "hint": ("course_lib.workbook.hints", "hint"),
    "mine": ("course_lib.workbook.yours", "mine"),
    "show_progress": ("course_lib.workbook.progress", "show"),
}
__all__ = ["check", "check_all", "earlier", "hint", "mine", "show_progress"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _make_known()
    return _get(name)


def _get(name: str) -> Any:
    module, function = _PLACES[name]
    return getattr(import_module(module), function)


def _make_known() -> None:
    """Make all of them names of the notebook, except those that it already uses for something else."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    for name in _PLACES if shell else ():
        shell.user_ns.setdefault(name, _get(name))
