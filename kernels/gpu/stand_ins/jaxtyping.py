"""Replaces jaxtyping if it is not installed: shapes are then only for the reader, and nothing checks them.

It is only on the path of the parts of `make gpu`, and last, so that an installed package takes precedence.
"""

from typing import Any


class _Annotation:
    def __class_getitem__(cls, array_and_shape: tuple[Any, str]) -> Any:
        return array_and_shape[0]


def __getattr__(name: str) -> type[_Annotation]:
    """Return a type for Float, Int and all others: `Float[Tensor, "B H"]` is Tensor."""
    if name.startswith("_"):
        raise AttributeError(name)
    return _Annotation


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """Return the function, or a decorator: the real one is called in both ways."""
    return function or (lambda function: function)
