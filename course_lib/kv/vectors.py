"""The storage of slots: tensors whose slots move together, and vectors in full precision (in few bits: quantized.py).

As in torch, a method whose name ends in _ writes in place; all others only read.

Dimension key: B sequences, H key-value heads, N slots, C allocated slots, E some slots or tokens of each head, K chosen
sequences, R newest tokens, D head dimension.
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
    """The stored tensors by name, each (B, H, C) or (B, H, C, …); the first n of C slots are in use."""

    @property
    def n_allocated(self) -> int:
        return self["position"].shape[2]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.values())

    def take(self, index: Int[Tensor, "B H E"]) -> "Columns":
        """Return a copy of some slots of each head."""
        return Columns({name: pick(tensor, index) for name, tensor in self.items()})

    def select(self, index: Int[Tensor, "K"]) -> "Columns":
        """Return a copy of some sequences."""
        return Columns({name: tensor.index_select(0, index) for name, tensor in self.items()})

    def grow_(self, n: int, n_allocated: int) -> None:
        """Allocate room for more slots and copy the first n."""
        for name, tensor in self.items():
            self[name] = tensor.new_empty(*tensor.shape[:2], n_allocated, *tensor.shape[3:])
            self[name][:, :, :n] = tensor[:, :, :n]

    def append_(self, new: dict[str, Tensor], n: int, n_new: int) -> None:
        """Write new slots after the first n; columns without new data get zeros."""
        for name, tensor in self.items():
            slots = tensor.narrow(2, n, n_new)
            slots.copy_(new[name]) if name in new else slots.zero_()

    def put_(self, index: Int[Tensor, "B H E"], new: dict[str, Tensor]) -> None:
        """Overwrite some slots in the columns of `new`."""
        for name, tensor in new.items():
            self[name].scatter_(2, _like(index, tensor), tensor)

    def move_(self, source: Int[Tensor, "B H E"], target: Int[Tensor, "B H E"]) -> None:
        """Overwrite the target slots with the source slots."""
        for tensor in self.values():
            tensor.scatter_(2, _like(target, tensor), pick(tensor, source))

    def move_one_(self, source: int, target: Int[Tensor, "B H 1"], names: Iterable[str] | None = None) -> None:
        """Overwrite one slot of each head with slot `source`: a narrow copy costs less than a gather."""
        for name in self if names is None else names:
            tensor = self[name]
            tensor.scatter_(2, _like(target, tensor), tensor.narrow(2, source, 1).clone())


def pick(tensor: Tensor, index: Int[Tensor, "B H E"]) -> Tensor:
    """Return the entries of a tensor (B, H, N) or (B, H, N, D) in these slots."""
    return tensor.gather(2, _like(index, tensor))


def _like(index: Int[Tensor, "B H E"], tensor: Tensor) -> Tensor:
    """Return the index for a gather along the slots, expanded over the last axis if the tensor has one."""
    return index if tensor.ndim == 3 else index[..., None].expand(*index.shape, tensor.shape[3])


class VectorFormat(ABC):
    """How vectors are stored. Each slot is encoded on its own, so that its parts, named "keys…" or "values…", can move
    or be evicted together."""

    residual: int = 0  # number of newest tokens that a RecentRing also stores in full precision

    @abstractmethod
    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        """Encode vectors; return the parts by name, each (B, H, E, …)."""

    @abstractmethod
    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        """Decode the vectors of the first n slots."""


class FullPrecision(VectorFormat):
    """Vectors in the type in which the model computes them."""

    def pack(self, name: str, vectors: Float[Tensor, "B H E D"]) -> dict[str, Tensor]:
        return {name: vectors}

    def unpack(self, name: str, storage: dict[str, Tensor], n: int) -> Float[Tensor, "B H n D"]:
        return storage[name][:, :, :n]


FULL_PRECISION = FullPrecision()


@dataclass
class RecentRing:
    """Keys and values of the R newest tokens in full precision: the token at position p is in place p mod R."""

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
        """Write those of these tokens that are among the R newest."""
        if position.shape[2] == 1:  # a decoding step, in which the host must not wait for a GPU
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
        """Overwrite the newest tokens among `vectors` with their exact values, before rounding."""
        if kernel := kernel_for("cache.few_bits", vectors, position):
            return kernel.restore_(vectors, self.vectors[name], position, n_seen)
        sequence, head, token, place = self._recent(position, n_seen)
        vectors[sequence, head, token] = self.vectors[name][sequence, head, place]
        return vectors

    def select(self, index: Int[Tensor, "K"]) -> "RecentRing":
        """Return a ring with other sequences of the batch."""
        return RecentRing({name: ring.index_select(0, index) for name, ring in self.vectors.items()})

    def _recent(self, position: Int[Tensor, "B H E"], n_seen: Int[Tensor, "B"]) -> tuple[Tensor, ...]:
        """Return sequence, head, index and place in the ring of those of these tokens that are among the R newest."""
        is_recent, place = self._places(position, n_seen)
        sequence, head, token = is_recent.nonzero(as_tuple=True)
        return sequence, head, token, place[sequence, head, token]

    def _places(self, position: Int[Tensor, "B H E"], n_seen: Int[Tensor, "B"]) -> tuple[Tensor, Tensor]:
        """Return which of these tokens are among the R newest, and the places of all in the ring."""
        residual = self.vectors["keys"].shape[2]
        is_recent = (position != FREE) & (position >= n_seen[:, None, None] - residual)
        return is_recent, position.long() % residual
