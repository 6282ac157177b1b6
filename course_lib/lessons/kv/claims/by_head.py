"""EMS's claim that heads differ in how sparse and how redundant they are. https://arxiv.org/abs/2412.08521

Sparse: the share of a head's weights that are below 1 % of their row's largest. Redundant: how like the likest of the
keys before it a key is, by cosine, as the cache holds them. Which heads of a layer have most and least is chosen on one
half of the texts and read off the other half, since some head of several always comes first, by luck alone.

Dimension key: N texts, L layers, A heads, H key-value heads, T tokens, D elements of a head.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from course_lib.kv.analysis.attention_statistics import attention_statistics
from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.lessons.kv.claims.model import loaded, texts
from course_lib.measure.experiment import Tables

APART = 0.1  # of the weights, and of a cosine: heads of a layer that are less apart are called alike


def likeness(keys: Float[Tensor, "H T D"]) -> Float[Tensor, "H"]:
    """The cosine of each key with the likest before it, a mean over all keys but the first two.

    The first key is left out on both sides: it is a sink, far from all others.
    """
    unit = torch.nn.functional.normalize(keys[:, 1:].float(), dim=-1)
    cosine = (unit @ unit.transpose(1, 2)).masked_fill(torch.ones(unit.shape[1], unit.shape[1]).triu().bool(), -1.0)
    return cosine.amax(dim=-1)[:, 1:].mean(dim=1)


@torch.no_grad()
def of_text(model: PreTrainedModel, ids: Tensor) -> dict[str, list[list[float]]]:
    """Of one text: layers by query heads, and layers by key-value heads."""
    cache = DynamicCache()
    model.base_model(ids[None], past_key_values=cache, use_cache=True)
    redundant = torch.stack([likeness(layer.keys[0]) for layer in cache.layers])
    sparse = attention_statistics(model, ids).sparsity_by_head
    return {name: _rounded(each) for name, each in (("sparsity", sparse), ("likeness", redundant))}


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in values.tolist()]


def heads(n: int, length: int, seed: int) -> Tables:
    """A row a text."""
    model = loaded()[0]
    return {"heads": [of_text(model, ids) for ids in texts(n, length, seed)]}


def apart(by_text: Float[Tensor, "N L A"]) -> Effect:
    """How far apart the heads of a layer lie that another half of the texts calls its first and last; mean of layers.

    Each half chooses for the other, so that every text is a sample.
    """
    halves = by_text[0::2], by_text[1::2]
    gaps = [gap for chosen, read in (halves, reversed(halves)) for gap in _gaps(chosen.mean(dim=0), read)]
    return of_samples(gaps)


def _gaps(chosen: Float[Tensor, "L A"], read: Float[Tensor, "N L A"]) -> list[float]:
    most, least = (index[None, :, None].expand(len(read), -1, 1) for index in (chosen.argmax(1), chosen.argmin(1)))
    return (read.gather(2, most) - read.gather(2, least)).mean(dim=(1, 2)).tolist()


def heads_verdict(measured: dict[str, Any] | None = None) -> str:
    """Both kinds of difference, and whether heads are further apart than APART."""
    table = (measured or load_measured("kv", "heavy"))["tables"]["heads"]
    found = {name: apart(torch.tensor([row[name] for row in table])) for name in ("sparsity", "likeness")}
    sparse, like = found.values()
    beyond = [Effect(value=each.value - APART, error=each.error, n=each.n) for each in found.values()]
    return (
        f"{len(table)} texts; first and last head of a layer, chosen on other texts:\n"
        f"negligible weights {100 * sparse.value:.0f} ± {100 * sparse.error:.1f} points apart, cosine with the likest "
        f"key before {like.value:.3f} ± {like.error:.3f}\n"
        f"Claim: the heads of a layer differ by over {APART} in how sparse and in how redundant they are: "
        f"{verdict(beyond)}"
    )
