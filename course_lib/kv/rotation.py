"""Rolling positions: turn keys to the places that they have among the slots.

A key that RoPE turned to position r is turned on by any number of positions as if it had stood elsewhere: rotations
add. Then distances are counted in slots, not in tokens, and never exceed what the model was trained on (StreamingLLM,
Xiao and others, 2023, section 3.2).

Dimension key: B sequences, H key-value heads, N slots, Q new tokens, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat


@dataclass
class RollingSlots(Slots):
    """Slots that also know the position to which RoPE turned each key, and by how much its place lags behind that.

    To count those that have left at each eviction costs less than to sort the positions when they are read.
    """

    @classmethod
    def empty(cls, keys: Float[Tensor, "B H Q D"], vectors: VectorFormat = FULL_PRECISION) -> "RollingSlots":
        slots = super().empty(keys, vectors)
        slots.storage |= {name: torch.empty_like(slots.position) for name in ("rotation", "lag")}
        return slots

    @property
    def rotation(self) -> Int[Tensor, "B H N"]:
        return self.storage["rotation"][:, :, : self.n]

    @property
    def lag(self) -> Int[Tensor, "B H N"]:
        """Rotation less place; the place is the number of older tokens of the head, those that are left."""
        return self.storage["lag"][:, :, : self.n]

    @property
    def gap(self) -> Int[Tensor, "B H N"]:
        """By how much the distance from the newest token, in the last slot, is longer in the text than in slots."""
        gap = self.lag[:, :, -1:] - self.lag
        return gap * self.occupied if self.has_free else gap

    def _columns(
        self, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"], new: NewTokens
    ) -> dict[str, Tensor]:
        n_left = self.occupied.sum(dim=2) if self.has_free else self.n  # (B, H)
        n_evicted = (self.n_seen[:, None] - n_left)[..., None]  # (B, H or 1, 1)
        lag = (new.rotation - new.position)[:, None] + n_evicted
        return super()._columns(keys, values, new) | {"rotation": new.rotation[:, None], "lag": lag}

    def _drop_one_(self, evicted: Int[Tensor, "B H 1"]) -> None:
        self.lag.add_(self.position > self.position.gather(2, evicted))
        super()._drop_one_(evicted)

    def _drop_(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"], least: int, most: int) -> None:
        super()._drop_(score, sizes, least, most)
        self.lag.copy_(self.rotation - self.position - way_to_place(self.position))


def way_to_place(position: Int[Tensor, "... N"]) -> Int[Tensor, "... N"]:
    """By how many positions the key of each slot is turned to stand at its place, the number of older tokens."""
    return position.argsort(dim=-1).argsort(dim=-1) - position


@dataclass(frozen=True)
class Turns:
    """Which keys are turned, of slots with these gaps, and by which angles."""

    gap: Int[Tensor, "B H N"]
    layout: tuple  # of the keys: where they lie is told by it
    rows: Int[Tensor, "K"]  # of the storage as a matrix
    angles: tuple[Float[Tensor, "K half"], Float[Tensor, "K half"]]


@dataclass
class Rotation:
    """The angles of a model's RoPE, a position; one for each pair of dimensions (i, i + D/2)."""

    frequencies: Float[Tensor, "half"]
    last: Turns | None = field(default=None, repr=False, compare=False)  # of the layer before, as a rule those of this

    def turn(self, vectors: Float[Tensor, "... D"], by: Int[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Vectors turned on by that many positions; the angle is computed in float32."""
        return _turned(vectors, *self._angles(by, vectors.dtype))

    def _angles(self, by: Int[Tensor, "..."], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos φ and sin φ, φ = by · frequency_i."""
        angle = by[..., None].float() * self.frequencies
        return angle.cos().to(dtype), angle.sin().to(dtype)

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
        would cost more than to read them. With sinks and a window that is all keys but those of the sinks, and few
        vectors take less time to turn than to be told apart: layers that hold the same tokens do that once.
        """
        turns = self._turns(keys, slots)
        all_rows = _as_rows(keys)
        before = all_rows.index_select(0, turns.rows)
        all_rows.index_copy_(0, turns.rows, _turned(before, *turns.angles))
        try:
            yield
        finally:
            all_rows.index_copy_(0, turns.rows, before)

    def _turns(self, keys: Float[Tensor, "B H N D"], slots: RollingSlots) -> Turns:
        """Those of the layer before where its slots had the same gaps."""
        gap, layout = slots.gap, (keys.dtype, keys.shape, keys.stride())
        if self.last is None or self.last.layout != layout or not torch.equal(self.last.gap, gap):
            turned = gap != 0
            rows_apart = torch.tensor([step // keys.shape[3] for step in keys.stride()[:3]], device=keys.device)
            angles = self._angles(gap.masked_select(turned), keys.dtype)
            self.last = Turns(gap, layout, (turned.nonzero() * rows_apart).sum(dim=1), angles)
        return self.last


def _turned(
    vectors: Float[Tensor, "... D"], cos: Float[Tensor, "... half"], sin: Float[Tensor, "... half"]
) -> Float[Tensor, "... D"]:
    # (x_i, x_{i + D/2}) ← (x_i cos φ − x_{i + D/2} sin φ, x_{i + D/2} cos φ + x_i sin φ)
    low, high = vectors.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def _as_rows(keys: Float[Tensor, "B H N D"]) -> Float[Tensor, "rows D"]:
    """The storage of the keys as one matrix.

    Rows are picked and put back in half the time that three indices into a part of the storage take.
    """
    size = keys.shape[3]
    n_numbers = keys.untyped_storage().nbytes() // keys.element_size() - keys.storage_offset()
    return keys.as_strided((n_numbers // size, size), (size, 1))
