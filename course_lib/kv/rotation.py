"""Rolling positions: turn keys to the places that they have among the slots.

A key that RoPE turned to position r is turned on by any number of positions as if it had stood elsewhere: rotations
add. Then distances are counted in slots, not in tokens, and never exceed what the model was trained on (StreamingLLM,
Xiao and others, 2023, section 3.2).

Dimension key: B sequences, H key-value heads, N slots, D size of a head.
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

    def keys(self, keys: Float[Tensor, "B H N D"], slots: Slots) -> Float[Tensor, "B H N D"]:
        """The keys of slots, each turned so that its distance from the newest token is counted in slots.

        The queries stay as they are: attention knows distances alone, and between the tokens of one pass, of which none
        has left, those are the same either way. Keys in their places, as a rule most, are not touched.
        """
        place = slots.position.argsort(dim=2).argsort(dim=2)
        newest = slots.position.masked_fill(~slots.taken, -1).argmax(dim=2, keepdim=True)
        by = (place - place.gather(2, newest)) - (slots.rotation - slots.rotation.gather(2, newest))
        moved = (by != 0) & slots.taken
        sequence, head, slot = moved.nonzero(as_tuple=True)
        if not len(slot):
            return keys
        turned = keys.clone()
        turned[sequence, head, slot] = self.turn(keys[sequence, head, slot], by[sequence, head, slot])
        return turned
