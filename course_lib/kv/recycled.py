"""Recycled attention. Xu, Goyal, Choi, 2024, https://arxiv.org/abs/2411.05787

All keys and values are kept, but most steps read only a small working set of them. This saves time but no memory, so it
is not an eviction policy: the next full step can again read tokens that the steps before it did not read.

Dimension key: B sequences, H key-value heads, G query heads to each, N slots, Q queries, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from course_lib.attention.interface import check_model
from course_lib.kv.attend import attend_
from course_lib.kv.cache import attending
from course_lib.kv.layers import EvictingCache, EvictingLayer
from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE, Columns
from course_lib.settings import check_count, is_real


@dataclass(frozen=True)
class Recycled(EvictionPolicy):
    """A full step selects the `budget` tokens with the most attention from the newest query; later steps read these.

    Each new token joins the working set, and the token to which its query attends least is removed from it.

    Args:
        every: number of steps from one full step to the next; None for no further full step.
        similarity: instead of `every`, compare the queries with those of the last full step, every `check` steps. A
            layer takes a full step if their cosine, averaged over heads, is below this number (0.8 in the paper).

    Deviation: weights are averaged over the query heads of a group. In a batch each sequence refreshes when it is due
    and reads the same tokens as on its own; a step in which only some refresh takes as long as if all did.
    """

    recent: int = 1
    every: int | None = 50
    similarity: float | None = None
    check: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every is not None:
            check_count("every", self.every, unit="steps")
        check_count("check", self.check, unit="steps")
        if self.similarity is not None and not (is_real(self.similarity) and -1 <= self.similarity <= 1):
            raise ValueError(f"got similarity {self.similarity!r}; expected a cosine from -1 to 1.")

    def n_observed(self, n_queries: int) -> int:
        return 1

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N"]]:
        return {"newest": seen.by_query[:, :, -1] / seen.n_groups}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return slots.memory("newest")

    def is_due(
        self, n_steps: Int[Tensor, "B"], query: Float[Tensor, "B heads 1 D"], last_query: Float[Tensor, "B heads 1 D"]
    ) -> Bool[Tensor, "B"]:
        """Return which sequences are due for a full step, n steps after their last one; may compare queries."""
        if self.similarity is None:
            return n_steps >= self.every if self.every is not None else torch.zeros_like(n_steps, dtype=torch.bool)
        checks = n_steps % self.check == 0
        if not bool(checks.any()):
            return checks
        cosine = cosine_similarity(query.float(), last_query.float(), dim=3).mean(dim=(1, 2))  # (B,)
        return checks & (cosine < self.similarity)


class RecyclingLayer(EvictingLayer):
    """`slots` is the working set; `everything` is the complete cache for full steps, in the order of the text."""

    everything: Slots | None = None
    last_query: Float[Tensor, "B heads 1 D"] | None = None  # of each sequence's last full step
    n_steps: Int[Tensor, "B"] | None = None  # since then
    n_since = 0  # steps since the last in which some sequence read everything
    n_full = 0  # steps that were full for some sequence

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.everything = self.slots
        self.n_steps = torch.zeros(len(key_states), dtype=torch.int64, device=key_states.device)

    def reset(self) -> None:
        super().reset()
        self.everything, self.last_query, self.n_steps, self.n_since, self.n_full = None, None, None, 0, 0

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        if self.last_query is not None:
            indices = indices.to(self.last_query.device)
            self.everything = self.everything.select(indices)
            self.last_query, self.n_steps = self.last_query[indices], self.n_steps[indices]


class RecyclingCache(EvictingCache):
    """`slots` are the working sets; `stores` also has the complete caches. It needs more memory than a plain cache."""

    layer = RecyclingLayer

    def forward_(
        self,
        layer: RecyclingLayer,
        query: Float[Tensor, "B heads Q D"],
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        padding: Tensor | None,
        rotation: Int[Tensor, "_ Q"] | None,
        scaling: float,
    ) -> Float[Tensor, "B heads Q D"]:
        """Read the complete cache for a prompt or if a full step is due, otherwise only the working set."""
        new = self._new_tokens(layer, keys.shape[2], padding, rotation)
        layer.everything.append_(keys, values, new)
        layer.n_steps += 1
        layer.n_since += 1
        due = self._due(layer, query)
        if due is False:
            layer.slots.append_(keys, values, new)
            output = attend_(query, layer.slots, new.position, scaling, self.policy)
            self.policy.shrink(layer.slots, layer.index)
            return output
        read = layer.everything if due is True else _all_or_working_set(layer, due)
        due = torch.ones_like(layer.n_steps, dtype=torch.bool) if due is True else due
        output = attend_(query, read, new.position, scaling, self.policy)
        layer.slots = self._most_attended(read, layer.index, due)
        newest = query[:, :, -1:]
        last_query = newest if layer.last_query is None else layer.last_query
        layer.last_query = torch.where(due[:, None, None, None], newest, last_query)
        layer.n_steps.masked_fill_(due, 0)
        layer.n_since = 0
        layer.n_full += 1
        return output

    def _due(self, layer: RecyclingLayer, query: Float[Tensor, "B heads Q D"]) -> bool | Bool[Tensor, "B"]:
        """Return which sequences take a full step: all for a prompt. A fixed interval needs no wait for the device."""
        if layer.last_query is None or query.shape[2] > 1:
            return True
        if self.policy.similarity is None:  # all sequences took their last full step together
            return self.policy.every is not None and layer.n_since >= self.policy.every
        due = self.policy.is_due(layer.n_steps, query, layer.last_query)
        return bool(due.all()) or (bool(due.any()) and due)

    def _most_attended(self, read: Slots, index: int, due: Bool[Tensor, "B"]) -> Slots:
        """Copy the slots with the most attention from the newest query, up to the size of each working set."""
        size = self.policy.common_size(index, read.shape[1])
        if size is not None and not (self.policy.dropped or read.has_free):
            score = self.policy.protected(read)
            return read.take(score.topk(min(size, read.n), dim=2).indices)  # the best first
        sizes = self.policy.sizes(read, index)
        sizes = torch.where(due[:, None], sizes, self.policy.after_dropping(read, sizes))
        score = self.policy.protected(read).masked_fill(~read.occupied, float("-inf"))
        taken = read.take(score.topk(min(int(sizes.max()), read.n), dim=2).indices)  # the best first
        if int(sizes.min()) < taken.n:
            places = torch.arange(taken.n, device=sizes.device)
            taken.position.masked_fill_(places >= sizes[..., None], FREE)
            taken.has_free = True
        return taken

    @property
    def stores(self) -> list[Slots]:
        return self.slots + [layer.everything for layer in self.layers if layer.everything is not None]

    @property
    def n_full(self) -> list[int]:
        """Number of full steps of each layer, including the prompt."""
        return [layer.n_full for layer in self.layers]


def _all_or_working_set(layer: RecyclingLayer, due: Bool[Tensor, "B"]) -> Slots:
    """Return the complete cache, with FREE slots where a sequence that is not due should read only its working set."""
    everything, working = layer.everything, layer.slots
    n_padding = everything.n - everything.n_seen  # comes before every token of its sequence
    at = torch.where(working.occupied, working.position + n_padding[:, None, None], everything.n - 1)
    reads = torch.zeros_like(everything.position, dtype=torch.bool).scatter(2, at, True)
    reads[:, :, -1] = True
    position = everything.storage["position"].clone()
    position[:, :, : everything.n].masked_fill_(~(reads | due[:, None, None]), FREE)
    storage = Columns(everything.storage | {"position": position})
    return replace(everything, storage=storage, has_free=True)


@contextmanager
def recycling(model: PreTrainedModel, settings: Recycled) -> Iterator[RecyclingCache]:
    """Let a model recycle its attention through a new cache, `past_key_values=cache`; on exit the model is as before.

    Raises:
        ValueError: for settings of another kind, or a model that this does not fit.
    """
    _check(settings)
    check_model(model)
    cache = RecyclingCache(model, settings, None)
    with attending(model, cache):
        yield cache


def _check(settings: object) -> None:
    if not isinstance(settings, Recycled):
        raise ValueError(f"got {settings!r}; expected Recycled(budget=...).")
