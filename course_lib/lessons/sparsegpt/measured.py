"""The figures of lesson 03 that read what `course reproduce sparsegpt` and the experiments beside it measured."""

from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from course_lib.lessons.common.dots import error_bars, reach, side_by_side
from course_lib.lessons.common.effects import log_gap, n_windows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import listed, load_measured, rows, spaced
from course_lib.lessons.sparsegpt.experiment import tables as committed

NAMES = {
    "magnitude": "magnitude",
    "wanda": "Wanda",
    "sparsegpt": "SparseGPT",
    "sparsegpt + refit": "SparseGPT, refitted",
}
PAPERS_BLOCK = 128
PAPERS_GAP = 20  # per cent, appendix A.1, on OPT-2.7B
Tables = dict[str, list[dict[str, Any]]]


def sweep(tables: Tables | None = None) -> Figure:
    """Perplexity over sparsity by method; and, since the curves touch, as a multiple of Wanda's."""
    tables = tables or committed()
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
    label(left, f"Magnitude's perplexity over Wanda's:\n{worst}", "sparsity (%)", "perplexity (log scale)")
    label(right, f"SparseGPT's perplexity over Wanda's:\n{title}", "sparsity (%)", "perplexity, over Wanda's")
    return fig


def by_pattern(tables: Tables | None = None, corpus: str = "wikipedia") -> Figure:
    """Perplexity at half the weights, by pattern and method, with standard errors."""
    tables = tables or committed()
    fig, (axes,) = figure(width=7.6)
    (dense,) = rows(tables, "perplexity", method="dense", corpus=corpus)
    patterns = ("50%", "4:8", "2:4")
    by_method = {
        name: [rows(tables, "perplexity", method=method, pattern=p, corpus=corpus)[0] for p in patterns]
        for method, name in NAMES.items()
    }
    series = {name: [(row["perplexity"], row["standard_error"]) for row in cells] for name, cells in by_method.items()}
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label=f"dense, {dense['perplexity']:.1f}")
    side_by_side(axes, ("unstructured", "4:8", "2:4"), series)
    axes.legend(frameon=False, ncols=5, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.03))
    gain = {p: _perplexity(tables, "sparsegpt", p, corpus) / _perplexity(tables, "wanda", p, corpus) for p in patterns}
    ratios = ", ".join(f"{value:.2f} at {spaced(p)}" for p, value in gain.items())
    bars = error_bars(n_windows(dense))
    label(axes, f"SparseGPT's perplexity over Wanda's: {ratios}", "", f"perplexity (log scale;\n{bars})")
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
        look = line_style(index)
        axes.plot(sizes, means[name].values(), label=name, **look | {"marker": ""})
        each = [row["n_windows"] for row in points], [row["perplexity"] for row in points]
        axes.plot(*each, **look | {"linestyle": "none"})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    log_scale(axes, "y")
    _more_ticks(axes)
    axes.legend(frameon=False)
    fell = {name: curve[min(curve)] / curve[max(curve)] for name, curve in means.items()}
    times = ", ".join(f"{ratio:.1f} times with {name}" for name, ratio in fell.items())
    title = f"One calibration window instead of {max(sizes)}:\nperplexity {times}"
    label(axes, title, "calibration windows of 512 tokens (a mark a sample)", "perplexity at 50 % (log scale)")
    return fig


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def block_sizes(tables: Tables | None = None) -> Figure:
    """Perplexity at 50 % against the number of columns whose mask is chosen at once."""
    tables = tables or committed()
    fig, (axes,) = figure(width=6.8, height=3.0)
    by_size = {row["block_size"]: row for row in sorted(tables["block_size"], key=lambda row: row["block_size"])}
    values, errors = _with_errors(list(by_size.values()))
    axes.errorbar(list(by_size), values, yerr=errors, capsize=3, **line_style(0))
    log_scale(log_scale(axes, "x"), "y")
    axes.set_xticks(list(by_size), [str(size) for size in by_size])
    title = f"Beside {PAPERS_BLOCK} columns chosen at once,\n{_against(by_size, PAPERS_BLOCK)}"
    bars = error_bars(n_windows(by_size[PAPERS_BLOCK]))
    label(axes, title, "columns chosen at once (log scale)", f"perplexity at 50 % (log scale;\n{bars})")
    return fig


def thirds(tables: Tables | None = None) -> Figure:
    """Perplexity when only the early, the middle or the late blocks are pruned."""
    tables = tables or committed()
    fig, (axes,) = figure(width=6.8, height=3.2)
    patterns = list(dict.fromkeys(row["pattern"] for row in tables["thirds"]))
    names = list(dict.fromkeys(row["third"] for row in tables["thirds"]))
    series, findings = {}, []
    for pattern in patterns:
        by_third = {third: rows(tables, "thirds", third=third, pattern=pattern)[0] for third in names}
        series[spaced(pattern)] = [(row["perplexity"], row["standard_error"]) for row in by_third.values()]
        findings.append(f"{spaced(pattern)}: beside the early third, {_against(by_third, names[0])}")
    spans = [rows(tables, "thirds", third=third)[0] for third in names]
    groups = [f"{r['third']}\nblocks {r['first_block']} to {r['last_block']}" for r in spans]
    side_by_side(axes, groups, series)
    _more_ticks(axes)
    axes.legend(frameon=False, ncols=2)
    label(axes, "\n".join(findings), "", f"perplexity (log scale;\n{error_bars(n_windows(spans[0]))})")
    return fig


def _more_ticks(axes: Axes) -> None:
    """Where the y axis spans less than a decade, 1, 2 and 5 are too few."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))


def _with_errors(points: list[dict[str, Any]]) -> tuple[list[float], list[tuple[float, ...]]]:
    """Perplexities, and how far two standard errors reach below and above each."""
    errors = list(zip(*(reach(row["perplexity"], row["standard_error"]) for row in points), strict=True))
    return [row["perplexity"] for row in points], errors


def _against(by_name: dict[Any, dict[str, Any]], usual: Any) -> str:
    """Which of several settings are clearly worse or better than the usual one, and which are not told apart."""
    clear: dict[str, list[Any]] = {"worse": [], "better": [], "not told apart": []}
    for name, row in by_name.items():
        if name != usual:
            effect = log_gap(by_name[usual], row)
            clear["worse" if effect.holds else "better" if effect.fails else "not told apart"].append(name)
    return "; ".join(
        f"{listed(names)} {'are' if len(names) > 1 else 'is'} {word}" for word, names in clear.items() if names
    )


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
    title = f"SparseGPT is {above:.0f} % above the best weights on its mask (paper: about {PAPERS_GAP} %);"
    title += f"\nbetween them and Wanda in {below} of {len(layers)} layers"
    label(axes, title, "block", "changed share of the output (%, log scale)")
    return fig
