"""Stands for beartype where it is not installed, like its neighbour."""

from typing import Any


class BeartypeConf:
    def __init__(self, **settings: Any) -> None:
        pass


def beartype(function: Any = None, *, conf: BeartypeConf | None = None) -> Any:
    """Both ways in which it is called: on a function, and to make a decorator."""
    return function or (lambda function: function)
