"""The figures of lesson 02 that read measured.json, the measurement made by `course reproduce classic`."""

from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured, rows

METHODS = ("magnitude", "OBD", "OBS")
PUBLISHED = {1: 14, 2: 15, 3: 4}  # as read off reductions of 76, 62 and 90 %; the abstract gives these unnumbered


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("classic")


def small() -> dict[str, Any]:
    """The second one: squared gradients, and ideas for the open task."""
    return load_measured("classic", "small")


def xor_bars(measured: dict[str, Any] | None = None, decay: float = 1e-5) -> Figure:
    """How often XOR survives the deletion of one weight, by who chose it and whether the others moved."""
    measured = measured or results()
    fig, (axes,) = figure(width=6.8)
    by_method = {row["method"]: row for row in rows(measured, "xor", decay=decay)}
    kinds = {"right_without": "nothing else moves", "right_with_update": "the others move (OBS's update)"}
    for index, (key, name) in enumerate(kinds.items()):
        places = [i + 0.38 * (index - 0.5) for i in range(len(METHODS))]
        heights = [100 * by_method[m][key] / by_method[m]["n_nets"] for m in METHODS]
        bars = axes.bar(places, heights, 0.36, color=COLOURS[index], hatch=("", "//")[index], label=name)
        counts = [f"{by_method[m][key]} of {by_method[m]['n_nets']}" for m in METHODS]
        axes.bar_label(bars, counts, fontsize=9, padding=2)
    axes.set_xticks(range(len(METHODS)), [f"chosen by {m}" for m in METHODS])
    axes.set_ylim(0, 138)
    axes.set_yticks(range(0, 101, 25))
    axes.legend(frameon=False, ncols=2, loc="upper left")
    right_counts = ", ".join(f"{m} {by_method[m]['right']}" for m in METHODS)
    label(axes, f"Of {by_method['OBS']['n_nets']} networks still right: {right_counts}", "", "XOR still right (%)")
    return fig


def monks_counts(measured: dict[str, Any] | None = None) -> Figure:
    """The weights left when the training accuracy would fall, one dot a network; medians as bars."""
    measured = measured or results()
    fig, axes = figure(3, width=3.4, height=4.1)
    for panel, (problem, published) in zip(axes, PUBLISHED.items(), strict=True):
        for place, (method, refit) in enumerate((m, r) for r in (False, True) for m in METHODS):
            counts = [r["n_left"] for r in rows(measured, "monks", problem=problem, method=method, refit=refit)]
            spread = [place + 0.5 * (i / max(len(counts) - 1, 1) - 0.5) for i in range(len(counts))]
            colour = COLOURS[METHODS.index(method)]
            panel.scatter(spread, counts, s=16, color=colour, marker=MARKERS[METHODS.index(method)])
            panel.hlines(median(counts), place - 0.38, place + 0.38, color="black", linewidth=1.5, zorder=1)
            look = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top", "fontsize": 9}
            panel.annotate(f"{median(counts):g}", (place, 0.99), **look)
        panel.axhline(published, color=COLOURS[4], linestyle=":", linewidth=1.5)
        panel.axvline(2.5, color="black", linewidth=0.6)
        panel.set_xticks(range(6), [*METHODS, *METHODS], rotation=60, fontsize=9)
        panel.set_ylim(0, 1.2 * max(r["n_left"] for r in rows(measured, "monks", problem=problem)))
        best = {r: median_left(measured, problem, "OBS", r) for r in (False, True)}
        size = {1: 58, 2: 39, 3: 39}[problem]
        label(
            panel,
            f"Problem {problem}, median: of {size} weights\nOBS leaves {best[False]:g}, refitted {best[True]:g}",
        )
        panel.set_xlabel("nothing retrained  |  refitted each time\n(dotted: published)")
    axes[0].set_ylabel("weights left (line: median)")
    return fig


def beside_the_papers(measured: dict[str, Any] | None = None) -> Figure:
    """The published number of weights for each of the MONK's problems beside what the networks here come to."""
    measured = measured or results()
    fig, (axes,) = figure(width=4.6, height=4.0)
    kinds = {"OBS alone": ("OBS", False), "OBS, refitted": ("OBS", True), "magnitude, refitted": ("magnitude", True)}
    for index, (name, (method, refit)) in enumerate(kinds.items()):
        for place, problem in enumerate(PUBLISHED):
            found = [r["n_left"] for r in rows(measured, "monks", problem=problem, method=method, refit=refit)]
            middle = median(found)
            reach = [[middle - min(found)], [max(found) - middle]]
            look = line_style(index) | {"linestyle": "", "label": name if place == 0 else None}
            axes.errorbar(place + 0.2 * (index - 1), middle, yerr=reach, capsize=3, **look)
    for place, published in enumerate(PUBLISHED.values()):
        axes.hlines(published, place - 0.4, place + 0.4, color="black", linestyle=":", linewidth=1.5)
    axes.set_xticks(range(len(PUBLISHED)), [f"problem {problem}" for problem in PUBLISHED])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
    within = [median_left(measured, p, "OBS", False) - published for p, published in PUBLISHED.items()]
    listed = ", ".join(f"{gap:+g}" for gap in within)
    label(
        axes,
        f"OBS alone, median minus published:\n{listed} weights",
        "",
        "weights left (median, range;\ndotted: published)",
    )
    return fig


def median_left(measured: dict[str, Any], problem: int, method: str, refit: bool) -> float:
    """Over the networks."""
    return median(r["n_left"] for r in rows(measured, "monks", problem=problem, method=method, refit=refit))


def monks_curve(measured: dict[str, Any] | None = None, problem: int = 1) -> Figure:
    """Accuracy on all 432 robots over the weights left, without retraining, for the first network."""
    measured = measured or results()
    fig, (axes,) = figure(width=6.8)
    reach = {}
    for index, method in enumerate(METHODS):
        (curve,) = rows(measured, "monks_curves", problem=problem, method=method, refit=False)
        axes.plot(curve["n_left"], [100 * a for a in curve["test"]], label=method, markersize=3.5, **line_style(index))
        first_bad = next(n for n, a in zip(curve["n_left"], curve["test"], strict=True) if a < curve["test"][0])
        reach[method] = first_bad + 1
    axes.invert_xaxis()
    axes.axvline(PUBLISHED[problem], color=COLOURS[4], linestyle=":")
    axes.annotate(" published", (PUBLISHED[problem], 101), fontsize=9, ha="left")
    axes.legend(frameon=False)
    left = ", ".join(f"{method} {n}" for method, n in reach.items())
    label(axes, f"MONK's problem {problem}, unchanged down to: {left}", "weights left", "right of all 432 robots (%)")
    return fig


def digits_by_sparsity(measured: dict[str, Any], key: str) -> dict[str, dict[float, float]]:
    """Mean accuracy over the networks, by method and sparsity."""
    curves: dict[str, dict[float, list[float]]] = {method: {} for method in METHODS}
    for row in rows(measured, "digits"):
        curves[row["method"]].setdefault(row["sparsity"], []).append(row[key])
    return {method: {s: sum(a) / len(a) for s, a in sorted(curve.items())} for method, curve in curves.items()}


def digits_curves(measured: dict[str, Any] | None = None) -> Figure:
    """Accuracy on unseen digits over sparsity: as pruned, and retrained."""
    measured = measured or results()
    fig, axes = figure(2, width=5.4, height=4.0)
    panels = {"pruned": "Nothing retrained", "retrained": "Retrained once at the end"}
    for panel, (key, name) in zip(axes, panels.items(), strict=True):
        curves = digits_by_sparsity(measured, key)
        for index, (method, curve) in enumerate(curves.items()):
            axis = [100 * s for s in curve]
            panel.plot(axis, [100 * a for a in curve.values()], label=method, markersize=4, **line_style(index))
        panel.set_ylim(0, 103)
        panel.legend(frameon=False, loc="lower left")
        reach = ", ".join(f"{method} {100 * reached(curve):.0f} %" for method, curve in curves.items())
        label(panel, f"{name}: within a point of dense up to\n{reach}", "sparsity (%)", "right of unseen digits (%)")
    return fig


def reached(curve: dict[float, float], loss: float = 0.01) -> float:
    """The sparsity up to which accuracy stays within `loss` of the dense network's."""
    good = 0.0
    for sparsity, accuracy in curve.items():
        if accuracy < curve[0.0] - loss:
            return good
        good = sparsity
    return good


def dense_pruned_retrained(measured: dict[str, Any], sparsity: float = 0.85) -> Figure:
    """Dense, pruned, retrained, at the measured sparsity that is nearest to the one asked for."""
    fig, (axes,) = figure(width=6.8)
    curves = {key: digits_by_sparsity(measured, key) for key in ("pruned", "retrained", "retrained_each_round")}
    near = min(curves["pruned"]["OBS"], key=lambda s: abs(s - sparsity))
    names = {"pruned": "pruned", "retrained": "retrained once", "retrained_each_round": "retrained every round"}
    dense = 100 * curves["pruned"]["OBS"][0.0]
    for index, (key, name) in enumerate(names.items()):
        places = [i + 0.27 * (index - 1) for i in range(len(METHODS))]
        heights = [100 * curves[key][m][near] for m in METHODS]
        bars = axes.bar(places, heights, 0.25, color=COLOURS[index], hatch=("", "//", "..")[index], label=name)
        for text in axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=2, zorder=5):
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    axes.axhline(dense, color=COLOURS[4], linestyle=":", label=f"dense, {dense:.1f}")
    axes.set_xticks(range(len(METHODS)), METHODS)
    axes.set_ylim(0, 138)
    axes.set_yticks(range(0, 101, 25))
    axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=9)
    lost = {m: dense - 100 * curves["pruned"][m][near] for m in METHODS}
    points_lost = ", ".join(f"{m} {points:.0f}" for m, points in lost.items())
    label(axes, f"{100 * near:.0f} % gone, points lost before retraining: {points_lost}", "", "right (%)")
    return fig


def row_errors(measured: dict[str, Any] | None = None) -> Figure:
    """Error of single outputs of the default model with half of their weights gone, on text nobody has seen."""
    measured = measured or results()
    fig, (axes,) = figure(width=6.8)
    layers = list(dict.fromkeys(row["layer"] for row in rows(measured, "rows")))
    for place, layer in enumerate(layers):
        for index, method in enumerate(METHODS):
            errors = [100 * r["held_out"] for r in rows(measured, "rows", layer=layer, method=method)]
            x = place + 0.25 * (index - 1)
            look = {"color": COLOURS[index], "marker": MARKERS[index]}
            axes.scatter([x] * len(errors), errors, s=16, label=method if place == 0 else None, **look)
            axes.hlines(median(errors), x - 0.09, x + 0.09, color="black", linewidth=2)
    log_scale(axes, "y")
    axes.set_xticks(range(len(layers)), [f"block 15\n{layer}" for layer in layers])
    axes.legend(frameon=False, ncols=3, loc="upper right")
    axes.margins(y=0.15)
    share = row_ratio(measured)
    title = f"Half of a row gone: OBS's error is {min(share):.0f} to {max(share):.0f} % of OBD's"
    label(axes, title, "", "squared error of the output (%)")
    return fig


def row_ratio(measured: dict[str, Any]) -> list[float]:
    """Per layer, the median error of OBS in per cent of OBD's, on held-out text."""
    layers = dict.fromkeys(row["layer"] for row in rows(measured, "rows"))
    return [
        100
        * median(r["held_out"] for r in rows(measured, "rows", layer=layer, method="OBS"))
        / median(r["held_out"] for r in rows(measured, "rows", layer=layer, method="OBD"))
        for layer in layers
    ]
