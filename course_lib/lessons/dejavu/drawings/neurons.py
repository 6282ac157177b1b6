"""Drawings of neurons: a small MLP as a network, and what its neurons say of two tokens.

Dimension key: D width, F neurons.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.dejavu.drawings.parts import PALE, best, blank, lengths_of, small_mlp

WIDTH, NEURONS, KEPT = 8, 16, 4


def title_picture() -> Figure:
    """A network of sixteen neurons, of which a token uses four: for the first slide."""
    fig, (axes,) = figure(width=6.2, height=5.2)
    blank(axes, (-0.8, 8.8), (-0.6, 15.6))
    importance = _two_tokens()[0]
    ends = [2 * place + 0.5 for place in range(8)]
    for neuron, kept in enumerate(best(importance[None], KEPT)[0].tolist()):
        if kept:
            for end in ends:
                axes.plot((0, 4), (end, neuron), color=COLOURS[0], linewidth=0.9, zorder=1)
                axes.plot((4, 8), (neuron, end), color=COLOURS[0], linewidth=0.9, zorder=1)
        look = {"facecolor": COLOURS[0] if kept else PALE, "edgecolor": COLOURS[0], "zorder": 2}
        axes.add_patch(Circle((4, neuron), 0.36, **look))
    for end in ends:
        for x in (0, 8):
            axes.add_patch(Circle((x, end), 0.36, facecolor="white", edgecolor=COLOURS[0], zorder=2))
    axes.set_aspect("equal")
    return fig


def two_tokens() -> Figure:
    """The length of what each neuron adds, for two tokens; dark: the four largest."""
    fig, panels = figure(n_columns=2, width=4.8, height=3.2)
    importance = _two_tokens()
    keep = best(importance, KEPT)
    for axes, added, kept, name in zip(panels, importance, keep, ("a", "b"), strict=True):
        axes.bar(range(NEURONS), added, 0.8, color=[COLOURS[0] if one else COLOURS[4] for one in kept.tolist()])
        axes.set_ylim(0, float(importance.max()) * 1.08)
        axes.set_xticks(range(0, NEURONS, 2))
        share = float(added[kept].square().sum() / added.square().sum())
        title = (
            f"Token {name}: {int((added > 0).sum())} of {NEURONS} fire; {KEPT} hold {100 * share:.0f} % of Σ (h ‖w‖)²"
        )
        label(axes, title, "neuron", "h ‖w‖")
    common = int((keep[0] & keep[1]).sum())
    fig.suptitle(
        f"Of the {KEPT} neurons that one token needs most, the other needs {common}", x=0.01, ha="left", fontsize=12
    )
    return fig


def _two_tokens(seed: int = 3) -> torch.Tensor:
    """|h_i| ‖w_i‖ of two random tokens, (2, F)."""
    generator = torch.Generator().manual_seed(seed)
    mlp = small_mlp(NEURONS, WIDTH, generator)
    return lengths_of(mlp, torch.randn(2, WIDTH, generator=generator))
