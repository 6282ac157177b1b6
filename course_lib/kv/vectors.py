"""How tensors lie in slots: columns that move together, keys and values in full precision. quantized.py: in few bits.

As in torch, a method whose name ends in _ writes in place; all others only read.

Dimension key: B sequences, H key-value heads, N slots, C slots there is room for, E some slots or tokens of each head,
R newest tokens, D size of a head.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kernels.checks import FREE
from course_lib.kernels.dispatch import kernel_for

VECTORS = ("keys", "values")


class Columns(dict[str, Tensor]):
    """What is stored of each slot, by name: (B, H, C) or (B, H, C, …), of which the first n slots are in use."""

    @property
    def n_allocated(self) -> int:
        return self["position"].shape[2]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.values())

    def take(self, index: Int[Tensor, "B H E"]) -> "Columns":
        """A copy of some slots."""
        return Columns({name: pick(tensor, index) for name, tensor in self.items()})

    def select(self, index: Int[Tensor, "K"]) -> "Columns":
        """A copy of some sequences."""
        return Columns({name: tensor.index_select(0, index) for name, tensor in self.items()})

    def grow_(self, n: int, n_allocated: int) -> None:
        """Room for more slots; the first n are copied."""
        for name, tensor in self.items():
            self[name] = tensor.new_empty(*tensor.shape[:2], n_allocated, *tensor.shape[3:])
            self[name][:, :, :n] = tensor[:, :, :n]

    def append_(self, new: dict[str, Tensor], n: int, n_new: int) -> None:
        """New slots behind the first n; zeros in columns that nothing is known of."""
        for name, tensor in self.items():
            slots = tensor.narrow(2, n, n_new)
            slots.copy_(new[name]) if name in new else slots.zero_()

    def put_(self, index: Int[Tensor, "B H E"], new: dict[str, Tensor]) -> None:
        """Other content of some slots in some columns."""
        for name, tensor in new.items():
            self[name].scatter_(2, _like(index, tensor), tensor)

    def move_(self, source: Int[Tensor, "B H E"], target: Int[Tensor, "B H E"]) -> None:
        """Slots are overwritten by others."""
        for tensor in self.values():
            tensor.scatter_(2, _like(target, tensor), pick(tensor, source))

    def move_one_(self, source: int, target: Int[Tensor, "B H 1"], names: Iterable[str] | None = None) -> None:
        """One slot of each head is overwritten by the same other: a narrow copy costs less than to gather."""
        for name in self if names is None else names:
            tensor = self[name]
            tensor.scatter_(2, _like(target, tensor), tensor.narrow(2, source, 1).clone())


def pick(tensor: Tensor, index: Int[Tensor, "B H E"]) -> Tensor:
    """What a tensor (B, H, N) or (B, H, N, D) holds in these slots."""
    return tensor.gather(2, _like(index, tensor))


def _like(index: Int[Tensor, "B H E"], tensor: Tensor) -> Tensor:
    """The index for a gather along the slots, of a tensor with or without a last axis."""
    return index if tensor.ndim == 3 else index[..., None].expand(*index.shape, tensor.shape[3])


class VectorFormat(ABC):
    """A slot is whole in itself: its parts, named "keys…" or "values…", move and leave together."""

    residual: int = 0  # that many newest tokens lie in a RecentRing, in full precision

    @abstractmethod
    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        """The parts by name, each (B, H, E, …)."""

    @abstractmethod
    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        """The vectors of the first n slots."""


class FullPrecision(VectorFormat):
    """As the model computes them."""

    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        return {name: vectors}

    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        return storage[name][:, :, :n]


FULL_PRECISION = FullPrecision()


@dataclass
class RecentRing:
    """Keys and values of the R newest tokens in full precision. The token at position p lies in place p mod R."""

    vectors: dict[str, Float[Tensor, "B H R D"]]  # "keys" and "values"

    @staticmethod
    def empty(like: Float[Tensor, "B H _ D"], residual: int) -> "RecentRing":
        n_sequences, n_heads, _, size = like.shape
        return RecentRing({name: like.new_zeros(n_sequences, n_heads, residual, size) for name in VECTORS})

    @property
    def nbytes(self) -> int:
        return sum(ring.nbytes for ring in self.vectors.values())

    def write_(
        self,
        keys: Float[Tensor, "B H E D"],
        values: Float[Tensor, "B H E D"],
        position: Int[Tensor, "B H E"],
        n_seen: Int[Tensor, "B"],
    ) -> None:
        """The newest of these tokens, to their places."""
        if position.shape[2] == 1:  # a step of decoding, which waits for no GPU
            is_recent, place = self._places(position, n_seen)
            index = _like(place, keys)
            for name, vectors in zip(VECTORS, (keys, values), strict=True):
                ring = self.vectors[name]
                ring.scatter_(2, index, torch.where(is_recent[..., None], vectors, ring.gather(2, index)))
            return
        sequence, head, token, place = self._recent(position, n_seen)
        for name, vectors in zip(VECTORS, (keys, values), strict=True):
            self.vectors[name][sequence, head, place] = vectors[sequence, head, token]

    def restore_(
        self, name: str, vectors: Float[Tensor, "B H E D"], position: Int[Tensor, "B H E"], n_seen: Int[Tensor, "B"]
    ) -> Float[Tensor, "B H E D"]:
        """The newest among `vectors` are overwritten by what they were before they were rounded."""
        if kernel := kernel_for("cache.few_bits", vectors, position):
            return kernel.restore_(vectors, self.vectors[name], position, n_seen)
        sequence, head, token, place = self._recent(position, n_seen)
        vectors[sequence, head, token] = self.vectors[name][sequence, head, place]
        return vectors

    def select(self, index: Int[Tensor, "K"]) -> "RecentRing":
        """Other sequences of the batch."""
        return RecentRing({name: ring.index_select(0, index) for name, ring in self.vectors.items()})

    def _recent(self, position: Int[Tensor, "B H E"], n_seen: Int[Tensor, "B"]) -> tuple[Tensor, ...]:
        """Sequence, head, index and place in the ring of each of these tokens that is among the newest."""
        is_recent, place = self._places(position, n_seen)
        sequence, head, token = is_recent.nonzero(as_tuple=True)
        return sequence, head, token, place[sequence, head, token]

    def _places(self, position: Int[Tensor, "B H E"], n_seen: Int[Tensor, "B"]) -> tuple[Tensor, Tensor]:
        """Which of these tokens are among the newest, and their places in the ring."""
        residual = self.vectors["keys"].shape[2]
        is_recent = (position != FREE) & (position >= n_seen[:, None, None] - residual)
        return is_recent, position.long() % residual
