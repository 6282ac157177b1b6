"""H2O's claim that heavy hitters are tokens which often occur together with others. https://arxiv.org/abs/2306.14048

Within a fixed reach every occurrence of a token has the same number of neighbours, so how often a token occurs with
others is how often it occurs, up to a factor. That is what is counted.

Dimension key: L layers, T tokens of a text, V different tokens in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.kv.analysis.attention_statistics import attention_statistics
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.kv import claims

Decode = Callable[[list[int]], str]  # of a tokenizer
Row = dict[str, float]
RECEIVED = ("whole", "each")  # by all occurrences of a token, and by one
NAMED = 3  # of the tokens that receive the most, in the figure


@dataclass(frozen=True)
class Words:
    """The different tokens of one text: how often each occurs, and what its occurrences receive in even shares.

    An even share of a token is what it would receive if every query spread its attention evenly over all that it sees:
    without it, the first tokens of a text would be ahead because more queries see them.
    """

    names: tuple[str, ...]
    count: Float[Tensor, "V"]
    whole: Float[Tensor, "V"]  # all occurrences together
    each: Float[Tensor, "V"]  # the mean of one occurrence


def words_of(mass: Float[Tensor, "L T"], ids: Int[Tensor, "T"], decode: Decode) -> Words:
    """Count the tokens of a text of which `mass` is the share of attention that each receives, by layer.

    The first token, which receives much whatever it is, is left out, and so is the last quarter, which few queries see.
    """
    length = len(ids)
    even = (1 / torch.arange(1, length + 1)).flip(0).cumsum(0).flip(0) / length  # Σ_{i ≥ j} 1/(i + 1), as a share
    received = (mass.mean(dim=0) / even)[1 : 3 * length // 4]
    different, place, count = ids[1 : 3 * length // 4].unique(return_inverse=True, return_counts=True)
    whole = torch.zeros(len(different)).index_add(0, place, received.float())
    names = tuple(decode([token]).strip() for token in different.tolist())
    return Words(names, count.float(), whole, whole / count)


def counted(model: PreTrainedModel, decode: Decode, texts: Int[Tensor, "N T"] | Sequence[Tensor]) -> list[Words]:
    """The words of several texts, each read once."""
    return [words_of(attention_statistics(model, ids).mass, ids, decode) for ids in texts]


def rank_correlation(one: Float[Tensor, "V"], other: Float[Tensor, "V"]) -> float:
    """Spearman's: equal values share the mean of their ranks, since most tokens occur once."""
    ranks = [(x[:, None] > x).sum(dim=1) + ((x[:, None] == x).sum(dim=1) + 1) / 2 for x in (one, other)]
    return torch.corrcoef(torch.stack(ranks).double())[0, 1].item()


def correlations(texts: Sequence[Words]) -> list[Row]:
    """Rank correlation of a token's count with what it receives, text by text: in all, and at one occurrence."""
    return [
        {which: round(rank_correlation(words.count, getattr(words, which)), 4) for which in RECEIVED} for words in texts
    ]


def said(texts: Sequence[Words]) -> str:
    """Both claims on how often a token occurs, judged by these texts."""
    return _judged(correlations(texts))


def committed(measured: dict[str, Any] | None = None) -> str:
    """The same for the texts of the committed measurement."""
    return _judged((measured or load_measured("kv", "heavy"))["tables"]["words"])


def _judged(rows: Sequence[Row]) -> str:
    return f"{len(rows)} texts\n" + report((claims.OFTEN, claims.OFTEN_EACH), {"tables": {"words": rows}})


def drawn(words: Words) -> Figure:
    """Of one text: what a token receives in all, and at one occurrence, over how often it occurs."""
    fig, panels = figure(2, width=4.8, height=3.6)
    kinds = {"all occurrences": words.whole, "one occurrence": words.each}
    for index, (panel, (kind, received)) in enumerate(zip(panels, kinds.items(), strict=True)):
        look = line_style(index) | {"linestyle": "none", "markersize": 4, "alpha": 0.5}
        panel.plot(words.count, received, **look)
        panel.axhline(1, color="black", linewidth=0.8, linestyle=":")
        for token in received.topk(min(NAMED, len(received))).indices.tolist():
            name = words.names[token] or "white space"
            at = (words.count[token].item(), received[token].item())
            panel.annotate(f"“{name}”", at, (5, 0), textcoords="offset points", fontsize=9, va="center")
        for axis in ("x", "y"):
            log_scale(panel, axis)
        found = rank_correlation(words.count, received)
        title = f"{kind[0].upper()}{kind[1:]}:\nrank correlation {found:+.2f}"
        label(panel, title, "times that a token occurs (log scale)", "received, in even shares (log scale)")
    return fig
