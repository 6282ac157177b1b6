"""The choices of a recipe for weights: all methods, allocations and roundings, and the limits of their settings."""

import re
from collections.abc import Callable
from dataclasses import fields, replace

from course_lib import discover
from course_lib.pruning import allocation, methods
from course_lib.pruning.allocation.base import Allocation, Uniform
from course_lib.pruning.allocation.by_block import ByBlock
from course_lib.pruning.base import LayerPruner
from course_lib.quantization.gptq import RoundToNearest, gptq
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured

METHODS = {kind.__name__: kind for kind in discover.subclasses(methods, LayerPruner)}
ALLOCATIONS = {
    kind.__name__: kind for kind in (Uniform, *discover.subclasses(allocation, Allocation)) if kind is not ByBlock
}
ROUNDINGS: dict[str, Callable[[Quantization], LayerPruner]] = {
    "gptq": gptq,
    "nearest": lambda quantization: RoundToNearest(quantization=quantization),
}
BITS = (2, 3, 4, 8)
SPARSEST, SMALLEST_GROUP = 0.95, 16


def pattern_of(asked: float | str, usual: Pattern) -> Pattern:
    """Return the usual pattern of a method with a sparsity, or the pattern "n:m" with n kept.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(asked, str):
        kept = re.fullmatch(r"(\d):(\d)", asked)
        if not kept:
            raise ValueError(f'got pattern = {asked!r}; expected a sparsity such as 0.5, or n of m kept such as "2:4".')
        return NofM(int(kept[1]), int(kept[2]))
    if not 0 < asked <= SPARSEST:
        raise ValueError(f"got pattern = {asked}; expected a sparsity above 0 and up to {SPARSEST}.")
    names = {field.name for field in fields(usual)}
    return replace(usual, sparsity=asked) if "sparsity" in names else Unstructured(asked)


def grid_in_words(bits: int, group: int | None) -> str:
    """Describe a quantization grid."""
    return f"{bits} bits, one scale per {f'{group} columns' if group else 'row'}"


def check_grid(bits: int | None, group: int | None) -> None:
    """Raise ValueError for bits that cannot be packed, or groups so small that scales take more bytes than codes."""
    if bits not in (None, *BITS):
        raise ValueError(f"got bits = {bits}; expected one of {', '.join(map(str, BITS))}.")
    if group is not None and group < SMALLEST_GROUP:
        raise ValueError(f"got group = {group}; expected {SMALLEST_GROUP} columns or more, or null for a whole row.")
