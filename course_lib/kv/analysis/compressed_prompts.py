"""Prompts that are read once and compressed many times, for policies that differ only in their budgets.

Dimension key: N prompts, L tokens of each, C tokens after it.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from course_lib.data.needles import Sample
from course_lib.kv.analysis.retrieval import BATCH, Answer, Retrieval, ask, read
from course_lib.kv.cache import evicting
from course_lib.kv.layers import EvictingCache
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat

CHUNK = 16  # tokens of a continuation read in one pass


@dataclass(frozen=True)
class Compressed:
    """A policy, and the memory of a prompt's cache after compression with it."""

    policy: EvictionPolicy
    bytes_held: int


def compressions(cache: EvictingCache, policies: Sequence[EvictionPolicy]) -> Iterator[Compressed]:
    """Compress the complete cache of a prompt with each policy in turn.

    The cache must have been opened with budget=1.0, and all policies must remember the same numbers for each slot, so
    they may differ only in their budgets. Each compression starts from the cache after the prompt: tokens that were
    added after an earlier one are removed.
    """
    whole, n_passed, before = cache.slots, cache.get_seq_length(), cache.policy
    try:
        for policy in policies:
            cache.policy = policy
            for layer, slots in zip(cache.layers, whole, strict=True):
                layer.slots = cache.policy.shrink(deepcopy(slots), layer.index)
                layer.n_passed = n_passed
            yield Compressed(cache.policy, cache.bytes_held)
    finally:
        cache.policy = before


@torch.no_grad()
def continuation_losses(
    model: PreTrainedModel,
    windows: Int[Tensor, "N T"],
    n_prompt: int,
    policies: Sequence[EvictionPolicy],
    positions: str = "original",
    vectors: VectorFormat = FULL_PRECISION,
) -> list[tuple[Compressed, Float[Tensor, "N"]]]:
    """Compute for each policy the mean loss of the continuation after each compressed prompt, in nats per token.

    All policies must remember the same numbers for each slot. The first token after the prompt does not count, because
    it is predicted before any eviction.
    """
    prompt, after = windows[:, :n_prompt].to(model.device), windows[:, n_prompt:].to(model.device)
    with evicting(model, replace(policies[0], budget=1.0), positions, vectors) as cache:
        read(model, prompt, cache)
        return [(compressed, _losses(model, after, cache)) for compressed in compressions(cache, policies)]


def _losses(model: PreTrainedModel, after: Int[Tensor, "N C"], cache: EvictingCache) -> Float[Tensor, "N"]:
    losses = []
    for start in range(0, after.shape[1] - 1, CHUNK):
        end = min(start + CHUNK, after.shape[1] - 1)
        logits = model(after[:, start:end], past_key_values=cache, use_cache=True).logits
        losses.append(cross_entropy(logits.float().transpose(1, 2), after[:, start + 1 : end + 1], reduction="none"))
    return torch.cat(losses, dim=1).double().mean(dim=1).cpu()


@torch.no_grad()
def retrieve_each(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    policies: Sequence[EvictionPolicy],
    positions: str = "original",
) -> list[Retrieval]:
    """Compute the result of `retrieve` for each policy, but read every prompt only once.

    All policies must remember the same numbers for each slot.
    """
    by_policy: list[list[Answer]] = [[] for _ in policies]
    with evicting(model, replace(policies[0], budget=1.0), positions) as cache:
        for start in range(0, len(samples), BATCH):
            batch = samples[start : start + BATCH]
            cache.reset()
            logits = read(model, torch.stack([sample.prompt for sample in batch]), cache)
            for answers, _ in zip(by_policy, compressions(cache, policies), strict=True):
                answers += ask(model, batch, cache, logits)[-1]
    return [Retrieval(tuple(answers)) for answers in by_policy]
