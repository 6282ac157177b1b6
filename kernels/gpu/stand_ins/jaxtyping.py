"""Stands for jaxtyping where it is not installed: shapes are then for the reader alone, and nothing checks them.

On the path of the parts of `make gpu` only, and last, so that the package itself is taken where there is one.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class _Annotation:
    def __class_getitem__(cls, array_and_shape: tuple[Any, str]) -> Any:
        return array_and_shape[0]


def __getattr__(name: str) -> type[_Annotation]:
    """Float, Int and all others: `Float[Tensor, "B H"]` is Tensor."""
    if name.startswith("_"):
        raise AttributeError(name)
    return _Annotation


def jaxtyped(typechecker: Any) -> Callable[[Any], Any]:
    return lambda function: function


def install_import_hook(modules: list[str], typechecker: str) -> nullcontext:
    return nullcontext()
