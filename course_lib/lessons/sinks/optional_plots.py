"""The figure of an optional section of lesson 08: a tiny language with an idle head."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label

Results = Mapping[str, Any]


def backcopy_sample(results: Results | None = None, triggers: str = "aeiou") -> Figure:
    """Plot the attention of one model with a learnable sink on one line of bigram-backcopy."""
    results = results or load_measured("sinks", "backcopy")
    line, *_ = rows(results, "sample", variant="learnable sink")
    weights, text = torch.tensor(line["weights"]), line["text"]
    fig, (axes,) = figure(width=7.6, height=4.6)
    axes.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    n_before = weights.shape[1] - len(text)
    names = ["sink"] * n_before + [letter if letter != " " else "␣" for letter in text]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.get_xticklabels()[0].set_horizontalalignment("right" if n_before else "center")
    axes.set_yticks(range(len(text)), names[n_before:], fontsize=7)
    busy = [row for row, letter in enumerate(text) if letter in triggers and row]
    for row in busy:
        axes.get_yticklabels()[row].set(color=COLOURS[1], fontweight="bold")
    idle = [row for row, letter in enumerate(text) if letter not in triggers]
    to_previous = 100 * fmean(weights[row, row + n_before - 1].item() for row in busy)
    to_sink = 100 * fmean(weights[row, 0].item() for row in idle)
    n_models = len(rows(results, "attention", variant="learnable sink"))
    title = (
        f"One model of {n_models} (seed {line['seed']}): vowels attend to the letter before ({to_previous:.0f} %),\n"
    )
    label(axes, title + f"other letters to the sink ({to_sink:.0f} %)", "attended to", "query (bold: vowel)")
    return fig
