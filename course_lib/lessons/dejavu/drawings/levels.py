"""Drawings of who chooses the neurons: nobody anew, the word, or its context; and how the paper tests it.

Dimension key: T tokens, D width, F neurons.
"""

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.contextual.neurons import Neurons
from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.dejavu.drawings.parts import PALE, SAND, arrow, best, blank, box, cell, lengths_of, small_mlp

WORDS = ("the", "bank", "of", "the", "river", "bank")
WIDTH, NEURONS, KEPT = 16, 14, 4


def three_levels() -> Figure:
    """Which of 14 neurons six tokens use, chosen once, from the embedding alone, and from the input."""
    fig, panels = figure(n_columns=3, width=3.5, height=3.4)
    choices, importance = choose()
    for axes, (name, keep) in zip(panels, choices.items(), strict=True):
        _grid(axes, keep)
        share = float(importance.where(keep, 0).square().sum() / importance.square().sum())
        sets = len({tuple(row) for row in keep.tolist()})
        said = f"{sets} set{'s' if sets > 1 else ''}"
        axes.set_title(f"{name}: {said}, {100 * share:.0f} % of the energy", loc="left", fontsize=10.5)
    same = bool((choices["by embedding"][1] == choices["by embedding"][5]).all())
    told = int((choices["contextual"][1] & choices["contextual"][5]).sum())
    title = (
        f"Both words “bank” get {'one set' if same else 'two sets'} by embedding; in context they share "
        f"{told} of {KEPT} neurons"
    )
    fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def choose(seed: int = 4) -> tuple[dict[str, Bool[Tensor, "T F"]], Float[Tensor, "T F"]]:
    """Three choices for six tokens, and |h| ‖w‖ of the true inputs: an embedding and the two before it, mixed."""
    generator = torch.Generator().manual_seed(seed)
    mlp = small_mlp(NEURONS, WIDTH, generator)
    of_word = {word: torch.randn(WIDTH, generator=generator) for word in dict.fromkeys(WORDS)}
    embeddings = torch.stack([of_word[word] for word in WORDS])
    zero = torch.zeros(1, WIDTH)
    one_back, two_back = torch.cat([zero, embeddings[:-1]]), torch.cat([zero, zero, embeddings[:-2]])
    mixed = (one_back + two_back) @ torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    importance = lengths_of(mlp, embeddings + mixed)
    once = importance.mean(0, keepdim=True).expand_as(importance)
    return {
        "static": best(once, KEPT),
        "by embedding": best(lengths_of(mlp, embeddings), KEPT),
        "contextual": best(importance, KEPT),
    }, importance


def _grid(axes: Axes, keep: Bool[Tensor, "T F"]) -> None:
    blank(axes, (-3.6, NEURONS + 0.2), (-1.2, len(WORDS) + 0.2))
    for token, row in enumerate(keep.tolist()):
        low = len(WORDS) - 1 - token
        axes.text(-0.3, low + 0.45, WORDS[token], ha="right", va="center", fontsize=11)
        for neuron, kept in enumerate(row):
            cell(axes, (neuron, low), (0.9, 0.9), COLOURS[0] if kept else PALE)
    axes.text(NEURONS / 2, -0.8, "neurons; dark: used", ha="center", fontsize=10)


def _blocks(seed: int = 0, n_blocks: int = 3) -> tuple[list[Neurons], Float[Tensor, "T D"]]:
    generator = torch.Generator().manual_seed(seed)
    blocks = [small_mlp(32, WIDTH, generator) for _ in range(n_blocks)]
    return blocks, torch.randn(64, WIDTH, generator=generator)


def chosen_twice(k: int = 8) -> tuple[list[Bool[Tensor, "T F"]], list[Bool[Tensor, "T F"]]]:
    """Of each block: what a dense pass records, and what a pass that leaves the rest out would choose on its way."""
    blocks, dense = _blocks()
    recorded, on_the_fly, sparse = [], [], dense
    for mlp in blocks:
        recorded.append(best(lengths_of(mlp, dense), k))
        on_the_fly.append(best(lengths_of(mlp, sparse), k))
        dense = dense + mlp.values(dense) @ mlp.down.T
        sparse = sparse + mlp.values(sparse).where(on_the_fly[-1], 0) @ mlp.down.T
    return recorded, on_the_fly


def two_passes() -> Figure:
    """A dense pass that records, a second one that uses the record; below them one pass that chooses on its way."""
    fig, (axes,) = figure(width=10.2, height=4.2)
    blank(axes, (-2.6, 13.2), (-0.6, 7.0))
    recorded, on_the_fly = chosen_twice()
    rows = (
        ("first pass: all", 5.2, PALE),
        ("second pass:\nthe recorded", 2.9, SAND),
        ("one pass: chosen\non the way", 0.4, SAND),
    )
    for name, low, fill in rows:
        axes.text(-0.3, low + 0.6, name, ha="right", va="center", fontsize=11)
        arrow(axes, (-0.2, low + 0.6), (0.9, low + 0.6))
        for block in range(3):
            left = 1 + 4.1 * block
            box(axes, (left, low), (2.4, 1.2), f"MLP {block + 1}", fill, fontsize=12)
            arrow(axes, (left + 2.45, low + 0.6), (left + 4.0, low + 0.6))
    same = []
    for block in range(3):
        left = 1 + 4.1 * block
        arrow(axes, (left + 1.2, 5.15), (left + 1.2, 4.15))
        axes.text(left + 1.35, 4.65, "who is large", va="center", fontsize=10)
        axes.annotate(
            "",
            (left + 0.9, 1.65),
            (left + 0.3, 1.65),
            arrowprops={"arrowstyle": "->", "connectionstyle": "arc3,rad=-1.2"},
        )
        same.append(float((recorded[block] & on_the_fly[block]).sum() / recorded[block].sum()))
        axes.text(left + 1.35, 2.25, f"same: {100 * same[-1]:.0f} %", va="center", fontsize=10)
    axes.set_title(
        f"A quarter of the neurons kept, random weights: in block 3 the tests agree on {100 * same[-1]:.0f} %",
        loc="left",
        fontsize=12,
    )
    return fig
