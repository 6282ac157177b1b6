"""What follows the exercises of lesson 00 goes on with these: the least time of a pass, and how fast a part must get.

Dimension key: P layers of a pass.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.measure.roofline import Device, Transformer, Work, linear_work


def pass_seconds(
    flops: Float[Tensor, "P"], n_bytes: Float[Tensor, "P"], flops_per_second: float, bytes_per_second: float
) -> float:
    """The roofline of every layer, added up: reading overlaps with computing inside a layer, never across two."""
    device = Device("any", flops_per_second, bytes_per_second, "given")
    return sum(Work(*layer).seconds(device) for layer in zip(flops.tolist(), n_bytes.tolist(), strict=True))


def factor_needed(share: float, goal: float) -> float:
    """By how much a part of the time must get faster for the whole to get `goal` times faster; 0 if none is enough.

    Amdahl turned round: (1 - p) + p / s = 1 / g has the solution s = p / (p - 1 + 1 / g), where that is positive.
    """
    may_take = share - (1 - 1 / goal)
    return share / may_take if may_take > 0 else 0.0


def layer_works(sizes: Transformer, n_tokens: int, value_bytes: int) -> tuple[Float[Tensor, "P"], Float[Tensor, "P"]]:
    """FLOPs and bytes of every matrix that n_tokens of one prompt go through; the head sees the last token alone."""
    query, key = sizes.n_query * sizes.head_size, sizes.n_key_value * sizes.head_size
    attention = [(query, sizes.width), (key, sizes.width), (key, sizes.width), (sizes.width, query)]
    mlp = [(sizes.n_neurons, sizes.width)] * 2 + [(sizes.width, sizes.n_neurons)]
    works = [linear_work(*shape, n_tokens, value_bytes) for shape in attention + mlp] * sizes.n_blocks
    works.append(linear_work(sizes.vocabulary, sizes.width, 1, value_bytes))
    return tuple(torch.tensor([getattr(work, what) for work in works]).double() for what in ("flops", "bytes"))
