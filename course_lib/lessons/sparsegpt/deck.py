"""The figures of lesson 03 that only the deck shows: stored results and claims."""

from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.drawn_tables import drawn_claims, drawn_table
from course_lib.lessons.common.results import load_published, rows, spaced
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.sparsegpt.claims import NAMES, PAPERS_CLAIMS, PAPERS_GAP, PHASES, Tables, beyond_forward
from course_lib.lessons.sparsegpt.experiments.sparsegpt import tables as stored_tables

SHADES = ("#16324f", "#c8553d", "#e9b44c", "#dde2e7")  # dark to light, in the order of the phases
HATCHES = ("", "//", "..", "")


def by_sparsity(tables: Tables | None = None) -> Figure:
    """Plot the perplexity over sparsity by method and, since the curves are close, as a multiple of Wanda's."""
    tables = tables or stored_tables()
    fig, (left, right) = figure(2, width=5.0, height=3.7)
    (dense,) = rows(tables, "sweep", method="dense")
    curves = {}
    for index, (method, name) in enumerate(NAMES.items()):
        points = sorted(rows(tables, "sweep", method=method), key=lambda row: row["sparsity"])
        curves[method] = {row["sparsity"]: row["perplexity"] for row in points}
        left.plot([100 * s for s in curves[method]], curves[method].values(), label=name, **line_style(index))
        if method.startswith("sparsegpt"):
            ratios = [value / curves["wanda"][s] for s, value in curves[method].items()]
            right.plot([100 * s for s in curves[method]], ratios, label=name, **line_style(index))
    left.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    right.axhline(1, color=COLOURS[1], linestyle="--", label="Wanda")
    left.set_yscale("log")
    right.set_ylim(0, 1.15)
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=9)
    ratio = {s: curves["sparsegpt"][s] / curves["wanda"][s] for s in curves["sparsegpt"]}
    title = ", ".join(f"{value:.2f} at {100 * s:.0f} %" for s, value in ratio.items() if s in (0.3, 0.5, 0.7))
    times = {s: curves["magnitude"][s] / curves["wanda"][s] for s in (0.5, 0.7)}
    worst = ", ".join(f"{value:.0f} at {100 * s:.0f} %" for s, value in times.items())
    label(left, f"Magnitude's perplexity / Wanda's:\n{worst}", "sparsity (%)", "perplexity (log scale)")
    label(right, f"SparseGPT's perplexity / Wanda's:\n{title}", "sparsity (%)", "perplexity / Wanda's perplexity")
    return fig


def errors_over_depth(tables: Tables | None = None, pattern: str = "50%") -> Figure:
    """Plot the median relative error of the layers of each transformer block, by method."""
    tables = tables or stored_tables()
    fig, (axes,) = figure(width=7.2)
    layers = rows(tables, "layer_errors", pattern=pattern)
    by_block: dict[int, list[dict[str, Any]]] = {}
    for row in layers:
        by_block.setdefault(int(row["layer"].split(".")[1]), []).append(row)
    for index, method in enumerate(("magnitude", "wanda", "sparsegpt", "refit")):
        name = {"refit": "least squares on SparseGPT's mask"}.get(method, NAMES.get(method, method))
        curve = [100 * median(row[method] for row in block) for block in by_block.values()]
        axes.plot(list(by_block), curve, label=name, markersize=4, **line_style(index))
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    above = 100 * (median(row["sparsegpt"] / row["refit"] for row in layers) - 1)
    below = sum(row["refit"] <= row["sparsegpt"] <= row["wanda"] for row in layers)
    title = f"SparseGPT's error is {above:.0f} % above least squares on its mask (paper: about {PAPERS_GAP} %),"
    title += f"\nand between that and Wanda's in {below} of {len(layers)} layers"
    label(axes, title, "transformer block", "relative error of the output (%, log scale)")
    return fig


def seconds(tables: Tables | None = None) -> Figure:
    """Plot the seconds of pruning by method, one shade per phase."""
    tables = tables or stored_tables()
    fig, (axes,) = figure(width=8.0, height=3.4)
    measured = rows(tables, "seconds")[::-1]
    left = [0.0] * len(measured)
    for phase, shade, hatch in zip(PHASES[::-1], SHADES, HATCHES, strict=True):
        values = [row[phase] for row in measured]
        axes.barh(range(len(values)), values, left=left, color=shade, hatch=hatch, edgecolor="white", label=phase)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(measured)), [f"{NAMES[row['method']]}, {spaced(row['pattern'])}" for row in measured])
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    times = [each["sparsegpt"] / each["wanda"] for each in (beyond_forward(tables, p) for p in ("50%", "2:4"))]
    published = {row["method"]: row["seconds"] for row in rows(load_published("sparsegpt"), "metric_seconds")}
    title = f"Without the forward passes SparseGPT takes {times[0]:.1f} times as long as Wanda,\n"
    title += (
        f"{times[1]:.1f} times at 2:4; published for LLaMA-7B: {published['sparsegpt']} s and {published['wanda']} s, "
    )
    label(axes, title + f"{published['sparsegpt'] / published['wanda']:.0f} times", "seconds")
    return fig


def take_home() -> Figure:
    """Draw a table of the papers' claims that this lesson measures."""
    return drawn_claims(PAPERS_CLAIMS)


def rounded(tables: Tables | None = None) -> Figure:
    """Draw a table of perplexities at about equal size, by the number of weights that share a scale."""
    results, lines = rows(tables or stored_tables(), "rounded"), []
    for name in dict.fromkeys(row["name"] for row in results):
        by_group = {row["group"]: row for row in results if row["name"] == name}
        cells = [
            f"{row['bits_a_weight']:.2f}: {row['perplexity']:.0f} ± {row['standard_error']:.0f}"
            for row in by_group.values()
        ]
        lines.append((name.replace("50% +", "50 % zero,").replace("2:4 +", "2:4,"), *cells))
    heads = [
        "bits per weight: perplexity",
        *(f"one scale per {g} weights" if g else "one scale per row" for g in by_group),
    ]
    return drawn_table(heads, lines, (26, 22, 24), size=14)
