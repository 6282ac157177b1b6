"""Recycled attention. Xu, Goyal, Choi, 2024, https://arxiv.org/abs/2411.05787

All keys and values stay; most steps read a small working set of them. It saves time and not memory, which is why it is
no eviction policy: what a step did not read can be read again after the next full step.

Dimension key: B sequences, H key-value heads, G query heads to each, N slots, Q queries, D size of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from course_lib.kv.attend import attend
from course_lib.kv.cache import attending, check_model
from course_lib.kv.layers import EvictingCache, EvictingLayer
from course_lib.kv.policy import EvictionPolicy, Observed
from course_lib.kv.slots import Slots


@dataclass(frozen=True)
class Recycled(EvictionPolicy):
    """A full step takes the `budget` tokens that the newest query attends to most; the steps after it read those alone.

    Each new token joins the working set, and the one that its query attends to least leaves it.

    Args:
        every: steps from one full step to the next; never again when None.
        similarity: instead of `every`, look every `check` steps whether the queries still resemble those of the last
            full step: a full one, in this layer, when their cosine, averaged over heads, falls below (the paper: 0.8).

    Deviation: weights of the query heads of a group are averaged. In a batch all sequences refresh when one has to.
    """

    recent: int = 1
    every: int | None = 50
    similarity: float | None = None
    check: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("every", "check"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"got {name} {value!r}; expected a whole number of steps, 1 or more.")
        if self.similarity is not None and not -1 <= self.similarity <= 1:
            raise ValueError(f"got similarity {self.similarity!r}; expected a cosine from -1 to 1.")

    def observed(self, n_queries: int) -> int:
        return 1

    def remember(self, slots: Slots, seen: Observed) -> dict[str, Float[Tensor, "B H N"]]:
        return {"newest": seen.weights[:, :, :, -1].mean(dim=2)}

    def score(self, slots: Slots) -> Float[Tensor, "B H N"]:
        return slots.memory("newest")

    def is_due(self, n_steps: int, query: Tensor, asked: Tensor) -> bool:
        """Whether the n-th step after a full one should be full again; queries (B, heads, 1, D), now and then."""
        if self.similarity is None:
            return self.every is not None and n_steps >= self.every
        if n_steps % self.check:
            return False
        return bool((cosine_similarity(query.float(), asked.float(), dim=3).mean(dim=(1, 2)) < self.similarity).any())


class RecyclingLayer(EvictingLayer):
    """`slots` is the working set; `everything` is what a full step reads."""

    everything: Slots | None = None
    asked: Tensor | None = None  # the query of the last full step
    n_steps = n_full = 0  # steps since then; full steps in all

    def take_and_attend(
        self,
        query: Float[Tensor, "B heads Q D"],
        keys: Float[Tensor, "B H Q D"],
        values: Float[Tensor, "B H Q D"],
        padding: Tensor | None,
        rotation: Int[Tensor, "b Q"] | None,
        scaling: float,
    ) -> Float[Tensor, "B heads Q D"]:
        """A full step for a prompt or when one is due; otherwise the working set alone."""
        policy, new = self.cache.policy, self.cache.arrival(self, keys, padding, rotation)
        before = self.slots if self.everything is None else self.everything
        self.everything = new.added_to(before, keys, values)
        self.n_steps += 1
        if keys.shape[2] > 1 or self.asked is None or policy.is_due(self.n_steps, query, self.asked):
            output, self.everything = attend(query, self.everything, new.position, scaling, policy)
            self.slots, self.asked = self._chosen(), query[:, :, -1:].clone()
            self.n_steps, self.n_full = 0, self.n_full + 1
            return output
        working = new.added_to(self.slots, keys, values)
        output, working = attend(query, working, new.position, scaling, policy)
        self.slots = policy.shrink(working, self.index)
        return output

    def _chosen(self) -> Slots:
        """A copy of the slots that the newest query attended to most."""
        n = min(int(self.cache.policy.sizes(self.everything, self.index).max()), self.everything.n)
        score = self.cache.policy.protected(self.everything).masked_fill(~self.everything.taken, float("-inf"))
        chosen = self.everything.picked(score.topk(n, dim=2).indices)
        return replace(chosen, has_free=bool((~chosen.taken).any()))

    def reset(self) -> None:
        super().reset()
        self.everything, self.asked, self.n_steps, self.n_full = None, None, 0, 0

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.slots is not None:
            rows = torch.arange(len(self.slots.n_seen), device=self.slots.n_seen.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        if self.everything is not None:
            indices = indices.to(self.asked.device)
            self.everything, self.asked = self.everything.select(indices), self.asked.index_select(0, indices)


class RecyclingCache(EvictingCache):
    """`slots` are the working sets, `stores` also everything else: more memory than a plain cache, less of it read."""

    layer = RecyclingLayer

    @property
    def stores(self) -> list[Slots]:
        return self.slots + [layer.everything for layer in self.layers if layer.everything is not None]

    @property
    def n_full(self) -> list[int]:
        """Full steps of each layer, the prompt's included."""
        return [layer.n_full for layer in self.layers]


@contextmanager
def recycling(model: PreTrainedModel, settings: Recycled) -> Iterator[RecyclingCache]:
    """Let a model recycle its attention through a fresh cache, `past_key_values=cache`; on exit it is as before.

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
