"""Drawings of how mixtures came to be: the papers in time, and a dense model's MLPs copied."""

from itertools import pairwise

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.moe.drawings.parts import PALE, arrow, blank, box

PAPERS = (
    (1991, "Jacobs and others: experts compete"),
    (1994, "Jordan, Jacobs: trees, EM"),
    (2017, "Shazeer and others: noisy top-k, LSTM"),
    (2020, "GShard: top-2, capacity"),
    (2021, "Switch: top-1; hash layers"),
    (2022, "expert choice; z-loss; upcycling"),
    (2023, "SparseMixer; soft MoE"),
    (2024, "Mixtral; OLMoE; DeepSeek-V3"),
    (2025, "Drop-Upcycling"),
)


def upcycled() -> Figure:
    """An MLP, four copies of it, and four copies of which some neurons are drawn anew."""
    fig, panels = figure(n_columns=3, width=3.0, height=3.4)
    for axes, name in zip(panels, ("dense", "copied", "made to differ"), strict=True):
        blank(axes, (-0.2, 6.2), (-1.3, 3.4))
        if name == "dense":
            _mlp(axes, 2.4, ())
            axes.text(3, 2.9, "E(x)", ha="center", fontsize=12)
        else:
            for expert in range(4):
                _mlp(axes, 1.6 * expert, _redrawn(expert) if name == "made to differ" else ())
            text = {"copied": "0.7 E(x) + 0.3 E(x) = E(x)", "made to differ": "0.7 E₀(x) + 0.3 E₂(x)"}[name]
            axes.text(3, 2.9, text, ha="center", fontsize=12)
            box(axes, (1.2, -1.25), (3.6, 0.75), "router: learns" if name != "copied" else "router: no gradient")
            for expert in (0, 2):
                arrow(axes, (3, -0.5), (1.6 * expert + 0.6, -0.05), linewidth=0.9)
        axes.set_title(name, loc="center", fontsize=12)
    fig.suptitle("Copies agree whatever the router says, so it learns nothing until they differ", x=0.01, ha="left")
    return fig


def _redrawn(expert: int) -> tuple[int, ...]:
    """Which of sixteen neurons are drawn anew: half of them, others in each expert."""
    generator = torch.Generator().manual_seed(expert)
    return tuple(torch.randperm(16, generator=generator)[:8].tolist())


def _mlp(axes: Axes, left: float, redrawn: tuple[int, ...]) -> None:
    for neuron in range(16):
        fill = PALE if neuron in redrawn else COLOURS[0]
        axes.add_patch(Rectangle((left, neuron * 0.16), 1.2, 0.15, facecolor=fill, edgecolor=COLOURS[0], linewidth=0.3))


def timeline() -> Figure:
    """The papers that the lesson follows, a year a line."""
    fig, (axes,) = figure(width=9.2, height=4.0)
    blank(axes, (1988.5, 2026), (-1.1, len(PAPERS) - 0.4))
    years = [year for year, _ in PAPERS]
    for decade in (1990, 2000, 2010, 2020):
        axes.axvline(decade, color=PALE, linewidth=1, zorder=0)
        axes.text(decade, -0.55, decade, ha="center", va="top", fontsize=10, color=COLOURS[4])
    for place, (year, text) in enumerate(PAPERS):
        y = len(PAPERS) - 1 - place
        axes.plot(year, y, "o", color=COLOURS[0], markersize=8)
        early = year < 2000
        axes.text(
            year + 0.6 if early else year - 0.6,
            y,
            f"{year}  {text}",
            ha="left" if early else "right",
            va="center",
            fontsize=11.5,
        )
    gap, since, until = max((later - year, year, later) for year, later in pairwise(years))
    axes.set_title(
        f"{gap} of the {years[-1] - years[0]} years lie between {since} and {until}", loc="left", fontsize=12
    )
    return fig
