"""What a notebook needs: `check` a function against its exercise, ask for a `hint`, `show_progress`.

Each is imported when it is asked for: a check needs torch, which `course progress` has no time for.
"""

from importlib import import_module
from typing import Any

_PLACES = {"check": ("checks", "check"), "hint": ("hints", "hint"), "show_progress": ("progress", "show")}
__all__ = ["check", "hint", "show_progress"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, function = _PLACES[name]
    return getattr(import_module(f"{__name__}.{module}"), function)
