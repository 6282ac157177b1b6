"""What a notebook needs: `check` a function against its exercise, ask for a `hint`, go on with `mine`, `show_progress`.

Each is imported when it is asked for: a check needs torch, which `course progress` has no time for. A notebook that
imports one of them knows them all, since a check tells students to type what the notebook itself never calls.
"""

import sys
from importlib import import_module
from typing import Any

_PLACES = {
    "check": ("checks", "check"),
    "hint": ("hints", "hint"),
    "mine": ("yours", "mine"),
    "show_progress": ("progress", "show"),
}
__all__ = ["check", "hint", "mine", "show_progress"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _make_known()
    return _get(name)


def _get(name: str) -> Any:
    module, function = _PLACES[name]
    return getattr(import_module(f"{__name__}.{module}"), function)


def _make_known() -> None:
    """All of them become names of the notebook, but for those that it uses for something else."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    for name in _PLACES if shell else ():
        shell.user_ns.setdefault(name, _get(name))
