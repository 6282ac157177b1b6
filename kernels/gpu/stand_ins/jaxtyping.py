"""Stands for jaxtyping where it is not installed: shapes are then for the reader alone, and nothing checks them.

On the path of the parts of `make gpu` only, and last, so that the package itself is taken where there is one.
"""

from typing import Any


class _Annotation:
    def __class_getitem__(cls, array_and_shape: tuple[Any, str]) -> Any:
        return array_and_shape[0]


def __getattr__(name: str) -> type[_Annotation]:
    """Float, Int and all others: `Float[Tensor, "B H"]` is Tensor."""
    if name.startswith("_"):
        raise AttributeError(name)
    return _Annotation


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """Both ways in which it is called: on a function, and to make a decorator."""
    return function or (lambda function: function)
