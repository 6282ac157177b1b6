"""Stands for beartype where it is not installed, like its neighbour."""

from typing import Any


def beartype(function: Any) -> Any:
    return function
