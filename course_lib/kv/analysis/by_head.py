"""The sparsity and the redundancy of each head of a model on a text.

Sparsity is the fraction of a head's attention weights that are below 1 % of the largest weight in their row. Redundancy
is the largest cosine of a key with the keys before it, as they are in the cache.

Dimension key: H key-value heads, T tokens, D elements of a head.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from course_lib.kv.analysis.attention_statistics import attention_statistics


def likeness(keys: Float[Tensor, "H T D"]) -> Float[Tensor, "H"]:
    """Compute the largest cosine of each key with an earlier key, averaged over all keys except the first two.

    The first key is never compared: it is an attention sink, far from all other keys.
    """
    unit = torch.nn.functional.normalize(keys[:, 1:].float(), dim=-1)
    cosine = (unit @ unit.transpose(1, 2)).masked_fill(torch.ones(unit.shape[1], unit.shape[1]).triu().bool(), -1.0)
    return cosine.amax(dim=-1)[:, 1:].mean(dim=1)


@torch.no_grad()
def of_text(model: PreTrainedModel, ids: Int[Tensor, "T"]) -> dict[str, list[list[float]]]:
    """Measure one text; return the sparsity (layers × query heads) and the redundancy (layers × key-value heads)."""
    cache = DynamicCache()
    model.base_model(ids[None], past_key_values=cache, use_cache=True)
    redundant = torch.stack([likeness(layer.keys[0]) for layer in cache.layers])
    sparse = attention_statistics(model, ids).sparsity_by_head
    return {name: _rounded(each) for name, each in (("sparsity", sparse), ("likeness", redundant))}


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in values.tolist()]
