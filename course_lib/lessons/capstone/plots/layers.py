"""Figures on one layer of the real model: how many bits it takes, and what rounding does to its output."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course_lib.lessons.common.results import percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style


def bits_per_weight(found: Mapping[int, Mapping[str, Sequence[float]]], sparsities: Sequence[float]) -> Figure:
    """Plot bits per weight over sparsity for each way to store a layer, with one panel for each number of bits.

    Args:
        found: by bits of a code and name of the way, bits per weight at each sparsity.
    """
    fig, axes = figure(len(found), width=3.9, height=3.2)
    for panel, (bits, ways) in zip(axes, found.items(), strict=True):
        for index, (way, sizes) in enumerate(ways.items()):
            panel.plot([100 * sparsity for sparsity in sparsities], sizes, label=way, **line_style(index))
        pays = [s for at, s in enumerate(sparsities) if ways["bitmap"][at] < ways["all codes"][at]]
        title = f"{bits} bits: a bitmap pays from {percent(pays[0])} zeros" if pays else f"{bits} bits: it never pays"
        panel.set_ylim(0, 2.2 * max(ways["all codes"]))
        label(panel, title, "weights pruned (%)", "bits per weight" if panel is axes[0] else "")
    axes[0].legend(frameon=False)
    return fig


def output_errors(found: Mapping[str, float]) -> Figure:
    """Plot the error of a layer's output by how it was made; the title compares the worst with the first."""
    _, (axes,) = figure(width=7.6, height=2.9)
    names, values = list(found), list(found.values())
    axes.bar(range(len(names)), values, width=0.6, color=[COLOURS[0], *[COLOURS[4]] * (len(names) - 1)])
    axes.set_xticks(range(len(names)), names)
    worst = max(found, key=found.get)
    title = f"{' '.join(worst.split()).capitalize()}: {found[worst] / values[0]:.2f} times the error of the first"
    return label(axes, title, "", "relative squared error\nof the output").figure
