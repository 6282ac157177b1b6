"""The figures of lesson 03 that read measured.json, made by `course reproduce sparsegpt`."""

from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured, rows
from course_lib.lessons.sparsegpt.experiment import tables as committed

NAMES = {
    "magnitude": "magnitude",
    "wanda": "Wanda",
    "sparsegpt": "SparseGPT",
    "sparsegpt + refit": "SparseGPT, refitted",
}
HATCHES = ("", "//", "..", "xx")
Tables = dict[str, list[dict[str, Any]]]


def sweep(tables: Tables | None = None) -> Figure:
    """Perplexity over sparsity, by method."""
    tables = tables or committed()
    fig, (axes,) = figure(width=6.8)
    (dense,) = rows(tables, "sweep", method="dense")
    curves = {}
    for index, (method, name) in enumerate(NAMES.items()):
        points = sorted(rows(tables, "sweep", method=method), key=lambda row: row["sparsity"])
        curves[method] = {row["sparsity"]: row["perplexity"] for row in points}
        axes.plot([100 * s for s in curves[method]], curves[method].values(), label=name, **line_style(index))
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    ratio = {s: curves["sparsegpt"][s] / curves["wanda"][s] for s in curves["sparsegpt"]}
    title = ", ".join(f"{value:.2f} at {100 * s:.0f} %" for s, value in ratio.items() if s in (0.3, 0.5, 0.7))
    label(axes, f"SparseGPT's perplexity over Wanda's:\n{title}", "sparsity (%)", "perplexity (log scale)")
    return fig


def pattern_bars(tables: Tables | None = None, corpus: str = "wikipedia") -> Figure:
    """Perplexity at half the weights, by pattern and method, with standard errors."""
    tables = tables or committed()
    fig, (axes,) = figure(width=7.6)
    (dense,) = rows(tables, "perplexity", method="dense", corpus=corpus)
    patterns = ("50%", "4:8", "2:4")
    for index, (method, name) in enumerate(NAMES.items()):
        cells = [rows(tables, "perplexity", method=method, pattern=p, corpus=corpus)[0] for p in patterns]
        places = [i + 0.21 * (index - 1.5) for i in range(len(patterns))]
        values, errors = ([row[key] for row in cells] for key in ("perplexity", "standard_error"))
        look = {"color": COLOURS[index], "hatch": HATCHES[index], "label": name, "capsize": 2}
        axes.bar_label(axes.bar(places, values, 0.2, yerr=errors, **look), fmt="%.0f", fontsize=8, padding=2)
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label=f"dense, {dense['perplexity']:.1f}")
    log_scale(axes, "y")
    axes.margins(y=0.2)
    axes.set_xticks(range(len(patterns)), ("unstructured", "4:8", "2:4"))
    axes.legend(frameon=False, ncols=5, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.03))
    gain = {p: _perplexity(tables, "sparsegpt", p, corpus) / _perplexity(tables, "wanda", p, corpus) for p in patterns}
    ratios = ", ".join(f"{value:.2f} at {p}" for p, value in gain.items())
    label(axes, f"SparseGPT's perplexity over Wanda's: {ratios}", "", "perplexity (log scale)")
    return fig


def _perplexity(tables: Tables, method: str, pattern: str, corpus: str = "wikipedia") -> float:
    return rows(tables, "perplexity", method=method, pattern=pattern, corpus=corpus)[0]["perplexity"]


def calibration_curves(tables: Tables | None = None, of_wanda: list[dict[str, Any]] | None = None) -> Figure:
    """Perplexity at 50 % over the number of calibration windows: updates need more text than scores."""
    tables = tables or committed()
    of_wanda = of_wanda or load_measured("wanda")["tables"]["calibration"]
    fig, (axes,) = figure(width=6.8)
    means = {}
    for index, (name, points) in enumerate({"Wanda": of_wanda, "SparseGPT": tables["calibration"]}.items()):
        sizes = sorted({row["n_windows"] for row in points})
        means[name] = {n: _mean([row["perplexity"] for row in points if row["n_windows"] == n]) for n in sizes}
        axes.plot(sizes, means[name].values(), label=name, **line_style(index))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    log_scale(axes, "y")
    axes.legend(frameon=False)
    ahead = [n for n in means["SparseGPT"] if n in means["Wanda"] and means["SparseGPT"][n] < means["Wanda"][n]]
    title = f"SparseGPT passes Wanda at {min(ahead)} windows" if ahead else "SparseGPT does not pass Wanda"
    label(axes, title, "calibration windows of 512 tokens", "perplexity at 50 % (log scale)")
    return fig


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def block_sizes(tables: Tables | None = None) -> Figure:
    """Perplexity at 50 % against the number of columns whose mask is chosen at once."""
    tables = tables or committed()
    fig, (axes,) = figure(width=6.8, height=3.0)
    perplexities = {
        row["block_size"]: row["perplexity"] for row in sorted(tables["block_size"], key=lambda r: r["block_size"])
    }
    axes.plot(list(perplexities), list(perplexities.values()), **line_style(0))
    log_scale(axes, "x")
    best = min(perplexities, key=perplexities.get)
    worst = max(perplexities.values()) / perplexities[best]
    title = f"Best in blocks of {best}; the worst choice has {worst:.2f} times its perplexity"
    label(axes, title, "columns chosen at once (log scale)", "perplexity at 50 %")
    return fig


def thirds(tables: Tables | None = None) -> Figure:
    """Perplexity when only the early, the middle or the late blocks are pruned."""
    tables = tables or committed()
    fig, (axes,) = figure(width=6.8, height=3.2)
    patterns = list(dict.fromkeys(row["pattern"] for row in tables["thirds"]))
    names = list(dict.fromkeys(row["third"] for row in tables["thirds"]))
    worst = {}
    for index, pattern in enumerate(patterns):
        values = [rows(tables, "thirds", third=third, pattern=pattern)[0]["perplexity"] for third in names]
        worst[pattern] = names[max(range(len(names)), key=values.__getitem__)]
        places = [i + 0.36 * (index - 0.5) for i in range(len(names))]
        bars = axes.bar(places, values, 0.34, color=COLOURS[index], hatch=HATCHES[index], label=pattern)
        axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=2)
    spans = [rows(tables, "thirds", third=third)[0] for third in names]
    axes.set_xticks(range(len(names)), [f"{r['third']}\nblocks {r['first_block']} to {r['last_block']}" for r in spans])
    axes.margins(y=0.15)
    axes.legend(frameon=False, ncols=2)
    worst_thirds = ", ".join(f"the {third} third at {pattern}" for pattern, third in worst.items())
    label(axes, f"Most sensitive: {worst_thirds}", "", "perplexity")
    return fig


def errors_over_depth(tables: Tables | None = None, pattern: str = "50%") -> Figure:
    """Median relative error of the layers of each block, by method."""
    tables = tables or committed()
    fig, (axes,) = figure(width=7.2)
    layers = rows(tables, "layer_errors", pattern=pattern)
    by_block: dict[int, list[dict[str, Any]]] = {}
    for row in layers:
        by_block.setdefault(int(row["layer"].split(".")[1]), []).append(row)
    for index, method in enumerate(("magnitude", "wanda", "sparsegpt", "refit")):
        name = {"refit": "best weights on SparseGPT's mask"}.get(method, NAMES.get(method, method))
        curve = [100 * median(row[method] for row in block) for block in by_block.values()]
        axes.plot(list(by_block), curve, label=name, markersize=4, **line_style(index))
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    above = 100 * (median(row["sparsegpt"] / row["refit"] for row in layers) - 1)
    below = sum(row["refit"] <= row["sparsegpt"] <= row["wanda"] for row in layers)
    title = f"SparseGPT is {above:.0f} % above the best weights on its mask;"
    title += f"\nbetween them and Wanda in {below} of {len(layers)} layers"
    label(axes, title, "block", "changed share of the output (%, log scale)")
    return fig
