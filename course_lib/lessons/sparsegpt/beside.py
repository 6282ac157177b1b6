"""Figures of the deck that set the papers' numbers beside those measured here: model size, time, and the claims."""

import math
import textwrap
from collections.abc import Sequence
from statistics import median

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import error_bars, reach
from course_lib.lessons.common.effects import log_gap, n_windows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_published, rows, spaced
from course_lib.lessons.common.verdicts import Effect, verdict
from course_lib.lessons.sparsegpt.experiment import tables as committed
from course_lib.lessons.sparsegpt.measured import NAMES, PAPERS_BLOCK, PAPERS_GAP, Tables
from course_lib.lessons.sparsegpt.tables import PHASES, beyond_forward

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
    ours = _perplexity(tables, "dense", "dense")
    half = {}
    for index, pattern in enumerate(("50%", "4:8", "2:4")):
        found = {
            r["model"]: r["perplexity"] for r in published if (r["method"], r["pattern"]) == ("sparsegpt", pattern)
        }
        ratios = {model: value / dense[model] for model, value in found.items()}
        look = line_style(index)
        axes.plot([size_of(model) for model in ratios], ratios.values(), label=f"OPT, {spaced(pattern)}", **look)
        row = _perplexity(tables, "sparsegpt", pattern)
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


Claim = tuple[str, str, str, str]  # what is claimed, what the paper has, what was measured here, and the verdict


def claims(tables: Tables | None = None) -> list[Claim]:
    """Those of the papers that this lesson measures."""
    tables = tables or committed()
    patterns = {p: _perplexity(tables, "sparsegpt", p) for p in ("50%", "4:8", "2:4")}
    sizes = {row["block_size"]: row for row in tables["block_size"]}
    early, late = (rows(tables, "thirds", third=third, pattern="2:4")[0] for third in ("early", "late"))
    joint = [[rows(tables, "rounded", group=g, name=n)[0] for n in ("50% + 4 bits", "3 bits")] for g in (None, 64)]
    usual, one, all_columns = sizes[PAPERS_BLOCK], sizes[min(sizes)], sizes[max(sizes)]
    steps = [(patterns["50%"], patterns["4:8"]), (patterns["4:8"], patterns["2:4"])]
    return [
        *(_than_wanda(tables, pattern) for pattern in ("50%", "2:4")),
        _claim("50 % costs less than 4:8, and 4:8 less than 2:4", "8.21, 8.45, 8.74 (OPT-175B)", steps),
        _claim(
            f"Masks for {PAPERS_BLOCK} columns beat those for 1 and for all",
            "figure 10 (OPT-2.7B)",
            [(usual, one), (usual, all_columns)],
        ),
        _gap(tables),
        _claim("2:4: early blocks lose less than late ones", "figure 7 (OPT-175B)", [(early, late)], larger=True),
        _claim("50 % at 4 bits beats dense at 3 bits", "8.29 against 8.68 (OPT-175B)", joint, larger=True),
    ]


def _claim(claim: str, paper: str, pairs: Sequence[Sequence[dict]], larger: bool = False) -> Claim:
    """That the first of each pair of perplexities is the lower one."""
    said = "; ".join(f"{better['perplexity']:.1f} against {worse['perplexity']:.1f}" for better, worse in pairs)
    return claim, paper, said, verdict([log_gap(*pair) for pair in pairs], larger_models=larger)


def _than_wanda(tables: Tables, pattern: str) -> Claim:
    found = load_published("sparsegpt")["tables"]["llama"]
    paper = [rows({"x": found}, "x", model="LLaMA-2-7B", method=m, pattern=pattern)[0] for m in ("sparsegpt", "wanda")]
    said = f"{paper[0]['perplexity']} against {paper[1]['perplexity']} (LLaMA-2-7B)"
    pair = [_perplexity(tables, method, pattern) for method in ("sparsegpt", "wanda")]
    return _claim(f"{spaced(pattern)}: lower perplexity than Wanda", said, [pair])


def _gap(tables: Tables) -> Claim:
    """Counted over all layers of the model, so without an error."""
    ratio = median(row["sparsegpt"] / row["refit"] for row in rows(tables, "layer_errors", pattern="50%"))
    word = verdict(Effect(value=1 + PAPERS_GAP / 100 - ratio, error=0.0), larger_models=True)
    here = f"{100 * (ratio - 1):.0f} %, median of the layers"
    return f"At most {PAPERS_GAP} % above the best weights", f"about {PAPERS_GAP} % (OPT-2.7B)", here, word


def _perplexity(tables: Tables, method: str, pattern: str) -> dict:
    return rows(tables, "perplexity", method=method, pattern=pattern, corpus="wikipedia")[0]


def take_home(tables: Tables | None = None) -> Figure:
    """The claims as a table."""
    return as_table(("claim (perplexity)", "paper", "measured here", "verdict"), claims(tables), (30, 22, 24, 18))


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
    return as_table(heads, lines, (26, 22, 24), size=14)


def as_table(heads: Sequence[str], lines: Sequence[Sequence[str]], widths: Sequence[int], size: int = 12) -> Figure:
    """Rows of text, each cell broken at its width in characters."""
    cells = [[textwrap.fill(cell, width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    heights = [max(cell.count("\n") + 1 for cell in line) + 0.5 for line in cells]
    whole, unit = sum(heights) + 1.4, 0.2 * size / 12
    fig, (axes,) = figure(width=0.098 * sum(widths) * size / 12, height=whole * unit)
    axes.axis("off")
    axes.set(xlim=(0, sum(widths)), ylim=(whole, 0))
    starts = [sum(widths[:i]) for i in range(len(widths))]
    for head, x in zip(heads, starts, strict=True):
        axes.text(x, 0.7, head, fontsize=size, fontweight="bold", va="center", color=COLOURS[0])
    at = 1.3
    for line, height in zip(cells, heights, strict=True):
        axes.axhline(at, color=COLOURS[4], linewidth=0.8)
        for index, (cell, x) in enumerate(zip(line, starts, strict=True)):
            weight = "bold" if heads[index] == "verdict" else "normal"
            axes.text(x, at + height / 2, cell, fontsize=size, va="center", linespacing=1.15, fontweight=weight)
        at += height
    return fig
