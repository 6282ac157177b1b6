"""Figures of the deck that set the papers' numbers beside those measured here: model size, time, and the claims."""

import math

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import error_bars, reach
from course_lib.lessons.common.drawn_tables import drawn_claims, drawn_table
from course_lib.lessons.common.effects import log_gap, n_windows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_published, rows, spaced
from course_lib.lessons.sparsegpt.claims import PAPERS_CLAIMS, PHASES, beyond_forward, perplexity_row
from course_lib.lessons.sparsegpt.experiment import tables as committed
from course_lib.lessons.sparsegpt.measured import NAMES, Tables

HERE, MILLIONS = "SmolLM2, here", 134.5  # parameters
SHADES = ("#16324f", "#c8553d", "#e9b44c", "#dde2e7")  # dark to light, as the phases are stacked
HATCHES = ("", "//", "..", "")


def size_of(model: str) -> float:
    """Parameters in millions, from a name such as OPT-1.3B."""
    number = model.rsplit("-", 1)[1]
    return float(number[:-1]) * (1000 if number.endswith("B") else 1)


def by_size(tables: Tables | None = None) -> Figure:
    """How many times larger SparseGPT makes the perplexity, by model size: the paper's models and ours."""
    tables, published = tables or committed(), load_published("sparsegpt")["tables"]["opt"]
    fig, (axes,) = figure(width=8.0, height=4.2)
    dense = {row["model"]: row["perplexity"] for row in published if row["method"] == "dense"}
    ours = perplexity_row(tables, "dense", "dense")
    half = {}
    for index, pattern in enumerate(("50%", "4:8", "2:4")):
        found = {
            r["model"]: r["perplexity"] for r in published if (r["method"], r["pattern"]) == ("sparsegpt", pattern)
        }
        ratios = {model: value / dense[model] for model, value in found.items()}
        look = line_style(index)
        axes.plot([size_of(model) for model in ratios], ratios.values(), label=f"OPT, {spaced(pattern)}", **look)
        row = perplexity_row(tables, "sparsegpt", pattern)
        gap = log_gap(ours, row)
        value = math.exp(gap.value)
        below, above = reach(value, value * gap.error)
        hollow = look | {"linestyle": "none", "markerfacecolor": "white", "markersize": 9}
        hollow |= {"label": f"{HERE}, {spaced(pattern)}", "capsize": 3}
        axes.errorbar(MILLIONS * 1.08**index, value, yerr=[[below], [above]], **hollow)
        half = half or ratios | {HERE: value}
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    axes.set_xscale("log")
    sizes = {"125M": 125, "350M": 350, "1.3B": 1300, "2.7B": 2700, "6.7B": 6700, "13B": 13000, "30B": 30000}
    axes.set_xticks([*sizes.values(), 66000, 175000], [*sizes, "66B", "175B"])
    axes.minorticks_off()
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, ncols=2)
    title = f"50 % zero: {half['OPT-125M']:.2f} times the dense perplexity with OPT-125M, "
    title += f"{half['OPT-175B']:.2f} with OPT-175B;\n{half[HERE]:.2f} with the 135 million weights measured here"
    bars = error_bars(n_windows(ours))
    label(axes, title, "parameters (log scale)", f"perplexity, over the dense model's\n(log scale; {bars})")
    return fig


def seconds(tables: Tables | None = None) -> Figure:
    """Where the time of pruning goes: bars from 0, a phase a shade."""
    tables = tables or committed()
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
    title = f"Beyond the forward passes SparseGPT takes {times[0]:.1f} times as long as Wanda,\n"
    title += (
        f"at 2:4 {times[1]:.1f} times; published for LLaMA-7B: {published['sparsegpt']} s and {published['wanda']} s, "
    )
    label(axes, title + f"{published['sparsegpt'] / published['wanda']:.0f} times", "seconds")
    return fig


def take_home() -> Figure:
    """The papers' claims that this lesson measures, as a table."""
    return drawn_claims(PAPERS_CLAIMS)


def rounded(tables: Tables | None = None) -> Figure:
    """Pruned and rounded, or rounded more: perplexities at about equal size, by how many weights share a scale."""
    found, lines = rows(tables or committed(), "rounded"), []
    for name in dict.fromkeys(row["name"] for row in found):
        of_it = {row["group"]: row for row in found if row["name"] == name}
        cells = [
            f"{row['bits_a_weight']:.2f}: {row['perplexity']:.0f} ± {row['standard_error']:.0f}"
            for row in of_it.values()
        ]
        lines.append((name.replace("50% +", "50 % zero,").replace("2:4 +", "2:4,"), *cells))
    heads = ["bits a weight: perplexity", *(f"a scale for {g} weights" if g else "a scale for a row" for g in of_it)]
    return drawn_table(heads, lines, (26, 22, 24), size=14)
