"""The cache of one layer: slots with keys, values, positions, and the numbers that a policy remembers.

As in torch, a method whose name ends in _ writes in place; all others only read.

Dimension key: B sequences, H key-value heads, N slots, C allocated slots, Q new tokens, D size of a head,
E selected slots of each head.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for
from course_lib.kv.vectors import FREE, FULL_PRECISION, VECTORS, Columns, RecentRing, VectorFormat

KERNEL_COLUMNS = ("keys", "values", "position", "rotation", "lag")
MOST_NUMBERS = 3  # other columns of one number per slot that the kernels write in the same launch
SPARE = 64  # spare slots, so that a step of decoding writes one token instead of copying all of them


@dataclass(frozen=True)
class NewTokens:
    """The new tokens of a forward pass; they are the same for all layers, so we compute them once."""

    position: Int[Tensor, "B Q"]  # in the text; FREE for padding
    rotation: Int[Tensor, "B Q"]  # position at which RoPE turned the keys
    n_seen: Int[Tensor, "B"]  # tokens of each sequence, these included
    has_padding: bool

    @staticmethod
    def of(
        valid: Bool[Tensor, "B Q"], rotation: Int[Tensor, "_ Q"] | None = None, n_seen: Int[Tensor, "B"] | int = 0
    ) -> "NewTokens":
        """Return tokens after the first `n_seen`; `valid` is False for padding; `rotation` defaults to the position."""
        before = torch.as_tensor(n_seen, device=valid.device).expand(len(valid))
        position = torch.where(valid, before[:, None] + valid.cumsum(dim=1) - 1, FREE)
        rotation = position if rotation is None else rotation.expand(len(valid), -1)
        return NewTokens(position, rotation, before + valid.sum(dim=1), not bool(valid.all()))

    @staticmethod
    def unpadded(n_new: int, rotation: Int[Tensor, "_ Q"] | None, n_seen: Int[Tensor, "B"]) -> "NewTokens":
        """Return tokens after the first `n_seen` without padding. The host does not wait for the device."""
        position = n_seen[:, None] + torch.arange(n_new, device=n_seen.device)
        rotation = position if rotation is None else rotation.expand(len(n_seen), -1)
        return NewTokens(position, rotation, n_seen + n_new, has_padding=False)


@dataclass
class Slots:
    """The first `n` slots of storage that may be larger.

    `position` counts the tokens of each sequence without padding; slots are in no particular order. Heads and sequences
    that keep fewer tokens than others have FREE slots.
    """

    storage: Columns = field(repr=False)
    n_seen: Int[Tensor, "B"] = field(repr=False)
    n: int = 0
    n_new: int = 0  # tokens of the last pass, padding included
    has_free: bool = False
    per_head: dict[str, Tensor] = field(default_factory=dict, repr=False)  # each (B, H, …): nothing of a single slot
    vectors: VectorFormat = FULL_PRECISION
    ring: RecentRing | None = field(default=None, repr=False)

    @classmethod
    def empty(cls, keys: Float[Tensor, "B H Q D"], vectors: VectorFormat = FULL_PRECISION) -> "Slots":
        """Return slots without tokens, for as many sequences and heads as `keys` has."""
        no_keys, no_position = keys[:, :, :0], keys.new_empty(*keys.shape[:2], 0, dtype=torch.int32)
        packed = vectors.pack("keys", no_keys) | vectors.pack("values", no_keys)
        return cls(
            storage=Columns(packed | {"position": no_position}),
            n_seen=no_position.new_zeros(len(keys), dtype=torch.int64),
            vectors=vectors,
            ring=RecentRing.empty(keys, vectors.residual) if vectors.residual else None,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sequences and of key-value heads."""
        return tuple(self.storage["position"].shape[:2])

    @property
    def keys(self) -> Float[Tensor, "B H N D"]:
        return self._unpacked("keys")

    @property
    def values(self) -> Float[Tensor, "B H N D"]:
        return self._unpacked("values")

    def _unpacked(self, name: str) -> Float[Tensor, "B H N D"]:
        vectors = self.vectors.unpack(name, self.storage, self.n)
        return self.ring.restore_(name, vectors, self.position, self.n_seen) if self.ring else vectors

    @property
    def position(self) -> Int[Tensor, "B H N"]:
        return self.storage["position"][:, :, : self.n]

    @property
    def occupied(self) -> Bool[Tensor, "B H N"]:
        """Which slots hold a token."""
        return self.position != FREE

    def memory(self, name: str, *last: int) -> Float[Tensor, "B H N *last"]:
        """Return the number that the policy stores for each slot under this name, in float32; 0 for a new token."""
        if name in self.storage:
            return self.storage[name][:, :, : self.n]
        return torch.zeros(*self.position.shape, *last, device=self.position.device)

    @property
    def bytes_held(self) -> int:
        """Bytes of the keys and values of the tokens that are kept."""
        a_slot = sum(tensor[0, 0, :1].nbytes for name, tensor in self.storage.items() if name.startswith(VECTORS))
        return int(self.occupied.sum()) * a_slot + (self.ring.nbytes if self.ring else 0)

    @property
    def bytes_allocated(self) -> int:
        """Bytes of all storage, including spare and FREE slots, positions, and numbers that the policy remembers."""
        notes = sum(tensor.nbytes for tensor in self.per_head.values())
        return self.storage.nbytes + notes + (self.ring.nbytes if self.ring else 0)

    @property
    def bytes_unpacked(self) -> int:
        """Bytes of one key and its value in full precision."""
        return 2 * self.first(1).keys[0, 0].nbytes

    def first(self, n: int) -> "Slots":
        """Return a view of the first slots, for reading."""
        return self if n == self.n else replace(self, n=n)

    def take(self, index: Int[Tensor, "B H E"]) -> "Slots":
        """Return a copy of some slots."""
        storage = self.storage.take(index)
        has_free = self.has_free and bool((storage["position"] == FREE).any())
        notes = {"n_seen": self.n_seen.clone(), "per_head": dict(self.per_head), "ring": deepcopy(self.ring)}
        return replace(self, storage=storage, n=index.shape[2], has_free=has_free, **notes)

    def select(self, index: Int[Tensor, "K"]) -> "Slots":
        """Return a copy with other sequences of the batch, as in beam search."""
        per_head = {name: tensor.index_select(0, index) for name, tensor in self.per_head.items()}
        ring = self.ring.select(index) if self.ring else None
        of_sequences = {"storage": self.storage.select(index), "n_seen": self.n_seen.index_select(0, index)}
        return replace(self, **of_sequences, per_head=per_head, ring=ring)

    def append_(self, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"], new: NewTokens) -> "Slots":
        """Append new tokens. Padding takes up FREE slots until the next eviction."""
        n_new = keys.shape[2]
        if self.n + n_new > self.storage.n_allocated:
            self.storage.grow_(self.n, max(self.n + n_new + SPARE, self.n + self.n // 4))
        if not self._append_one_(keys, values, new):
            self.storage.append_(self._columns(keys, values, new), self.n, n_new)  # zeros: nothing is remembered yet
            self.n_seen.copy_(new.n_seen)
        self.n, self.n_new = self.n + n_new, n_new
        self.has_free = self.has_free or new.has_padding
        if self.ring:
            self.ring.write_(keys, values, self.position[:, :, self.n - n_new :], self.n_seen)
        return self

    def _append_one_(self, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"], new: NewTokens) -> bool:
        """Append one token on a GPU in one launch; return False if the kernel does not support this step."""
        if keys.shape[2] > 1 or self.has_free or new.has_padding or self.vectors is not FULL_PRECISION:
            return False
        moved, others = self._kernel_columns()
        known = not others and keys.stride(3) == values.stride(3) == 1
        kernel = kernel_for("cache.slots_in_place", self.storage["keys"]) if known else None
        if kernel:
            kernel.append_(keys, values, (new.position, new.rotation, new.n_seen), moved, self.n, self.n_seen)
        return kernel is not None

    def _kernel_columns(self) -> tuple[dict[str, Tensor], list[str]]:
        """Return the columns that kernels/cache/slots_in_place.py writes, and the names of all others."""
        named = {name: self.storage[name] for name in KERNEL_COLUMNS if name in self.storage}
        numbers = [name for name, tensor in self.storage.items() if name not in named and _is_number(tensor)]
        taken = named | {name: self.storage[name] for name in numbers[:MOST_NUMBERS]}
        return taken, [name for name in self.storage if name not in taken]

    def _columns(
        self, keys: Float[Tensor, "B H Q D"], values: Float[Tensor, "B H Q D"], new: NewTokens
    ) -> dict[str, Tensor]:
        """Return the tensors to store for new tokens, each (B, H, Q), (B, 1, Q) or (B, H, Q, …)."""
        packed = self.vectors.pack("keys", keys) | self.vectors.pack("values", values)
        return packed | {"position": new.position[:, None]}

    def remember_(self, memory: dict[str, Tensor]) -> "Slots":
        """Overwrite the remembered numbers of all slots, or of the first ones."""
        for name, values in memory.items():
            if name not in self.storage:
                room = (*self.storage["position"].shape, *values.shape[3:])
                self.storage[name] = torch.zeros(room, device=values.device)
            self.storage[name][:, :, : values.shape[2]] = values
        return self

    def overwrite_(
        self, index: Int[Tensor, "B H E"], keys: Float[Tensor, "B H E D"], values: Float[Tensor, "B H E D"]
    ) -> "Slots":
        """Overwrite keys and values in these slots; if an index occurs twice, so do its vectors."""
        self.storage.put_(index, self.vectors.pack("keys", keys) | self.vectors.pack("values", values))
        if self.ring:
            self.ring.write_(keys, values, self.position.gather(2, index), self.n_seen)
        return self

    def protecting(self, score: Float[Tensor, "B H N"], recent: int, sinks: int) -> Float[Tensor, "B H N"]:
        """Return the score with ∞ for the `recent` newest and the first `sinks` tokens."""
        if recent:
            score = score.masked_fill(self.position >= self.n_seen[:, None, None] - recent, float("inf"))
        return score.masked_fill(self.position < sinks, float("inf")) if sinks else score

    def drop_lowest_(self, score: Float[Tensor, "B H N"], recent: int = 0, sinks: int = 0) -> "Slots":
        """Evict one token of each head in a step of decoding. No head may have FREE slots.

        The host does not wait for the device, and all storage keeps its address, so a CUDA graph can contain the step.
        """
        if kernel := kernel_for("cache.slots_in_place", score):
            moved, others = self._kernel_columns()
            evicted = kernel.drop_lowest_(score, moved, self.n_seen, recent, sinks)
            self.n -= 1
            self.storage.move_one_(self.n, evicted, others)
        else:
            self._drop_one_(self.protecting(score, recent, sinks).argmin(dim=2, keepdim=True))
        return self

    def keep_best_(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> "Slots":
        """Keep the `sizes[b, h]` tokens with the highest scores; a head with fewer tokens has FREE slots after them."""
        if self.has_free:
            score = score.masked_fill(~self.occupied, float("-inf"))
        least, most = int(sizes.min()), int(sizes.max())
        if self.n == most + 1 and least == most and not self.has_free:  # a step of decoding
            self._drop_one_(score.argmin(dim=2, keepdim=True))
        else:
            self._drop_(score, sizes, least, most)
        return self

    def _drop_one_(self, evicted: Int[Tensor, "B H 1"]) -> None:
        """Move each head's last slot into the slot of its evicted token."""
        self.n -= 1
        self.storage.move_one_(self.n, evicted)

    def _drop_(self, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"], least: int, most: int) -> None:
        """Keep as many slots as the largest head needs; in smaller heads the lowest slots become FREE."""
        if most < self.n:
            score = self._truncate_(score, most)
        if least < self.n or self.has_free:
            if bool((sizes < self.occupied.sum(dim=2)).any()):
                rank = score.argsort(dim=2, descending=True, stable=True).argsort(dim=2)  # 0 is the best
                self.position.masked_fill_(rank >= sizes[..., None], FREE)
            self.has_free = bool((~self.occupied).any())

    def _truncate_(self, score: Float[Tensor, "B H N"], n: int) -> Float[Tensor, "B H n"]:
        """Keep the n highest slots; return their scores in the new order of the slots."""
        if self.n > 2 * n:  # most leave: a copy of those that stay
            stay = score.topk(n, dim=2).indices.sort(dim=2).values
            self.storage = self.storage.take(stay)
            score = score.gather(2, stay)
        else:
            evicted, source = gaps(score, n)
            self.storage.move_(source, evicted)
            score = score.scatter(2, evicted, score.gather(2, source))[:, :, :n]
        self.n = n
        return score


def _is_number(column: Tensor) -> bool:
    """Whether a column stores one number per slot, of a type that policies use."""
    return column.ndim == 3 and column.dtype in (torch.int32, torch.float32)


def gaps(score: Float[Tensor, "B H N"], n: int) -> tuple[Int[Tensor, "B H E"], Int[Tensor, "B H E"]]:
    """Return the slots of all but the n highest scores, and for each the slot after the first n that moves there."""
    evicted = score.topk(score.shape[2] - n, dim=2, largest=False).indices.sort(dim=2).values
    stays = torch.ones_like(score, dtype=torch.bool).scatter_(2, evicted, False)
    survivors = n + stays[:, :, n:].int().argsort(dim=2, descending=True, stable=True)  # first those that stay
    return evicted, torch.where(evicted < n, survivors, evicted)  # from slot n on nothing moves
