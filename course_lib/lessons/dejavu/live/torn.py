"""Keys and values of a real head, whole as in the model's cache, and with holes where the head was left out.

Dimension key: N tokens, M of them missing, D width, d size of a head, P positions.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import architecture, blocks, heads, rotary_frequencies, weight_of

LEFTOVER = 1e3  # a number, so that an answer may multiply it by zero; and one that would be seen in a key


class Holes(NamedTuple):
    """What is in the memory of a head that was left out at some tokens; its rows there are what lay there before."""

    keys: Float[Tensor, "N d"]
    values: Float[Tensor, "N d"]
    position: Int[Tensor, "N"]
    missing: Int[Tensor, "M"]
    stored: Float[Tensor, "M D"]
    key_weight: Float[Tensor, "d D"]
    value_weight: Float[Tensor, "d D"]
    cos: Float[Tensor, "P d"]
    sin: Float[Tensor, "P d"]


@torch.no_grad()
def head(
    model: PreTrainedModel, block: int, head: int, ids: Int[Tensor, "N"], every: int
) -> tuple[tuple[Float[Tensor, "N d"], Float[Tensor, "N d"]], Holes]:
    """Keys and values of one key-value head, and the same without every so many tokens, the newest among them."""
    names, size, read = architecture(blocks(model)[block]).attention, heads(model).size, []
    query, key, value = (blocks(model)[block].get_submodule(name) for name in names[:3])
    handle = query.register_forward_pre_hook(lambda _, args: read.append(args[0][0]))
    try:
        cache = model.base_model(ids[None], use_cache=True).past_key_values
    finally:
        handle.remove()
    keys, values = (tensor[0, head] for tensor in (cache.layers[block].keys, cache.layers[block].values))
    missing = torch.arange(len(ids) - 1, -1, -every).flip(0)
    rows = slice(head * size, (head + 1) * size)
    angle = torch.arange(len(ids))[:, None] * torch.cat([rotary_frequencies(model)] * 2)
    holes = Holes(
        keys=keys.index_fill(0, missing, LEFTOVER),
        values=values.index_fill(0, missing, LEFTOVER),
        position=torch.arange(len(ids)),
        missing=missing,
        stored=read[0][missing],
        key_weight=weight_of(key)[rows],
        value_weight=weight_of(value)[rows],
        cos=angle.cos(),
        sin=angle.sin(),
    )
    return (keys, values), holes
