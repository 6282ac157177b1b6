"""Rolling positions: rotate keys to the places that they have among the slots.

RoPE rotations add: if we rotate a key at position r by d more positions, it is the same as a key at position r + d. So
we can count distances in slots instead of tokens, and they never exceed those seen in training (StreamingLLM, Xiao and
others, 2023, section 3.2).

Dimension key: B sequences, H key-value heads, N slots, Q new tokens, D head dimension.
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
    """Slots that also store the position at which RoPE rotated each key, and its lag: this rotation minus its place.

    Counting evicted tokens at each eviction costs less than sorting the positions whenever keys are read.
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
        """Rotation minus place, where the place of a token is the number of older tokens that its head still stores."""
        return self.storage["lag"][:, :, : self.n]

    @property
    def gap(self) -> Int[Tensor, "B H N"]:
        """Distance from the newest token, which is in the last slot, counted in the text, minus that in slots."""
        gap = self.lag[:, :, -1:] - self.lag
        return gap * self.occupied if self.has_free else gap

    def _columns(
        self, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"], new: NewTokens
    ) -> dict[str, Tensor]:
        n_stored = self.occupied.sum(dim=2) if self.has_free else self.n  # (B, H)
        n_evicted = (self.n_seen[:, None] - n_stored)[..., None]  # (B, H or 1, 1)
        # lag = rotation − place, and a new token's place is its position minus the number of evicted tokens.
        lag = (new.rotation - new.position)[:, None] + n_evicted
        return super()._columns(keys, values, new) | {"rotation": new.rotation[:, None], "lag": lag}

    def _drop_one_(self, evicted: Int[Tensor, "B H 1"]) -> None:
        # Tokens after the evicted one move down by one place, so their lag grows by one.
        self.lag.add_(self.position > self.position.gather(2, evicted))
        super()._drop_one_(evicted)

    def _drop_(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"], least: int, most: int) -> None:
        super()._drop_(score, sizes, least, most)
        self.lag.copy_(self.rotation - self.position - way_to_place(self.position))


def way_to_place(position: Int[Tensor, "... N"]) -> Int[Tensor, "... N"]:
    """Return place − position of each slot's token, where the place is the number of older tokens."""
    # The argsort of an argsort is the rank.
    return position.argsort(dim=-1).argsort(dim=-1) - position


@dataclass(frozen=True)
class Turns:
    """Which keys are rotated, among slots with these gaps, and by which angles."""

    gap: Int[Tensor, "B H N"]
    layout: tuple  # dtype, shape and strides of the keys, which determine `rows`
    rows: Int[Tensor, "K"]  # indices into the storage as a matrix
    angles: tuple[Float[Tensor, "K half"], Float[Tensor, "K half"]]


@dataclass
class Rotation:
    """A model's RoPE frequencies: the angle per position of each pair of dimensions (i, i + D/2)."""

    frequencies: Float[Tensor, "half"]
    last: Turns | None = field(default=None, repr=False, compare=False)  # of the previous layer, usually valid for this

    def turn(self, vectors: Float[Tensor, "... D"], by: Int[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Rotate vectors by that many more positions; angles are computed in float32."""
        return _turned(vectors, *self._angles(by, vectors.dtype))

    def _angles(self, by: Int[Tensor, "..."], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos φ and sin φ, φ = by · frequency_i."""
        angle = by[..., None].float() * self.frequencies
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def keys(self, keys: Float[Tensor, "B H N D"], slots: RollingSlots) -> Float[Tensor, "B H N D"]:
        """Return a copy of the keys, rotated so that their distances from the newest token are counted in slots."""
        rotated_keys = keys.clone()
        with self.turning_(rotated_keys, slots):
            return rotated_keys.clone()

    @contextmanager
    def turning_(self, keys: Float[Tensor, "B H N D"], slots: RollingSlots) -> Iterator[None]:
        """Inside the `with` block, keys with a gap are rotated in place; on exit they are restored to the last bit.

        Queries need no rotation: attention depends only on distances, and between the tokens of one pass, none of which
        is evicted yet, these are the same in slots and in the text. Neither do keys with a gap of 0, usually most of
        them: with sinks and a window, for example, only the sinks have a gap. So we rotate few keys in place, because
        copying all keys at each step would cost more than reading them. Finding these few takes longer than rotating
        them, so layers that hold the same tokens share the search (`Turns`).
        """
        turns = self._turns(keys, slots)
        all_rows = _as_rows(keys)
        original_rows = all_rows.index_select(0, turns.rows)
        all_rows.index_copy_(0, turns.rows, _turned(original_rows, *turns.angles))
        try:
            yield
        finally:
            all_rows.index_copy_(0, turns.rows, original_rows)

    def _turns(self, keys: Float[Tensor, "B H N D"], slots: RollingSlots) -> Turns:
        """Return the keys to rotate and their angles, those of the previous layer if its slots had the same gaps."""
        gap, layout = slots.gap, (keys.dtype, keys.shape, keys.stride())
        if self.last is None or self.last.layout != layout or not torch.equal(self.last.gap, gap):
            is_turned = gap != 0
            # Distance in rows of D numbers between neighbours along B, H and N: turns an index into a row.
            rows_apart = torch.tensor([step // keys.shape[3] for step in keys.stride()[:3]], device=keys.device)
            angles = self._angles(gap.masked_select(is_turned), keys.dtype)
            self.last = Turns(gap, layout, (is_turned.nonzero() * rows_apart).sum(dim=1), angles)
        return self.last


def _turned(
    vectors: Float[Tensor, "... D"], cos: Float[Tensor, "... half"], sin: Float[Tensor, "... half"]
) -> Float[Tensor, "... D"]:
    # (x_i, x_{i + D/2}) ← (x_i cos φ − x_{i + D/2} sin φ, x_{i + D/2} cos φ + x_i sin φ)
    low, high = vectors.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def _as_rows(keys: Float[Tensor, "B H N D"]) -> Float[Tensor, "rows D"]:
    """View the storage of the keys as one matrix.

    Reading and writing rows with one index takes half the time of three indices into a part of the storage.
    """
    size = keys.shape[3]
    n_numbers = keys.untyped_storage().nbytes() // keys.element_size() - keys.storage_offset()
    return keys.as_strided((n_numbers // size, size), (size, 1))
