"""What a decoded token reads, and how many neurons a batch reads.

Dimension key: B blocks looked at, T tokens, F neurons.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.execute.union import union_share
from course_lib.contextual.sizes import sizes_of
from course_lib.models import architecture, blocks, head, heads, weight_of

DENSITIES = (1.0, 0.75, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02)


class Read(NamedTuple):
    """Sizes of the MLPs, and the numbers that a token reads outside of them: attention, its cache, the head."""

    width: int
    neurons: int
    blocks: int
    others: int


def read_by_a_token(model: PreTrainedModel, n_cached: int) -> Read:
    """Of a model that decodes one sequence, with `n_cached` tokens behind it."""
    sizes, of_heads = sizes_of(model), heads(model)
    attention = sum(
        weight_of(block.get_submodule(name)).numel()
        for block in blocks(model)
        for name in dict.fromkeys(architecture(block).attention)
    )
    cache = 2 * n_cached * of_heads.n_key_value * of_heads.size * sizes.n_blocks
    return Read(sizes.width, sizes.n_neurons, sizes.n_blocks, attention + cache + weight_of(head(model)).numel())


def unions(kept: Mapping[str, Bool[Tensor, "B T F"]], batches: Sequence[int], seed: int = 0) -> dict[str, list[float]]:
    """The share of neurons that at least one of n tokens keeps, for each n: tokens that do not follow each other.

    Raises:
        ValueError: for a batch larger than the text.
    """
    draw, found = torch.Generator().manual_seed(seed), {}
    for name, masks in kept.items():
        mixed = masks[:, torch.randperm(masks.shape[1], generator=draw)]
        found[name] = [fmean(union_share(mask, n) for mask in mixed) for n in batches]
    return found
