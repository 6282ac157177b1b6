"""One decoding step over a cache, with and without the weights that a policy needs; positions original and rolling.

Dimension key: B sequences, H key-value heads, G query heads to each, N slots, D size of a head.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.cache import decode_attention
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.kv.rotation import Rotation
from course_lib.measure.roofline import Work

SHAPE = {"cpu": (3, 3, 64), "cuda": (8, 4, 128)}  # H, G, D: a layer of the default model; one of a model of 8B
BATCHES = {"cpu": (1, 8), "cuda": (1, 32)}
SLOTS = {"cpu": (820, 4096), "cuda": (1638, 8192)}  # a fifth of a text, and all of it


def contests(place: Place) -> Iterator[Contest]:
    n_heads, n_groups, size = (2, 3, 8) if place.quick else SHAPE[place.device.type]
    for n_sequences in (2,) if place.quick else BATCHES[place.device.type]:
        for n_slots in (70,) if place.quick else SLOTS[place.device.type]:
            shape = (n_sequences, n_heads, n_groups, n_slots, size)
            for turned in (False, True):
                arguments = decode_attention.example(
                    place.generator, place.dtype, str(place.device), shape, turned=turned
                )
                yield _contest(f"batch {n_sequences}, slots {n_slots}{', rolling' if turned else ''}", arguments)


def _contest(name: str, arguments: tuple) -> Contest:
    query, keys = arguments[:2]
    # A multiply-add for each query head, slot and number of key and value, and four FLOPs to turn a number of a key.
    turning = 0 if arguments[6] is None else 4 * keys.numel()
    flops = 4 * query.shape[1] // keys.shape[1] * keys.numel() + turning
    work = Work(flops, decode_attention.bytes_moved(*arguments))
    sides = [
        Side("sdpa, no weights", lambda: _sdpa(*arguments), work),
        Side("eager, with weights", lambda: _eager(*arguments), work),
    ]
    if query.is_cuda:
        sides.append(Side("kernel, with weights", lambda: decode_attention.launch(*arguments).output, work))
    else:
        sides.append(Side("reference, with weights", lambda: decode_attention.reference(*arguments).output, work))
    return Contest(name, tuple(keys.shape), sides, decode_attention.reference(*arguments).output)


def _sdpa(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    slot_position: Tensor,
    scaling: float,
    turns: Tensor | None,
    frequencies: Tensor | None,
) -> Tensor:
    """Run torch's fused attention, which does not return its weights; keys are rotated in a separate pass."""
    if turns is not None:
        keys = Rotation(frequencies).turn(keys, turns)
    return scaled_dot_product_attention(query[:, :, None], keys, values, scale=scaling, enable_gqa=True)[:, :, 0]


def _eager(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    slot_position: Tensor,
    scaling: float,
    turns: Tensor | None,
    frequencies: Tensor | None,
) -> Tensor:
    """Compute as transformers does, with keys and values repeated for each query head, and the sums that H2O needs."""
    n_groups = query.shape[1] // keys.shape[1]
    if turns is not None:
        keys = Rotation(frequencies).turn(keys, turns)
    repeated = keys.repeat_interleave(n_groups, 1), values.repeat_interleave(n_groups, 1)
    weights = (query[:, :, None] @ repeated[0].transpose(2, 3) * scaling).softmax(dim=-1, dtype=torch.float32)
    weights.unflatten(1, (-1, n_groups)).sum(dim=2)  # for the policy; what is compared is the output
    return (weights.to(query.dtype) @ repeated[1])[:, :, 0]
