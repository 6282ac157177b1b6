"""Figures of lesson 08 on places and costs: rolling positions, streaming against recomputing, the gate of a sink."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale


def places(position: Sequence[int], trained: int | None = None) -> Figure:
    """The tokens in a cache by their position in the text, and by their place in the cache."""
    drawn, axes = figure(1, 2, width=7.6, height=1.1)
    query = len(position) - 1
    rows = (("in the text", list(position)), ("in the cache", list(range(len(position)))))
    far = position[-1] - position[0]
    for each, (name, at) in zip(axes, rows, strict=True):
        each.scatter(at[:-1], [0] * query, marker="s", s=36, color=COLOURS[0])
        each.scatter(at[-1:], [0], marker="D", s=36, color=COLOURS[1])
        each.set_xlim(-1, position[-1] + 2)
        each.set_yticks([])
        each.spines["left"].set_visible(False)
        label(each, f"{name}: the newest token (diamond) is {at[-1] - at[0]} away from the first", "")
    if trained is not None and far > trained:
        axes[0].axvspan(trained, position[-1] + 2, color=COLOURS[3], alpha=0.25, linewidth=0)
    axes[1].set_xlabel("position")
    return drawn


def costs(
    windows: Sequence[int], counted: Mapping[str, Sequence[float]], seconds: Mapping[str, Sequence[float]]
) -> Figure:
    """FLOPs and seconds for each token over the size of the window, streaming and recomputing."""
    drawn, axes = figure(2, width=4.6, height=3.4)
    for each, found, unit in zip(axes, (counted, seconds), ("GFLOP a token, counted", "seconds a token"), strict=True):
        for index, (name, values) in enumerate(found.items()):
            each.plot(windows, values, label=name, **line_style(index))
        for which in "xy":
            log_scale(each, which)
        each.set_xticks(list(windows), [str(w) for w in windows])
        streaming, recomputing = found.values()
        ratio = recomputing[-1] / streaming[-1]
        label(each, f"{ratio:.0f} times at a window of {windows[-1]}", "tokens in the window", unit)
    axes[0].legend(frameon=False, fontsize=9)
    return drawn


def gate() -> Figure:
    """σ(lse − sink): what is left of the output."""
    drawn, (axes,) = figure(width=6.4, height=3.0)
    difference = torch.linspace(-6, 6, 121)
    axes.plot(difference, 100 * difference.sigmoid(), color=COLOURS[0], label="read from the tokens")
    axes.plot(difference, 100 * (-difference).sigmoid(), color=COLOURS[1], linestyle="--", label="lost in the sink")
    axes.axvline(0, color=COLOURS[4], linewidth=1)
    axes.legend(frameon=False, fontsize=9)
    title = "A query that finds nothing above the sink reads nothing"
    label(axes, title, "log-sum-exp of the logits − sink", "of the attention (%)")
    return drawn
