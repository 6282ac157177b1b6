"""What a small model says of text without end, with a cache of fixed size, and where its attention goes.

Dimension key: B sequences, T tokens, L layers, H heads, S first slots that are looked at.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.attention.small_models.model import Past, SinkLM


@torch.no_grad()
def streaming_losses(model: SinkLM, ids: Int[Tensor, "B T"], sinks: int, window: int) -> Float[Tensor, "B T-1"]:
    """Loss of each token after the first, read one at a time; the cache keeps the first `sinks` slots and the newest.

    StreamingLLM's protocol: `window` slots in all, positions counted in slots. The learned sink of a model that has
    one is the first slot. A token also reads itself, beside the slots.

    Raises:
        ValueError: sinks that leave no room for the newest token.
    """
    if not 0 <= sinks < window:
        raise ValueError(f"got {sinks} sinks and a cache of {window}; expected fewer sinks than slots, from 0 on.")
    past: Past | None = None
    losses = []
    for token, target in zip(ids[:, :-1].T, ids[:, 1:].T, strict=True):
        logits, past = model(token[:, None], past)
        past = evicted(past, sinks, window)
        losses.append(cross_entropy(logits[:, 0], target, reduction="none"))
    return torch.stack(losses, dim=1)


def evicted(past: Past, sinks: int, window: int) -> Past:
    """The first and the newest slots of each layer, `window` in all."""
    n = past[0][0].shape[2]
    if n <= window:
        return past
    kept = torch.cat([torch.arange(sinks), torch.arange(n - window + sinks, n)])
    return [(keys[:, :, kept], values[:, :, kept]) for keys, values in past]


@torch.no_grad()
def recomputed_losses(
    model: SinkLM, ids: Int[Tensor, "B T"], window: int, first: int, stride: int
) -> Float[Tensor, "B predicted"]:
    """Loss of every stride-th token from `first` on, each after the `window` tokens before it, read afresh.

    What streaming is compared to: right, and `window` times the work. The learned sink stands before each window.
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
    """The share of attention that each of the first slots gets, mean over later queries; last, what no slot gets.

    Slots are tokens, and the learned sink is the first where there is one. Early queries have little else to read and
    are left out.
    """
    x, by_layer = model.embedded(ids), []
    for block in model.blocks:
        weights = block.attention.weights(block.norm(x))[:, :, from_query:]
        shares = torch.cat([weights[..., :n_slots], 1 - weights.sum(dim=-1, keepdim=True)], dim=-1)
        by_layer.append(shares.mean(dim=(0, 2)))
        x, _ = block(x)
    return torch.stack(by_layer)
