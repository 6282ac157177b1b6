"""Replaces beartype if it is not installed, as the file next to it does for jaxtyping."""

from typing import Any


class BeartypeConf:
    def __init__(self, **settings: Any) -> None:
        pass


def beartype(function: Any = None, *, conf: BeartypeConf | None = None) -> Any:
    """Return the function, or a decorator: the real one is called in both ways."""
    return function or (lambda function: function)
