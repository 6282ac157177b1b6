"""What lesson 07 measures while one looks on: the same for its notebook and its deck.

Dimension key: L layers, H key-value heads, N slots, E tokens that leave, P predictions, D size of a head.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.kv.analysis.streaming import StreamingPerplexity, stream_through
from course_lib.kv.cache import evicting
from course_lib.kv.merging import cosines
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policy import EvictionPolicy
from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FULL_PRECISION, VectorFormat
from course_lib.measure.paired import block_means, mean_and_error


@torch.no_grad()
def race(
    model: PreTrainedModel,
    ids: Int[Tensor, "T"],
    policies: Mapping[str, EvictionPolicy],
    chunk: int = 16,
    vectors: VectorFormat = FULL_PRECISION,
) -> dict[str, StreamingPerplexity]:
    """One text under several policies. Nothing counts before the smallest cache is full."""
    skip = min((policy.budget for policy in policies.values() if isinstance(policy.budget, int)), default=0)
    streams = {}
    for name, policy in policies.items():
        with evicting(model, policy, vectors=vectors) as cache:
            streams[name] = stream_through(model, ids, cache, chunk, skip)
    return streams


def beside(mine: Float[Tensor, "P"], other: Float[Tensor, "P"], skip: int, block: int = 32) -> str:
    """In words how much more one cache loses than another on the same text, from blocks of predictions."""
    mean, error = mean_and_error(block_means((mine - other)[skip:], block))
    return f"{mean:+.3f} ± {error:.3f} nats a token, {math.exp(mean):.3f} times the perplexity"


@torch.no_grad()
def slots_by_layer(model: PreTrainedModel, ids: Int[Tensor, "T"], policy: EvictionPolicy) -> list[int]:
    """Slots of a head in each layer after a prompt, the mean over heads."""
    with evicting(model, policy) as cache:
        model.base_model(ids[None].to(model.device), past_key_values=cache, use_cache=True)
        return [round(slots.occupied.sum(dim=2).float().mean().item()) for slots in cache.slots]


@torch.no_grad()
def nearest_that_stays(model: PreTrainedModel, ids: Int[Tensor, "T"], budget: int) -> dict[str, Float[Tensor, "L E"]]:
    """Of a prompt under H2O: the cosine of each key, and value, that leaves with the most similar one that stays."""
    similarities: dict[str, list[Tensor]] = {"keys": [], "values": []}
    policy = H2O(budget=budget, recent=budget // 2)
    with evicting(model, replace(policy, budget=1.0)) as cache:
        model.base_model(ids[None].to(model.device), past_key_values=cache, use_cache=True)
        for index, whole in enumerate(cache.slots):
            kept = policy.shrink(deepcopy(whole), index)
            for name, values in _similarities(whole, kept).items():
                similarities[name].append(values.cpu())
    return {name: torch.stack(layers) for name, layers in similarities.items()}


def _similarities(whole: Slots, kept: Slots) -> dict[str, Float[Tensor, "E"]]:
    """Of one sequence, heads one after the other."""
    stays = (whole.position[..., None] == kept.position[:, :, None, :]).any(dim=3)[0]  # (H, N)
    pairs = {"keys": (whole.keys, kept.keys), "values": (whole.values, kept.values)}
    return {name: cosines(*both)[0].amax(dim=2)[~stays] for name, both in pairs.items()}
