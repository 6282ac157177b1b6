"""Figures of the deck of lesson 07 from committed measurements, or of few numbers, that no cell of its notebook draws.

Dimension key: T tokens.
"""

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import error_bars
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.kv import claims, heavy_hitters
from course_lib.lessons.kv import measured as long
from course_lib.lessons.kv.estimates import SPARSE


def sparse() -> Figure:
    """The share of negligible weights by layer, and what reading a few tokens alone costs."""
    fig, (axes, beside) = figure(2, width=5.4, height=4.0)
    layers = rows(long.results(), "attention", start="text")
    share = [100 * row["sparsity"] for row in layers]
    axes.plot(range(len(share)), share, markersize=5, label="below 1 % of the row's largest", **line_style(0))
    axes.axhline(100 * SPARSE, color=COLOURS[4], linestyle=":", label="95 %, the paper's mark")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    above = sum(row["sparsity"] > SPARSE for row in layers)
    words = claims.SPARSE.judge().words
    title = f"Over 95 % of the weights in {above} of {len(layers)} layers;\nin almost all layers: {words}"
    label(axes, title, "layer", "negligible weights (%)")
    heavy_hitters.enough_on(beside, heavy_hitters.results())
    return fig


def streams() -> Figure:
    """Perplexity and the most bytes held, a dot a policy."""
    fig, (axes,) = figure(width=9.0, height=4.2)
    table = sorted(long.results()["tables"]["policies"], key=lambda row: (-row["peak_bytes"], row["policy"]))
    for index, row in enumerate(table):
        megabytes, error = row["peak_bytes"] / 1e6, 2 * (row["standard_error"] or 0)
        axes.errorbar(row["perplexity"], index, xerr=error, capsize=3, color=COLOURS[0], marker="o")
        axes.annotate(f"  {megabytes:.0f} MB", (row["perplexity"] + error, index), va="center", fontsize=10)
    axes.set_yticks(range(len(table)), [row["policy"] for row in table])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.margins(x=0.12)
    full, least = table[0], table[-1]
    title = f"{least['budget']} slots hold {least['peak_bytes'] / 1e6:.0f} MB of keys and values, "
    title += f"all {full['n_tokens'] + least['budget']} tokens {full['peak_bytes'] / 1e6:.0f} MB"
    label(axes, title, f"perplexity of a stream ({error_bars(len(full['losses']))})")
    return fig


def choices(kept: Mapping[str, Tensor], where: str) -> Figure:
    """Which of one prompt's tokens each policy keeps, (T,) each: a row a policy."""
    fig, (axes,) = figure(width=9.6, height=0.42 * len(kept) + 1.2)
    table = torch.stack(list(kept.values()))
    axes.imshow(torch.where(table, 1.0, 0.15), cmap="Greys", vmin=0, vmax=1.1, aspect="auto", interpolation="nearest")
    for row in range(1, len(kept)):
        axes.axhline(row - 0.5, color="white", linewidth=3)
    axes.grid(visible=False)
    axes.set_yticks(range(len(kept)), list(kept))
    all_agree = int(table.all(dim=0).sum())
    fewest, most = table.sum(dim=1).min(), table.sum(dim=1).max()
    stay = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    label(
        axes, f"Of {table.shape[1]} tokens {stay} stay; {all_agree} stay in every row ({where})", "token of the prompt"
    )
    return fig
