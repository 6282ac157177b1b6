"""Bytes that a built model stores and reads per token, and its multiplications: counted from tensors, never declared.

Uncompressed numbers count 16 bits each, as in the compressed models of lesson 10: weights that no part changes, and
keys and values of a cache that is not quantized. A policy's memory of a slot counts in its own type.

Dimension key: N tokens of a text.
"""

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Int
from safetensors.torch import save
from torch import Tensor

from course_lib.compose.build import Built
from course_lib.compose.counting.per_token import of_a_token
from course_lib.compose.counting.slots import cache_tensors, n_slots
from course_lib.compose.part import Stored
from course_lib.compose.recipe import Recipe
from course_lib.models import heads

NUMBER_BYTES = 2  # of an uncompressed number
BESIDE_VALUES = {
    "scale": "scales",
    "zero": "scales",
    "bitmap": "indices",
    "row_start": "indices",
    "positions": "indices",
}
LENGTH = 1024  # tokens of a text at which the cache is counted


@dataclass(frozen=True, kw_only=True)
class Account:
    """Bytes and multiplications of a model.

    Args:
        stored: bytes of weights, scales, indices, predictors and prompt. by_part: the same bytes for each part.
        by_kind: the same bytes by purpose; empty in accounts that were stored before this was counted.
        cache: bytes of the cache after a text of `length` tokens.
        read: bytes that a decoded token reads there, including the cache.
        multiply_adds: of a decoded token there.
    """

    stored: int
    by_part: dict[str, int]
    cache: int
    length: int
    read: int
    multiply_adds: int
    by_kind: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Bytes of weights and cache together."""
        return self.stored + self.cache


@torch.no_grad()
def account(built: Built, text: Int[Tensor, "N"]) -> Account:
    """Count the bytes and multiplications of a model after a text, which it reads in one pass.

    Raises:
        ValueError: not a text of at least two tokens.
    """
    if text.ndim != 1 or len(text) < 2:
        raise ValueError(f"got a text of shape {tuple(text.shape)}; expected token ids (N,), at least two.")
    with built.running() as cache:
        built.model(text[None].to(built.model.device), past_key_values=cache, use_cache=True, logits_to_keep=1)
        tensors, n_held = cache_tensors(cache), n_slots(cache)
    in_cache = sum(tensor.nbytes for tensor in tensors.values())
    by_part = _summed(built.stored, lambda name: name.partition("/")[0])
    weights_read, products = of_a_token(built)
    return Account(
        stored=sum(by_part.values()),
        by_part=by_part,
        cache=in_cache,
        length=len(text),
        read=weights_read + in_cache,
        multiply_adds=products + 2 * n_held * heads(built.model).group * heads(built.model).size,
        by_kind=_summed(built.stored, partial(kind_of, built.recipe)),
    )


def kind_of(recipe: Recipe, name: str) -> str:
    """Find the purpose of a stored tensor by its name PART/.../NAME; for the model's own weights NAME decides."""
    part, last = recipe.part(name.partition("/")[0]), name.rpartition("/")[2]
    if part is not None and not part.replaces:
        return part.kind or part.name
    return next((kind for beginning, kind in BESIDE_VALUES.items() if last.startswith(beginning)), "weights")


def _summed(stored: Stored, key: Callable[[str], str]) -> dict[str, int]:
    """Sum the bytes of tensors by a key of their names."""
    sums: Counter[str] = Counter()
    for name, tensor in stored.items():
        sums[key(name)] += tensor.nbytes
    return dict(sums)


def written(tensors: Stored) -> int:
    """Count the bytes of data in the safetensors file of these tensors, without its header."""
    content = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
    return len(content) - 8 - struct.unpack("<Q", content[:8])[0]
