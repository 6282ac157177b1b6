"""Losses of a small model on a text of any length with a cache of fixed size, and its attention to the first slots.

Dimension key: B sequences, T tokens, L layers, H heads, S first slots.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.model import Past, SinkLM


@torch.no_grad()
def streaming_losses(model: SinkLM, ids: Int[Tensor, "B T"], sinks: int, window: int) -> Float[Tensor, "B T-1"]:
    """Return the loss of each token after the first, with a cache that keeps the first `sinks` slots and the newest.

    This is the protocol of StreamingLLM: we feed one token at a time, the cache has `window` slots in all, and we count
    positions in slots. If the model has a learned sink, that is the first slot. A token also attends to itself, in
    addition to the slots.

    Raises:
        ValueError: if the sinks leave no slot for the newest token.
    """
    if not 0 <= sinks < window:
        raise ValueError(f"got {sinks} sinks and {window} slots; expected fewer sinks than slots, and 0 or more.")
    past: Past | None = None
    losses = []
    for token, target in zip(ids[:, :-1].T, ids[:, 1:].T, strict=True):
        logits, past = model(token[:, None], past)
        past = evicted(past, sinks, window)
        losses.append(cross_entropy(logits[:, 0], target, reduction="none"))
    return torch.stack(losses, dim=1)


def evicted(past: Past, sinks: int, window: int) -> Past:
    """Keep the first `sinks` and the newest slots of each layer, `window` in all."""
    n = past[0][0].shape[2]
    if n <= window:
        return past
    slot_index = torch.cat([torch.arange(sinks), torch.arange(n - window + sinks, n)])
    return [(keys[:, :, slot_index], values[:, :, slot_index]) for keys, values in past]


@torch.no_grad()
def recomputed_losses(
    model: SinkLM, ids: Int[Tensor, "B T"], window: int, first: int, stride: int
) -> Float[Tensor, "B predicted"]:
    """Return the loss of every stride-th token from `first` on, each given only the `window` tokens before it.

    This is the baseline for streaming. We recompute each window from scratch, so its tokens attend to nothing outside
    the window, at `window` times the work. A learned sink precedes each window.
    """
    losses = []
    for target in range(first, ids.shape[1], stride):
        logits, _ = model(ids[:, target - window : target])
        losses.append(cross_entropy(logits[:, -1], ids[:, target], reduction="none"))
    return torch.stack(losses, dim=1)


@torch.no_grad()
def first_slots(
    model: SinkLM, ids: Int[Tensor, "B T"], n_slots: int = 4, from_query: int = 64
) -> Float[Tensor, "L H S"]:
    """Return the mean attention of later queries to each of the first slots; the last entry is the weight on no slot.

    Slots are tokens; if the model has a learned sink, that is the first slot. We skip the first `from_query` queries,
    which have few other slots to attend to.
    """
    x, by_layer = model.embedded(ids), []
    for block in model.blocks:
        weights = block.attention.weights(block.norm(x))[:, :, from_query:]
        # With softmax-off-by-one a row of weights sums to less than 1; the last column is the difference.
        fractions = torch.cat([weights[..., :n_slots], 1 - weights.sum(dim=-1, keepdim=True)], dim=-1)
        by_layer.append(fractions.mean(dim=(0, 2)))
        x, _ = block(x)
    return torch.stack(by_layer)
