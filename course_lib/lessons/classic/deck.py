"""The figures of lesson 02 that only the deck shows: further stored results and drawings."""

from collections.abc import Mapping
from statistics import median
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator
from torch import Tensor

from course_lib.lessons.classic import claims, plots
from course_lib.lessons.classic.claims import METHODS, PUBLISHED
from course_lib.lessons.classic.experiments.small import Result, stored
from course_lib.lessons.classic.plots import XOR_NAMES, median_left
from course_lib.lessons.classic.tables import in_words
from course_lib.lessons.common.drawn_tables import drawn_table
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.measure.paired import mean_and_error
from course_lib.pruning.classic.deletion import whole
from course_lib.pruning.classic.derivatives import full_hessian
from course_lib.pruning.classic.problems import XOR_NETWORK, xor
from course_lib.pruning.classic.quadratic import quadratic

Results = Mapping[str, Any]
TAKE_HOME = (claims.XOR_RIGHT, claims.XOR_CHOICE, claims.MONKS_FEWER, claims.ROWS, claims.FISHER_ORDER)
SIZES = {
    "a MONK's network": 58,
    "a row of q_proj": 576,
    "q_proj": 576 * 576,
    "one block": 3_538_944,
    "all blocks": 106_168_320,
}


def title() -> Figure:
    """Plot one error surface and the three deletions on it."""
    return plots.quadratics({"an error of two weights": quadratic((0.2, -0.3), 30.0)})


def predictions(predicted: Tensor | None = None, real: Tensor | None = None, names: list[str] = XOR_NAMES) -> Figure:
    """Plot the rise of the error for each deletion, as predicted by the second order and as measured."""
    if predicted is None or real is None:
        predicted, real = _rises()
    fig, (axes,) = figure(width=6.6, height=3.4)
    for index, (values, name) in enumerate(((predicted, "½ h w², predicted"), (real, "real"))):
        places = [k + 0.4 * (index - 0.5) for k in range(len(names))]
        axes.bar(places, values, 0.38, color=COLOURS[index], hatch=("", "//")[index], edgecolor="white", label=name)
    axes.set_xticks(range(len(names)), names, rotation=45, fontsize=9)
    axes.legend(frameon=False)
    largest = max(predicted.max().item(), 1e-30)
    title = f"Every deletion costs at least {(real / predicted.clamp(min=1e-30)).min():,.0f} times its prediction"
    label(axes, f"{title};\nthe largest prediction is {largest:.1g}", "", "rise of the error")
    return fig


def _rises() -> tuple[Tensor, Tensor]:
    """The predicted and the real rise of the error for each weight of the XOR network."""
    state, patterns = plots.trained_xor(), xor()
    exact = full_hessian(state.network, state.theta, patterns)
    predicted = 0.5 * exact.diagonal() * state.theta.square()
    deleted = [state.theta.index_fill(0, torch.tensor(q), 0.0) for q in range(len(state.theta))]
    errors = [whole(XOR_NETWORK, theta).error(patterns) for theta in deleted]
    return predicted, torch.tensor(errors) - state.error(patterns)


def xor_bars(results: Results | None = None, decay: float = 1e-5) -> Figure:
    """Plot how many networks still solve XOR after one deletion, by choice of the weight and update of the others."""
    results = results or load_measured("classic")
    fig, (axes,) = figure(width=6.8)
    by_method = {row["method"]: row for row in rows(results, "xor", decay=decay)}
    kinds = {"right_without": "others fixed", "right_with_update": "others updated by OBS"}
    for index, (key, name) in enumerate(kinds.items()):
        places = [i + 0.38 * (index - 0.5) for i in range(len(METHODS))]
        heights = [100 * by_method[m][key] / by_method[m]["n_nets"] for m in METHODS]
        bars = axes.bar(places, heights, 0.36, color=COLOURS[index], hatch=("", "//")[index], label=name)
        counts = [f"{by_method[m][key]} of {by_method[m]['n_nets']}" for m in METHODS]
        axes.bar_label(bars, counts, fontsize=9, padding=2)
    axes.set_xticks(range(len(METHODS)), [f"choice by {m}" for m in METHODS])
    axes.set_ylim(0, 138)
    axes.set_yticks(range(0, 101, 25))
    axes.legend(frameon=False, ncols=2, loc="upper left")
    counts = ", ".join(f"{m} {by_method[m]['right']}" for m in METHODS)
    label(axes, f"Of {by_method['OBS']['n_nets']} networks still right: {counts}", "", "XOR still right (%)")
    return fig


def weights_and_published(results: Results | None = None) -> Figure:
    """Plot the remaining weights for each of the MONK's problems next to the published number."""
    results = results or load_measured("classic")
    fig, (axes,) = figure(width=4.6, height=4.0)
    kinds = {"OBS alone": ("OBS", False), "OBS, retrained": ("OBS", True), "magnitude, retrained": ("magnitude", True)}
    for index, (name, (method, refit)) in enumerate(kinds.items()):
        for place, problem in enumerate(PUBLISHED):
            counts = [r["n_left"] for r in rows(results, "monks", problem=problem, method=method, refit=refit)]
            middle = median(counts)
            reach = [[middle - min(counts)], [max(counts) - middle]]
            look = line_style(index) | {"linestyle": "", "label": name if place == 0 else None}
            axes.errorbar(place + 0.2 * (index - 1), middle, yerr=reach, capsize=3, **look)
    for place, published in enumerate(PUBLISHED.values()):
        axes.hlines(published, place - 0.4, place + 0.4, color="black", linestyle=":", linewidth=1.5)
    axes.set_xticks(range(len(PUBLISHED)), [f"problem {problem}" for problem in PUBLISHED])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
    gaps = [median_left(results, p, "OBS", False) - published for p, published in PUBLISHED.items()]
    listed = ", ".join(f"{gap:+g}" for gap in gaps)
    label(
        axes,
        f"OBS alone, median minus published:\n{listed} weights",
        "",
        "remaining weights (median, range;\ndotted: published)",
    )
    return fig


def monks_curve(results: Results | None = None, problem: int = 1) -> Figure:
    """Plot the accuracy on all 432 robots by remaining weights, without retraining, for the first network."""
    results = results or load_measured("classic")
    fig, (axes,) = figure(width=6.8)
    reach = {}
    for index, method in enumerate(METHODS):
        (curve,) = rows(results, "monks_curves", problem=problem, method=method, refit=False)
        axes.plot(curve["n_left"], [100 * a for a in curve["test"]], label=method, markersize=3.5, **line_style(index))
        first_bad = next(n for n, a in zip(curve["n_left"], curve["test"], strict=True) if a < curve["test"][0])
        reach[method] = first_bad + 1
    axes.invert_xaxis()
    axes.axvline(PUBLISHED[problem], color=COLOURS[4], linestyle=":")
    axes.annotate(" published", (PUBLISHED[problem], 101), fontsize=9, ha="left")
    axes.legend(frameon=False)
    left = ", ".join(f"{method} {n}" for method, n in reach.items())
    label(
        axes,
        f"MONK's problem {problem}, unchanged down to: {left}",
        "remaining weights",
        "robots classified correctly (%)",
    )
    return fig


def row_of_a_layer() -> Figure:
    """Draw a row of a weight matrix as a network of its own, and the Hessian that all rows share at the start."""
    fig, axes = plots.empty_figure(8.6, 3.4, (-0.3, 10.6), (-1.2, 4.6))
    for row in range(5):
        for column in range(8):
            colour = COLOURS[1] if row == 1 else "#dfe3e8"
            axes.add_patch(draw_square(0.4 * column, 3.2 - 0.5 * row, 0.4, 0.5, colour))
    axes.annotate(
        "$W$: each row is one\nlinear output $y = w^\\top x$", (1.6, 0.55), ha="center", va="top", fontsize=11
    )
    for row in range(8):
        for column in range(8):
            shade = "#16324f" if row == column else "#8d99ae" if abs(row - column) < 3 else "#dfe3e8"
            axes.add_patch(draw_square(4.6 + 0.35 * column, 3.3 - 0.35 * row, 0.35, 0.35, shade))
    axes.annotate(
        "$H = X^\\top X / N$: the same\nfor every row, at the start", (6.0, 0.55), ha="center", va="top", fontsize=11
    )
    for index, deleted in enumerate(((1, 5), (0, 2), (4, 7))):
        for column in range(8):
            cell = draw_square(
                8.2 + 0.28 * column, 3.2 - 1.05 * index, 0.28, 0.42, "white" if column in deleted else COLOURS[1]
            )
            axes.add_patch(cell)
    axes.annotate("each row deletes other\nweights: $H^{-1}$ differs", (9.3, 0.55), ha="center", va="top", fontsize=11)
    axes.annotate("", (4.45, 2.1), (3.4, 2.1), arrowprops={"arrowstyle": "->", "color": COLOURS[0]})
    axes.annotate("", (8.05, 2.1), (7.55, 2.1), arrowprops={"arrowstyle": "->", "color": COLOURS[0]})
    axes.set_title("One row is a small exact problem; rows stop sharing at the first deletion", loc="left", fontsize=11)
    return fig


def draw_square(x: float, y: float, width: float, height: float, colour: str) -> Rectangle:
    edge = "white" if colour != "white" else COLOURS[4]
    return Rectangle((x, y), width, height, facecolor=colour, edgecolor=edge)


def ideas(results: Mapping[str, list[Result]] | None = None) -> Figure:
    """Plot the mean number of weights that each idea of the open task leaves, with two standard errors."""
    by_idea = results or stored()
    fig, (axes,) = figure(width=8.2, height=3.4)
    means = {name: mean_and_error([float(result.n_left) for result in attempts]) for name, attempts in by_idea.items()}
    for place, (name, (mean, error)) in enumerate(reversed(means.items())):
        axes.errorbar(mean, place, xerr=ERRORS * error, capsize=3, **line_style(0))
        solved = f"{sum(result.solved for result in by_idea[name])} of {len(by_idea[name])} right"
        look = {"va": "center", "fontsize": 8, "xytext": (8, 0), "textcoords": "offset points"}
        white_box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axes.annotate(f"{mean:.1f}; {solved}", (mean + ERRORS * error, place), bbox=white_box, **look)
    axes.axvline(PUBLISHED[1], color=COLOURS[4], linestyle=":", label=f"published: {PUBLISHED[1]}")
    axes.set_yticks(range(len(means)), list(means)[::-1])
    axes.set_xlim(0, 48)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    least, most = (end(mean for mean, _ in means.values()) for end in (min, max))
    n_networks = len(next(iter(by_idea.values())))
    title = f"Of 58 weights {least:.1f} to {most:.1f} are left, mean of {n_networks} networks"
    label(axes, title, "remaining weights (bars: two standard errors); right: about all 432 robots")
    return fig


def bytes_of_inverses(sizes: Mapping[str, int] = SIZES, memory: int = 16 * 10**9, bytes_per_number: int = 4) -> Figure:
    """Plot the bytes of the inverse Hessian of several parts of a model, with the memory of a machine."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    names = list(sizes)[::-1]
    values = [bytes_per_number * sizes[name] ** 2 for name in names]
    axes.plot(values, [f"{name}\n{sizes[name]:,} weights" for name in names], "o", color=COLOURS[0], markersize=7)
    axes.set_ylim(-0.6, len(names) - 0.4)
    log_scale(axes, "x")
    axes.xaxis.set_major_locator(LogLocator(base=1000, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_words(value)))
    axes.axvline(memory, color=COLOURS[1], linestyle="--", label=f"{memory / 1e9:,.0f} GB")
    axes.legend(frameon=False, loc="upper right")
    for index, value in enumerate(values):
        axes.annotate(f"   {in_words(value)}", (value, index), va="center", fontsize=9)
    axes.margins(x=0.25)
    fits = [name for name, size in sizes.items() if bytes_per_number * size**2 < memory]
    largest = max(fits, key=sizes.__getitem__) if fits else "none of these"
    label(axes, f"The largest inverse Hessian that fits into {memory / 1e9:,.0f} GB: {largest}", "size (log scale)")
    return fig


def take_home() -> Figure:
    """Draw the papers' claims with their sources, our numbers and the verdicts."""
    judged = [claim.judge() for claim in TAKE_HOME]
    lines = [(each.claim.text, each.claim.source.partition(")")[0] + ")", each.ours, each.words) for each in judged]
    return drawn_table(("claim", "source", "measured here", "verdict"), lines, (32, 20, 28, 22))
