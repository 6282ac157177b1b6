"""How concentrated what neurons say is, and how often each is chosen.

Dimension key: F neurons.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.dejavu.live.neurons import share_for

ENOUGH = 0.95  # of the energy


def energy(curves: Mapping[str, Mapping[str, Float[Tensor, "F"]]]) -> Figure:
    """Of each model some blocks: the share of the energy that the largest neurons of a token hold, by their share."""
    fig, panels = figure(n_columns=len(curves), width=4.6, height=3.2)
    said = []
    for axes, (model, by_block) in zip(panels, curves.items(), strict=True):
        for index, (block, curve) in enumerate(by_block.items()):
            shares = 100 * torch.arange(1, len(curve) + 1) / len(curve)
            look = line_style(index) | {"markevery": max(1, len(curve) // 6), "markersize": 4}
            axes.plot(shares, 100 * curve, label=block, **look)
        axes.axhline(100 * ENOUGH, color=COLOURS[4], linestyle=":")
        needed = [100 * share_for(curve, ENOUGH) for curve in by_block.values()]
        said.append(f"{model} {_between(min(needed), max(needed))}")
        axes.set_ylim(0, 103)
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        label(axes, model, "largest neurons of a token (%)", "")
    panels[0].set_ylabel("share of the energy (%)")
    title = f"Neurons that hold {100 * ENOUGH:.0f} % of the energy of a token:\n{', '.join(said)}"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    return fig


def _between(low: float, high: float) -> str:
    few = "{:.1f}" if high < 10 else "{:.0f}"
    ends = few.format(low), few.format(high)
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"


def how_often(chosen: Mapping[str, Float[Tensor, "F"]], density: float) -> Figure:
    """For how many tokens each neuron is chosen, the most chosen first; a fixed set would be a step."""
    fig, (axes,) = figure(width=6.8, height=3.2)
    missed = []
    for index, (name, share) in enumerate(chosen.items()):
        ordered = share.sort(descending=True).values
        places = 100 * torch.arange(1, len(ordered) + 1) / len(ordered)
        look = line_style(index) | {"markevery": max(1, len(ordered) // 6), "markersize": 4}
        axes.plot(places, 100 * ordered, label=name, **look)
        inside = ordered[: max(1, round(density * len(ordered)))].sum() / ordered.sum()
        missed.append(100 * (1 - float(inside)))
    axes.step([0, 100 * density, 100 * density, 100], [100, 100, 0, 0], color=COLOURS[4], label="one set for all")
    axes.axhline(100 * density, color=COLOURS[4], linestyle=":", label="lots")
    axes.set_ylim(-3, 106)
    axes.legend(frameon=False, fontsize=9)
    said = _between(100 - max(missed), 100 - min(missed))
    title = f"The {100 * density:.0f} % that are chosen most often have {said} of all choices"
    label(axes, title, "neurons, the most often chosen first (%)", "chosen for so many tokens (%)")
    return fig
