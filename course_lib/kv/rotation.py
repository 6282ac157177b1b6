"""Rolling positions: turn keys to the places that they have among the slots.

A key that RoPE turned to position r is turned on by any number of positions as if it had stood elsewhere: rotations
add. Then distances are counted in slots, not in tokens, and never exceed what the model was trained on (StreamingLLM,
Xiao and others, 2023, section 3.2).

Dimension key: B sequences, H key-value heads, N slots, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class Rotation:
    """The angles of a model's RoPE, a position; one for each pair of dimensions (i, i + D/2)."""

    frequencies: Float[Tensor, "half"]

    def turn(self, vectors: Float[Tensor, "... D"], by: Int[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Vectors turned on by that many positions; the angle is computed in float32."""
        angle = by[..., None].float() * self.frequencies
        cos, sin = angle.cos().to(vectors.dtype), angle.sin().to(vectors.dtype)
        low, high = vectors.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    def keys(self, keys: Float[Tensor, "B H N D"], slots: Slots) -> Float[Tensor, "B H N D"]:
        """A copy of the keys of slots, each turned so that its distance from the newest token is counted in slots."""
        turned = keys.clone()
        with self.turning(turned, slots):
            return turned.clone()

    @contextmanager
    def turning(self, keys: Float[Tensor, "B H N D"], slots: Slots) -> Iterator[None]:
        """Those that have to be turned are turned in place, and afterwards are what they were, to the last bit.

        Queries stay as they are: attention knows distances alone, and between the tokens of one pass, of which none has
        left, those are the same either way. So do keys in their places, as a rule most: to copy them all at each step
        would cost more than to read them.
        """
        by = self._gaps(slots)
        moved = (by != 0) & slots.taken if slots.has_free else by != 0
        whole, apart = _rows(keys)
        rows = moved.nonzero() @ apart
        before = whole.index_select(0, rows)
        whole.index_copy_(0, rows, self.turn(before, by.masked_select(moved)))
        try:
            yield
        finally:
            whole.index_copy_(0, rows, before)

    def _gaps(self, slots: Slots) -> Int[Tensor, "B H N"]:
        """By how much the distance from the newest token, in the last slot, is longer in the text than in slots."""
        n_taken = slots.taken.sum(dim=2, keepdim=True) if slots.has_free else slots.n
        return (slots.place - slots.rotation) + (slots.rotation[:, :, -1:] - (n_taken - 1))


def _rows(keys: Float[Tensor, "B H N D"]) -> tuple[Float[Tensor, "rows D"], Int[Tensor, "3"]]:
    """The storage of the keys as one matrix, and how many rows neighbours along each axis are apart.

    Rows are picked and put back in half the time that three indices into a part of the storage take.
    """
    size = keys.shape[3]
    n_numbers = keys.untyped_storage().nbytes() // keys.element_size() - keys.storage_offset()
    apart = torch.tensor([step // size for step in keys.stride()[:3]], device=keys.device)
    return keys.as_strided((n_numbers // size, size), (size, 1)), apart
