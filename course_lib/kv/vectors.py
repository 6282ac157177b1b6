"""How keys and values lie in slots: as they are, here; in 4 or 8 bits, in quantized.py.

Dimension key: B sequences, H key-value heads, N slots, E some tokens of each head, R newest tokens, D size of a head.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FREE = torch.iinfo(torch.int32).max  # position of a slot that holds no token: after every query, so nobody reads it


class Vectors(ABC):
    """A slot is whole in itself: its parts, named "keys…" or "values…", move and leave together."""

    residual: int = 0  # that many newest tokens lie in a ring, as they are

    @abstractmethod
    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        """The parts by name, each (B, H, E, …)."""

    @abstractmethod
    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        """The vectors of the first n slots."""


class Plain(Vectors):
    """As they come."""

    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        return {name: vectors}

    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        return storage[name][:, :, :n]


PLAIN = Plain()


@dataclass(frozen=True)
class Newest:
    """Which of some tokens are among the newest of their sequences, and where those lie in a ring (B, H, R, D)."""

    there: Bool[Tensor, "B H E"]
    place: Int[Tensor, "B H E"]

    @staticmethod
    def of(position: Int[Tensor, "B H E"], n_seen: Int[Tensor, "B"], residual: int) -> "Newest":
        there = (position != FREE) & (position >= n_seen[:, None, None] - residual)
        return Newest(there, position.long() % residual)

    def write(self, ring: Float[Tensor, "B H R D"], vectors: Float[Tensor, "B H E D"]) -> None:
        """The newest among these vectors, to their places."""
        sequence, head, token = self.there.nonzero(as_tuple=True)
        ring[sequence, head, self.place[sequence, head, token]] = vectors[sequence, head, token]

    def over(self, vectors: Float[Tensor, "B H E D"], ring: Float[Tensor, "B H R D"]) -> Float[Tensor, "B H E D"]:
        """These vectors, the newest among them from the ring. Writes into `vectors`."""
        sequence, head, token = self.there.nonzero(as_tuple=True)
        vectors[sequence, head, token] = ring[sequence, head, self.place[sequence, head, token]]
        return vectors
