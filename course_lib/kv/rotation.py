"""Rolling positions: turn keys and queries to the places that they have among the slots.

A key that RoPE turned to position r is turned on by (place − r): rotations add. Then distances are counted in slots,
not in tokens, and never exceed what the model was trained on (StreamingLLM, Xiao and others, 2023, section 3.2).

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries, N slots, D size of a head.
"""

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

    def keys(self, slots: Slots) -> Float[Tensor, "B H N D"]:
        """The keys, each turned to its place among those that are left."""
        place = slots.position.argsort(dim=2).argsort(dim=2)
        return self._turned(slots.keys, place - slots.rotation)

    def queries(
        self,
        query: Float[Tensor, "B H G Q D"],
        slots: Slots,
        position: Int[Tensor, "B Q"],
        rotation: Int[Tensor, "B Q"],
    ) -> Float[Tensor, "B H G Q D"]:
        """The queries, each turned to the place of its own token."""
        in_order = slots.position.sort(dim=2).values
        asked = position[:, None, :].expand(-1, query.shape[1], -1).to(in_order.dtype).contiguous()
        place = torch.searchsorted(in_order, asked)
        by = (place - rotation[:, None, :])[:, :, None, :].expand(query.shape[:-1])
        return self._turned(query, by)

    def _turned(self, vectors: Float[Tensor, "... D"], by: Int[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Nothing has left yet, as a rule in the prompt: then everything is in its place."""
        return self.turn(vectors, by) if bool(by.any()) else vectors
