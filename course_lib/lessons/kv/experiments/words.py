"""H2O's claim that heavy hitters are tokens which often occur together with others. https://arxiv.org/abs/2306.14048

Within a fixed distance every occurrence of a token has the same number of neighbours. So how often a token occurs with
others is proportional to how often it occurs, and this is what we count.

Dimension key: L layers, T tokens of a text, V different tokens in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.kv.analysis.attention_statistics import attention_statistics

Decode = Callable[[list[int]], str]  # of a tokenizer
RECEIVED = ("whole", "each")  # by all occurrences of a token, and by one


@dataclass(frozen=True)
class Words:
    """The different tokens of one text, how often each occurs, and the attention that its occurrences receive.

    Attention is divided by what a token would receive if every query spread its attention evenly over all tokens that
    it sees. Otherwise early tokens would come first only because more queries see them.
    """

    names: tuple[str, ...]
    count: Float[Tensor, "V"]
    whole: Float[Tensor, "V"]  # all occurrences together
    each: Float[Tensor, "V"]  # the mean of one occurrence


def words_of(mass: Float[Tensor, "L T"], ids: Int[Tensor, "T"], decode: Decode) -> Words:
    """Count the tokens of a text, where `mass` is the fraction of attention that each receives, by layer.

    The first token, which receives much in any text, is left out, and so is the last quarter, which few queries see.
    """
    length = len(ids)
    even = (1 / torch.arange(1, length + 1)).flip(0).cumsum(0).flip(0) / length  # Σ_{i ≥ j} 1/(i + 1), as a fraction
    received = (mass.mean(dim=0) / even)[1 : 3 * length // 4]
    different, place, count = ids[1 : 3 * length // 4].unique(return_inverse=True, return_counts=True)
    whole = torch.zeros(len(different)).index_add(0, place, received.float())
    names = tuple(decode([token]).strip() for token in different.tolist())
    return Words(names, count.float(), whole, whole / count)


def counted(model: PreTrainedModel, decode: Decode, texts: Int[Tensor, "N T"] | Sequence[Tensor]) -> list[Words]:
    """Count the words of several texts, each read on its own."""
    return [words_of(attention_statistics(model, ids).mass, ids, decode) for ids in texts]


def rank_correlation(one: Float[Tensor, "V"], other: Float[Tensor, "V"]) -> float:
    """Return Spearman's correlation; equal values share the mean of their ranks, since most tokens occur once."""
    ranks = [(x[:, None] > x).sum(dim=1) + ((x[:, None] == x).sum(dim=1) + 1) / 2 for x in (one, other)]
    return torch.corrcoef(torch.stack(ranks).double())[0, 1].item()


def correlations(texts: Sequence[Words]) -> list[dict[str, float]]:
    """Correlate the count of a token with the attention of all its occurrences, and of one, text by text."""
    return [
        {which: round(rank_correlation(words.count, getattr(words, which)), 4) for which in RECEIVED} for words in texts
    ]
