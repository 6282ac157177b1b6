"""Drawings of the deck of lesson 07: a cache of a few slots, small enough to follow by hand, and two protocols.

Dimension key: T tokens.
"""

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.kv.running.own import h2o_step

WORDS = ("Once", "upon", "a", "time", "Mara", "left", "the", "old", "town", "and", "Mara", "sang")
BUDGET, RECENT = 5, 2
KEPT, LEFT, EDGE, QUESTION = COLOURS[0], "#d9dde3", "#8d99ae", COLOURS[1]


def _attention() -> Float[Tensor, "T T"]:
    """Attention made up for the drawing: the first token and "Mara" receive much, the neighbour some."""
    n = len(WORDS)
    logits = torch.zeros(n, n)
    logits[:, 0], logits[:, 4] = 2.2, 1.6
    logits += torch.eye(n) + torch.diag(torch.full((n - 1,), 1.2), -1)
    return logits.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")).softmax(dim=1)


def _kept() -> Bool[Tensor, "T T"]:
    """Which tokens each query still finds in the cache, when H2O evicts after every step."""
    n, attention = len(WORDS), _attention()
    slots, score, seen = torch.empty(0, dtype=torch.int64), torch.empty(0), torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        slots, score = torch.cat([slots, torch.tensor([i])]), torch.cat([score, torch.zeros(1)])
        seen[i, slots] = True
        new = attention[i, slots] / attention[i, slots].sum()
        keep, total = h2o_step(score[None], new[None], slots[None], min(BUDGET, len(slots)), min(RECENT, len(slots)))
        slots, score = slots[keep[0]], total[0][keep[0]]
    return seen


def cache() -> Figure:
    """The attention matrix with the columns that have left, and the slots at the end."""
    fig, (axes,) = figure(width=6.1, height=5.6)
    seen, n = _kept(), len(WORDS)
    for query in range(n):
        for key in range(query + 1):
            _square(axes, key, query, KEPT if seen[query, key] else LEFT, hatch="" if seen[query, key] else "///")
    last = seen[-1].nonzero().flatten().tolist()
    for slot, key in enumerate(last):
        _square(axes, slot + 3, n + 1.2, KEPT)
        axes.text(slot + 3.5, n + 1.7, WORDS[key], ha="center", va="center", fontsize=8, color="white")
    axes.text(2.8, n + 1.7, "in the slots", ha="right", va="center", fontsize=10)
    axes.set_xlim(0, n)
    axes.set_ylim(n + 2.4, 0)
    axes.set_xticks([i + 0.5 for i in range(n)], WORDS, rotation=60, ha="left", fontsize=9)
    axes.set_yticks([i + 0.5 for i in range(n)], WORDS, fontsize=9)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("who reads", fontsize=10)
    return fig


def _square(axes: Axes, x: int | float, y: int | float, colour: str, hatch: str = "", width: float = 1.0) -> None:
    axes.add_patch(Rectangle((x, y), width, 1, facecolor=colour, edgecolor="white", hatch=hatch, linewidth=1.2))


def protocols() -> Figure:
    """When the eviction comes: behind the question, or before it."""
    fig, axes = figure(n_rows=2, width=11.0, height=1.9)
    prompt, question, answer = ("text with the secret word", 6.0), ("The secret word is", 2.4), ("river", 1.1)
    _timeline(axes[0], [prompt, question], [answer], "the leak: the question is part of the prompt")
    _timeline(axes[1], [prompt], [question, answer], "fair: the question is held back")
    return fig


def _timeline(axes: Axes, before: list[tuple[str, float]], after: list[tuple[str, float]], name: str) -> None:
    at = 0.0
    for words, width in before:
        at = _piece(axes, at, words, width)
    axes.plot([at + 0.12] * 2, [-0.25, 1.25], color=QUESTION, linewidth=3)
    axes.text(at + 0.12, 1.32, "eviction", ha="center", va="bottom", fontsize=12, color=QUESTION)
    first = at + 0.24
    for words, width in after:
        at = _piece(axes, first if at < first else at, words, width)
    source = first - 0.4 if len(after) == 1 else at - after[-1][1] - 0.15
    target = at - after[-1][1] / 2
    arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.4, "connectionstyle": "arc3,rad=0.5"}
    axes.annotate("", (target, -0.05), (source, -0.05), arrowprops=arrow)
    said = "predicted from a full cache" if len(after) == 1 else "predicted from what is left"
    axes.text(target + 0.7, 0.5, said, va="center", fontsize=12)
    axes.set_xlim(0, 13.2)
    axes.set_ylim(-0.9, 1.8)
    axes.set_axis_off()
    label(axes, name)
    axes.title.set_fontsize(13)


def _piece(axes: Axes, at: float, words: str, width: float) -> float:
    is_text = width > 5
    _square(axes, at, 0, LEFT if is_text else KEPT, width=width)
    axes.text(at + width / 2, 0.5, words, ha="center", va="center", fontsize=12, color="black" if is_text else "white")
    return at + width
