"""The interface of eviction policies: a policy scores the slots, and the slots with the lowest scores are evicted.

Dimension key: B sequences, H key-value heads, G query heads to each, Q queries, N slots.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.slots import Slots
from course_lib.settings import check_count, is_real

ALL = sys.maxsize


@dataclass(frozen=True)
class Observed:
    """Attention of a chunk of queries: `weights` are softmax rows, all zero for padding.

    `position` counts the tokens of each sequence as in Slots; `last` is the position of the newest token of this
    forward pass, and `is_first` is True for the first chunk of this pass.
    """

    weights: Float[Tensor, "B H G Q N"]
    position: Int[Tensor, "B Q"]
    last: Int[Tensor, "B"]
    is_first: bool = True

    @property
    def by_query(self) -> Float[Tensor, "B H Q N"]:
        """Attention from each query to each slot, summed over the query heads of the group."""
        return self.weights.sum(dim=2)

    @property
    def received(self) -> Float[Tensor, "B H N"]:
        """Attention that each slot received, summed over queries and the query heads of the group."""
        return self.weights.sum(dim=(2, 3))

    @property
    def mean_received(self) -> Float[Tensor, "B H N"]:
        """Attention that each slot received, summed over queries and averaged over the query heads of the group."""
        return self.weights.sum(dim=3).mean(dim=2)

    @property
    def newest_of_all_heads(self) -> Float[Tensor, "B N"]:
        """Attention of the newest query to each slot, averaged over all heads, which must hold the same tokens."""
        return self.weights[:, :, :, -1].mean(dim=(1, 2))

    @property
    def n_groups(self) -> int:
        """Number of query heads that share a key-value head."""
        return self.weights.shape[2]


class ObservedMass(Observed):
    """Attention observed by a kernel, which returns only `received`.

    It covers one query, or all observed queries if the policy sets `sums_queries`. If a policy reads `weights`, they
    are computed separately in PyTorch.
    """

    def __init__(
        self,
        received: Float[Tensor, "B H N"],
        n_groups: int,
        position: Int[Tensor, "B Q"],
        last: Int[Tensor, "B"],
        weights: Callable[[], Float[Tensor, "B H G Q N"]],
    ) -> None:
        self.__dict__.update(_received=received, _n_groups=n_groups, position=position, last=last, is_first=True)
        self.__dict__["_weights"] = weights

    @cached_property
    def weights(self) -> Float[Tensor, "B H G Q N"]:
        return self._weights()

    @property
    def by_query(self) -> Float[Tensor, "B H Q N"]:
        return self._received[:, :, None] if self.position.shape[1] == 1 else super().by_query

    @property
    def received(self) -> Float[Tensor, "B H N"]:
        return self._received

    @property
    def mean_received(self) -> Float[Tensor, "B H N"]:
        return self._received / self._n_groups

    @property
    def newest_of_all_heads(self) -> Float[Tensor, "B N"]:
        return self.by_query[:, :, -1].mean(dim=1) / self._n_groups

    @property
    def n_groups(self) -> int:
        return self._n_groups


@dataclass(frozen=True)
class EvictionPolicy(ABC):
    """The settings of a policy; the numbers that it remembers for each slot are in Slots.

    Args:
        budget: slots of each key-value head after every forward pass: a whole number, or a fraction of the tokens so
            far.
        sinks: number of first tokens that are never evicted.
        recent: number of newest tokens that are never evicted.
        dropped: the fraction of its budget that a head above its budget evicts in one step, so that evictions are rare
            (Scissorhands, Algorithm 1); by default a head evicts only as many as necessary.
        by_layer: a factor on the budget for each layer of the model; no factors when empty.
        by_head: likewise for each key-value head; the same in every layer.
    """

    budget: int | float = 256
    sinks: int = 0
    recent: int = 0
    dropped: float = 0.0
    by_layer: tuple[float, ...] = ()
    by_head: tuple[float, ...] = ()

    allocates_layers: ClassVar[bool] = False  # whether `allocate_` divides the budget; nothing is evicted before
    sums_queries: ClassVar[bool] = False  # whether `remember` only asks for `Observed.received` or `mean_received`
    always_full: ClassVar[bool] = True  # whether every head holds its budget as soon as that many tokens have come

    def __post_init__(self) -> None:
        _check_budget(self.budget)
        for name in ("sinks", "recent"):
            check_count(name, getattr(self, name), least=0, unit="tokens")
        if not is_real(self.dropped) or not 0 <= self.dropped < 1:
            raise ValueError(f"got dropped {self.dropped!r}; expected a fraction of the budget from 0.0 to below 1.0.")
        for name in ("by_layer", "by_head"):
            factors = getattr(self, name)
            if not isinstance(factors, tuple) or not all(is_real(factor) and 0 < factor < inf for factor in factors):
                raise ValueError(f"got {name} {factors!r}; expected a tuple of positive factors on the budget.")
        if isinstance(self.budget, int):
            least = int(self.budget * min(self.by_layer, default=1) * min(self.by_head, default=1))
            if self.sinks + self.recent > least:
                raise ValueError(
                    f"got {self.sinks} sinks and {self.recent} recent tokens in a budget of {least} slots; "
                    "expected no more than fit. Raise the budget, or protect fewer tokens."
                )

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever evicted: the budget is 1.0 (not 1)."""
        return isinstance(self.budget, float) and self.budget == 1.0 and not (self.by_layer or self.by_head)

    @abstractmethod
    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        """Return the importance of each slot; the lowest are evicted. Other code handles sinks, recent, FREE slots."""

    def n_observed(self, n_queries: int) -> int:
        """Return for how many of the newest queries `remember` needs attention weights; they take time."""
        return 0

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N ..."]]:
        """Return new values to remember for each slot, after a chunk of observed queries."""
        return {}

    def allocate_(self, layers: list[Slots]) -> list[Slots]:
        """Divide the budget among layers after the first pass: note in the slots of each layer how many it may keep."""
        return layers

    def sizes(self, slots: Slots, layer: int) -> Int[Tensor, "B H"]:
        """Return how many slots each head may keep."""
        n_sequences, n_heads = slots.shape
        if isinstance(self.budget, int):
            return _fixed_sizes(self, layer, n_heads).to(slots.n_seen.device).expand(n_sequences, -1)
        return self._sizes_of(self.budget * slots.n_seen[:, None], layer, n_heads)

    def _sizes_of(self, budget: int | Float[Tensor, "B 1"], layer: int, n_heads: int) -> Int[Tensor, "..."]:
        """Multiply a budget in slots by the factors of layer and heads; round down."""
        factors = torch.tensor(self.by_head or (1.0,) * n_heads, dtype=torch.float64)  # (H,)
        if self.by_layer:
            factors = factors * self.by_layer[layer]
        sizes = budget * (factors if isinstance(budget, int) else factors.to(budget.device))  # (H,) or (B, H)
        return (sizes + 1e-9).long().clamp(min=max(1, self.sinks + self.recent))  # 0.1 x 30 is 3, whatever binary says

    def common_size(self, layer: int, n_heads: int) -> int | None:
        """Return how many slots every head may keep, or None if this is not known without waiting for the device."""
        if not isinstance(self.budget, int) or type(self).sizes is not EvictionPolicy.sizes:
            return None
        least, most = _fixed_limits(self, layer, n_heads)
        return least if least == most else None

    @property
    def _only_scores(self) -> bool:
        """Whether `score` alone determines which slots are evicted."""
        others = ("protected", "after_dropping", "evict_")
        return all(getattr(type(self), name) is getattr(EvictionPolicy, name) for name in others)

    def shrink(self, slots: Slots, layer: int) -> Slots:
        """Evict in place after a forward pass, and return the slots."""
        if self.keeps_all:
            return slots
        size = self.common_size(layer, slots.shape[1])
        if slots.n <= (int(self.sizes(slots, layer).min()) if size is None else size):
            return slots
        if size is not None and slots.n == size + 1 and not (slots.has_free or self.dropped) and self._only_scores:
            return slots.drop_lowest_(self.score(slots), self.recent, self.sinks)
        sizes = self.sizes(slots, layer)
        return self.evict_(slots, self.protected(slots), self.after_dropping(slots, sizes))

    def after_dropping(self, slots: Slots, sizes: Int[Tensor, "B H"]) -> Int[Tensor, "B H"]:
        """Return how many slots heads above their budget keep if they evict more than necessary."""
        if not self.dropped:
            return sizes
        fewer = (sizes - (self.dropped * sizes + 1e-9).long()).clamp(min=max(1, self.sinks + self.recent))
        return torch.where(slots.occupied.sum(dim=2) > sizes, fewer, sizes)

    def protected(self, slots: Slots) -> Float[Tensor, "B H N"]:
        """Return the score with ∞ for sinks and recent tokens."""
        return slots.protecting(self.score(slots), self.recent, self.sinks)

    def evict_(self, slots: Slots, score: Float[Tensor, "B H N"], sizes: Int[Tensor, "B H"]) -> Slots:
        """Keep the best `sizes[b, h]` slots. Policies that merge override this to add evicted vectors to kept ones."""
        return slots.keep_best_(score, sizes)


@lru_cache(maxsize=4096)
def _fixed_sizes(policy: EvictionPolicy, layer: int, n_heads: int) -> Int[Tensor, "H"]:
    """Compute sizes that never change only once."""
    return policy._sizes_of(policy.budget, layer, n_heads)


@lru_cache(maxsize=4096)
def _fixed_limits(policy: EvictionPolicy, layer: int, n_heads: int) -> tuple[int, int]:
    """Return the smallest and the largest of the fixed sizes."""
    sizes = _fixed_sizes(policy, layer, n_heads)
    return int(sizes.min()), int(sizes.max())


def _check_budget(budget: object) -> None:
    whole = isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1
    if not whole and not (isinstance(budget, float) and 0 < budget <= 1):
        raise ValueError(
            f"got a budget of {budget!r}; expected a whole number of slots, such as 256, or a fraction of the tokens "
            "seen, above 0.0 and up to 1.0."
        )
