"""Rolling positions: turn keys to the places that they have among the slots.

A key that RoPE turned to position r is turned on by any number of positions as if it had stood elsewhere: rotations
add. Then distances are counted in slots, not in tokens, and never exceed what the model was trained on (StreamingLLM,
Xiao and others, 2023, section 3.2).

Dimension key: B sequences, H key-value heads, N slots, Q new tokens, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat


@dataclass
class RollingSlots(Slots):
    """Slots that also know the position to which RoPE turned each key, and how many older tokens have left.

    To count those that have left at each eviction costs less than to sort the positions when they are read.
    """

    @classmethod
    def empty(cls, keys: Float[Tensor, "B H Q D"], vectors: VectorFormat = FULL_PRECISION) -> "RollingSlots":
        slots = super().empty(keys, vectors)
        slots.storage |= {name: torch.empty_like(slots.position) for name in ("rotation", "n_evicted_before")}
        return slots

    @property
    def rotation(self) -> Int[Tensor, "B H N"]:
        return self.storage["rotation"][:, :, : self.n]

    @property
    def n_evicted_before(self) -> Int[Tensor, "B H N"]:
        return self.storage["n_evicted_before"][:, :, : self.n]

    @property
    def position_in_cache(self) -> Int[Tensor, "B H N"]:
        """How many tokens of the head are older: the position in a text of those that are left."""
        return self.position - self.n_evicted_before

    def _columns(
        self, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"], new: NewTokens
    ) -> dict[str, Tensor]:
        n_left = self.occupied.sum(dim=2) if self.has_free else self.n  # (B, H)
        n_evicted = (self.n_seen[:, None] - n_left)[..., None]  # (B, H or 1, 1)
        own = {"rotation": new.rotation[:, None], "n_evicted_before": n_evicted}
        return super()._columns(keys, values, new) | own

    def _drop_one_(self, evicted: Int[Tensor, "B H 1"]) -> None:
        self.n_evicted_before.add_(self.position > self.position.gather(2, evicted))
        super()._drop_one_(evicted)

    def _drop_(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"], least: int, most: int) -> None:
        super()._drop_(score, sizes, least, most)
        self.n_evicted_before.copy_(-way_to_place(self.position))


def way_to_place(position: Int[Tensor, "... N"]) -> Int[Tensor, "... N"]:
    """By how many positions the key of each slot is turned to stand at its place, the number of older tokens."""
    return position.argsort(dim=-1).argsort(dim=-1) - position


@dataclass(frozen=True)
class Rotation:
    """The angles of a model's RoPE, a position; one for each pair of dimensions (i, i + D/2)."""

    frequencies: Float[Tensor, "half"]

    def turn(self, vectors: Float[Tensor, "... D"], by: Int[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Vectors turned on by that many positions; the angle is computed in float32."""
        # (x_i, x_{i + D/2}) ← (x_i cos φ − x_{i + D/2} sin φ, x_{i + D/2} cos φ + x_i sin φ), φ = by · frequency_i
        angle = by[..., None].float() * self.frequencies
        cos, sin = angle.cos().to(vectors.dtype), angle.sin().to(vectors.dtype)
        low, high = vectors.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    def keys(self, keys: Float[Tensor, "B H N D"], slots: RollingSlots) -> Float[Tensor, "B H N D"]:
        """A copy of the keys of slots, each turned so that its distance from the newest token is counted in slots."""
        turned = keys.clone()
        with self.turning_(turned, slots):
            return turned.clone()

    @contextmanager
    def turning_(self, keys: Float[Tensor, "B H N D"], slots: RollingSlots) -> Iterator[None]:
        """Those that have to be turned are turned in place, and afterwards are what they were, to the last bit.

        Queries stay as they are: attention knows distances alone, and between the tokens of one pass, of which none has
        left, those are the same either way. So do keys in their places, as a rule most: to copy them all at each step
        would cost more than to read them.
        """
        by = _gaps(slots)
        is_turned = (by != 0) & slots.occupied if slots.has_free else by != 0
        all_rows, rows_apart = _as_rows(keys)
        rows = is_turned.nonzero() @ rows_apart
        before = all_rows.index_select(0, rows)
        all_rows.index_copy_(0, rows, self.turn(before, by.masked_select(is_turned)))
        try:
            yield
        finally:
            all_rows.index_copy_(0, rows, before)


def _gaps(slots: RollingSlots) -> Int[Tensor, "B H N"]:
    """By how much the distance from the newest token, in the last slot, is longer in the text than in slots."""
    n_occupied = slots.occupied.sum(dim=2, keepdim=True) if slots.has_free else slots.n
    return (slots.position_in_cache - slots.rotation) + (slots.rotation[:, :, -1:] - (n_occupied - 1))


def _as_rows(keys: Float[Tensor, "B H N D"]) -> tuple[Float[Tensor, "rows D"], Int[Tensor, "3"]]:
    """The storage of the keys as one matrix, and how many rows neighbours along each axis are apart.

    Rows are picked and put back in half the time that three indices into a part of the storage take.
    """
    size = keys.shape[3]
    n_numbers = keys.untyped_storage().nbytes() // keys.element_size() - keys.storage_offset()
    rows_apart = torch.tensor([step // size for step in keys.stride()[:3]], device=keys.device)
    return keys.as_strided((n_numbers // size, size), (size, 1)), rows_apart
