"""The figures of lesson 02, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results, or a network that is trained on the spot.

Dimension key: d weights.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from statistics import median
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.classic.claims import METHODS, PUBLISHED, digits_by_sparsity, reached
from course_lib.lessons.classic.experiments.small import EXACT, NOISY, SITUATIONS, diagonals_of, situation
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style, log_scale
from course_lib.measure.paired import mean_and_error
from course_lib.pruning.classic.deletion import State, deletions, whole
from course_lib.pruning.classic.derivatives import (
    full_hessian,
    outer_product_hessian,
)
from course_lib.pruning.classic.network import DTYPE, Network, Samples
from course_lib.pruning.classic.obd import obd_diagonal
from course_lib.pruning.classic.problems import DECAY, NETWORKS, XOR_NETWORK, input_names, monks, xor
from course_lib.pruning.classic.quadratic import Choice, Quadratic, choices, quadratic
from course_lib.pruning.classic.stopping import accurate, last_good
from course_lib.pruning.classic.surfaces import brain_surgeon
from course_lib.pruning.classic.training import levenberg_marquardt, solved

Results = Mapping[str, Any]
XOR_NAMES = ["x₁→h₁", "x₂→h₁", "1→h₁", "x₁→h₂", "x₂→h₂", "1→h₂", "h₁→y", "h₂→y", "1→y"]
DIAGONALS = {
    "outer_product": "outer product (Gauss-Newton)",
    "squared": "squared gradients (empirical Fisher)",
    "none": "w² alone (magnitude)",
}
LIGHT = "#8d99ae"


def quadratics(surfaces: Mapping[str, Quadratic] | None = None) -> Figure:
    """Plot contours of the error around the trained weights, and where each method's deletion ends."""
    surfaces = surfaces or {
        "no correlation": quadratic((0.1, -0.3)),
        "no correlation, other weights": quadratic((0.2, -0.3)),
        "correlated": quadratic((0.2, -0.3), 30.0),
    }
    fig, axes = figure(len(surfaces), width=4.1, height=4.3)
    ends = (-0.2, 0.5), (-0.62, 0.2)
    x, y = torch.meshgrid(*(torch.linspace(*limits, 121, dtype=DTYPE) for limits in ends), indexing="xy")
    for panel, (name, surface) in zip(axes, surfaces.items(), strict=True):
        error = surface.error(torch.stack([x, y], dim=-1))
        panel.contour(x, y, error, levels=[0.005, 0.02, 0.045, 0.08, 0.125, 0.18], colors=LIGHT, linewidths=0.8)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.grid(visible=False)
        panel.plot(*surface.minimum.tolist(), marker="*", markersize=13, color="black", linestyle="")
        deleted = choices(surface)
        for index, choice in enumerate(deleted):
            draw_choice(panel, surface, choice, index)
        panel.set_aspect("equal")
        panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(-0.08, -0.16))
        label(panel, f"{name}:\n{lowest_cost(deleted)}", "weight 1", "weight 2")
    return fig


def draw_choice(axes: Axes, surface: Quadratic, choice: Choice, index: int) -> None:
    """Draw an arrow from the trained weights to the end of a deletion; later methods are drawn smaller, on top."""
    look = {"arrowstyle": "->", "color": COLOURS[index], "linewidth": (4.5, 2.6, 1.2)[index], "shrinkB": 3}
    axes.annotate("", choice.weight.tolist(), surface.minimum.tolist(), arrowprops=look)
    size = (17, 10, 6)[index]
    name = f"{choice.method}: weight {choice.deletes + 1}, cost {choice.cost:.3f}"
    axes.plot(
        *choice.weight.tolist(),
        marker=MARKERS[index],
        markersize=size,
        color=COLOURS[index],
        markeredgecolor="white",
        linestyle="",
        label=name,
    )


def lowest_cost(deleted: list[Choice]) -> str:
    """Return which methods have the lowest cost, relative to the highest."""
    costs = {choice.method: choice.cost for choice in deleted}
    lowest, highest = min(costs.values()), max(costs.values())
    if highest - lowest < 1e-9:
        return f"all three delete weight {deleted[0].deletes + 1}"
    best = [name for name, cost in costs.items() if cost < lowest + 1e-9]
    verb = "has" if len(best) == 1 else "have"
    return f"{' and '.join(best)} {verb} {100 * lowest / highest:.0f} % of the highest cost"


@lru_cache(maxsize=1)
def trained_xor() -> State:
    """A network of nine weights that solves XOR."""
    return solved(XOR_NETWORK, xor(), torch.Generator().manual_seed(0), decay=1e-5)


def correlations(hessian: Tensor | None = None, names: list[str] = XOR_NAMES) -> Figure:
    """Plot a Hessian scaled to a unit diagonal: OBD keeps the diagonal and drops the rest."""
    if hessian is None:
        state = trained_xor()
        hessian = outer_product_hessian(state.network, state.theta, xor())
    fig, (axes,) = figure(width=5.4, height=4.4)
    scale = hessian.diagonal().clamp(min=1e-300).sqrt()
    correlation = (hessian / scale / scale[:, None]).abs()
    axes.imshow(correlation, cmap="Greys", vmin=0, vmax=1)
    axes.grid(visible=False)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    for i in range(len(names)):
        for j in range(len(names)):
            dark = correlation[i, j] > 0.55
            axes.text(
                j, i, f"{correlation[i, j]:.1f}", ha="center", va="center", fontsize=7, color="w" if dark else "k"
            )
    off_diagonal = correlation - torch.diag(correlation.diagonal())
    strong = int((off_diagonal.max(dim=1).values > 0.5).sum())
    title = f"{strong} of {len(names)} weights have a correlation\nabove 0.5 with another weight"
    label(axes, title, "weight", "weight")
    return fig


def deep_network() -> tuple[State, Samples]:
    """A network with two hidden layers, trained to imitate a random network of the same kind, and its patterns."""
    generator, network = torch.Generator().manual_seed(0), Network((8, 6, 6, 2), hidden="tanh")
    inputs = torch.randn(200, 8, generator=generator, dtype=DTYPE)
    samples = Samples(inputs, network(network.start(generator, 2.0), inputs))
    return levenberg_marquardt(whole(network, network.start(generator)), samples, 1e-4, 50), samples


LAYERS = {"layer 1": slice(0, 54), "layer 2": slice(54, 96), "layer 3": slice(96, 110)}  # of the deep network


def diagonals(
    exact: Tensor | None = None, approximate: Tensor | None = None, layers: Mapping[str, slice] = LAYERS
) -> Figure:
    """Plot OBD's diagonal against the exact one, each layer of weights with its own marker."""
    if exact is None or approximate is None:
        state, samples = deep_network()
        exact = full_hessian(state.network, state.theta, samples).diagonal()
        approximate = obd_diagonal(state.network, state.theta, samples)
    fig, (axes,) = figure(width=5.6, height=4.2)
    errors = {}
    for index, (name, members) in enumerate(layers.items()):
        look = line_style(index) | {"linestyle": ""}
        axes.plot(exact[members], approximate[members], label=name, markersize=5, alpha=0.8, **look)
        errors[name] = ((approximate[members] - exact[members]).norm() / exact[members].norm()).item()
    ends = [min(exact.min(), approximate.min()).item(), max(exact.max(), approximate.max()).item()]
    axes.plot(ends, ends, color=LIGHT, linewidth=1, zorder=0)
    if ends[0] > 0:
        log_scale(axes, "x"), log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    exact_in = [name for name, error in errors.items() if error < 1e-9]
    off = ", ".join(f"{100 * error:.0f} % off in {name}" for name, error in errors.items() if error >= 1e-9)
    title = f"Exact in {' and '.join(exact_in)}" + (f";\n{off}" if off else "")
    label(axes, title, "second derivative, exact", "by one backward pass")
    return fig


@lru_cache(maxsize=1)
def surgery(problem: int = 3, good: float = 0.93) -> tuple[State, State]:
    """A network for a MONK's problem before and after OBS."""
    training, _ = monks(problem)
    decay = DECAY[problem]
    dense = solved(NETWORKS[problem], training, torch.Generator().manual_seed(0), good, decay)
    pruned = deletions(dense, training, partial(brain_surgeon, alpha=decay))
    return dense, last_good(pruned, accurate(training, dense.accuracy(training)))


def surviving(pruned: State | None = None, dense: State | None = None) -> Figure:
    """Draw a MONK's network before and after pruning; larger weights have thicker lines."""
    if pruned is None or dense is None:
        dense, pruned = surgery()
    fig, axes = figure(2, width=4.6, height=4.4)
    draw_network(axes[0], dense)
    draw_network(axes[1], pruned)
    axes[0].set_title(f"trained: {dense.n_left} weights", loc="left", fontsize=11)
    first = pruned.network.layers(pruned.theta)[0][:, :-1]
    inputs = [input_names()[i] for i in first.abs().sum(0).nonzero().flatten().tolist()]
    axes[0].annotate("solid: positive, dashed: negative,\nring: bias", (0.6, 0), xycoords="axes fraction", fontsize=9)
    listed = f"{', '.join(inputs)}" if len(inputs) <= 6 else f"{len(inputs)} of 17 inputs"
    axes[1].set_title(f"pruned: {pruned.n_left} weights,\ninputs {listed}", loc="left", fontsize=11)
    return fig


def draw_network(axes: Axes, state: State) -> None:
    """Draw the inputs on the left and the output on the right; a bias is a ring around its unit."""
    axes.grid(visible=False)
    axes.set_axis_off()
    layers, places = state.network.layers(state.theta), []
    for column, size in enumerate(state.network.sizes):
        places.append([(column, -(i - (size - 1) / 2) * (1 if column == 0 else 4)) for i in range(size)])
    for column, weight in enumerate(layers):
        widest = weight.abs().max()
        for k, row in enumerate(weight):
            for j, value in enumerate(row[:-1].tolist()):
                if value:
                    x, y = zip(places[column][j], places[column + 1][k], strict=True)
                    look = {"color": COLOURS[0] if value > 0 else COLOURS[1], "linestyle": "-" if value > 0 else "--"}
                    axes.plot(x, y, linewidth=0.3 + 2.2 * abs(value) / widest, zorder=1, **look)
            if row[-1]:
                axes.plot(*places[column + 1][k], marker="o", markersize=15, markerfacecolor="none", color="black")
    for column, points in enumerate(places):
        for index, (x, y) in enumerate(points):
            axes.plot(x, y, marker="o", markersize=4 if column == 0 else 9, color="black", zorder=3)
            if column == 0:
                axes.annotate(input_names()[index], (x - 0.06, y), ha="right", va="center", fontsize=9)
    axes.set_xlim(-0.55, len(places) - 0.8)


def empty_figure(width: float, height: float, x: tuple[float, float], y: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure for a drawing, without axes or grid."""
    fig, (axes,) = figure(width=width, height=height)
    axes.grid(visible=False)
    axes.set_axis_off()
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    return fig, axes


def draw_unit(axes: Axes, place: tuple[float, float], name: str, filled: bool = False) -> None:
    dark = COLOURS[0]
    look = {"markerfacecolor": dark if filled else "white", "markeredgecolor": dark, "markersize": 27}
    axes.plot(*place, marker="o", **look)
    axes.annotate(name, place, ha="center", va="center", fontsize=12, color="white" if filled else dark)


def units() -> Figure:
    """Draw a unit i between the layers below and above, with the indices of OBD's backward pass."""
    plain = {"arrowstyle": "->", "linewidth": 1.4, "shrinkA": 15, "shrinkB": 15, "color": COLOURS[4]}
    fig, axes = empty_figure(8.6, 3.9, (-0.45, 4.5), (-1.75, 1.95))
    below, middle, above = [(0.0, 0.9), (0.0, -0.9)], (1.55, 0.0), [(3.1, 0.9), (3.1, -0.9)]
    for place in below:
        axes.annotate("", middle, place, arrowprops=plain)
    for place in above:
        axes.annotate("", place, middle, arrowprops=plain)
        axes.annotate("", (4.05, place[1]), place, arrowprops=plain | {"shrinkB": 0})
        curve = f"arc3,rad={0.28 if place[1] > 0 else -0.28}"
        bent = plain | {"color": COLOURS[1], "linestyle": "--", "connectionstyle": curve}
        axes.annotate("", middle, place, arrowprops=bent)
    for place, name in [(below[0], "$j$"), (below[1], ""), (above[0], "$l$"), (above[1], "$m$")]:
        draw_unit(axes, place, name)
    draw_unit(axes, middle, "$i$", filled=True)
    notes = {
        (0.62, 0.72): "$w_{ij}$",
        (2.38, 0.28): "$w_{li}$",
        (1.28, -0.75): "$a_i = \\sum_j w_{ij} x_j$\n$x_i = f(a_i)$",
        (0.0, 1.42): "$x_j$",
        (0.0, -1.62): "layer below",
        (1.55, -1.62): "unit $i$",
        (3.1, -1.62): "layer above",
    }
    for place, text in notes.items():
        axes.annotate(text, place, ha="center", va="center", fontsize=12)
    both = "$\\partial E / \\partial a_l$, $\\partial^2\\! E / \\partial a_l^2$"
    axes.annotate(both, (2.25, 1.5), color=COLOURS[1], fontsize=12, ha="center")
    axes.annotate("known at the\noutputs", (4.1, 0.9), fontsize=10, va="center")
    title = "Solid arrows: forward pass. Dashed arrows: derivatives are propagated back"
    axes.set_title(title, loc="left", fontsize=11)
    return fig


def monks_counts(results: Results | None = None) -> Figure:
    """Plot the remaining weights just before the training accuracy falls, one dot per network; lines are medians."""
    results = results or load_measured("classic")
    fig, axes = figure(3, width=3.4, height=4.1)
    for panel, (problem, published) in zip(axes, PUBLISHED.items(), strict=True):
        for place, (method, refit) in enumerate((m, r) for r in (False, True) for m in METHODS):
            counts = [r["n_left"] for r in rows(results, "monks", problem=problem, method=method, refit=refit)]
            spread = [place + 0.5 * (i / max(len(counts) - 1, 1) - 0.5) for i in range(len(counts))]
            colour = COLOURS[METHODS.index(method)]
            panel.scatter(spread, counts, s=16, color=colour, marker=MARKERS[METHODS.index(method)])
            panel.hlines(median(counts), place - 0.38, place + 0.38, color="black", linewidth=1.5, zorder=1)
            look = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top", "fontsize": 9}
            panel.annotate(f"{median(counts):g}", (place, 0.99), **look)
        panel.axhline(published, color=COLOURS[4], linestyle=":", linewidth=1.5)
        panel.axvline(2.5, color="black", linewidth=0.6)
        panel.set_xticks(range(6), [*METHODS, *METHODS], rotation=60, fontsize=9)
        panel.set_ylim(0, 1.2 * max(r["n_left"] for r in rows(results, "monks", problem=problem)))
        best = {r: median_left(results, problem, "OBS", r) for r in (False, True)}
        size = {1: 58, 2: 39, 3: 39}[problem]
        label(
            panel,
            f"Problem {problem}: of {size} weights OBS\nleaves {best[False]:g}, retrained {best[True]:g} (median)",
        )
        panel.set_xlabel("nothing retrained  |  always retrained\n(dotted: published)")
    axes[0].set_ylabel("remaining weights (line: median)")
    return fig


def median_left(results: Results, problem: int, method: str, refit: bool) -> float:
    """The median number of remaining weights."""
    return median(r["n_left"] for r in rows(results, "monks", problem=problem, method=method, refit=refit))


def digits_curves(results: Results | None = None) -> Figure:
    """Plot the accuracy on held-out digits by sparsity, without retraining and retrained once at the end."""
    results = results or load_measured("classic")
    fig, axes = figure(2, width=5.4, height=4.0)
    panels = {"pruned": "Not retrained", "retrained": "Retrained once"}
    for panel, (key, name) in zip(axes, panels.items(), strict=True):
        curves = digits_by_sparsity(results, key)
        for index, (method, curve) in enumerate(curves.items()):
            axis = [100 * s for s in curve]
            panel.plot(axis, [100 * a for a in curve.values()], label=method, markersize=4, **line_style(index))
        panel.set_ylim(0, 103)
        panel.legend(frameon=False, loc="lower left")
        reach = ", ".join(f"{method} {100 * reached(curve):.0f} %" for method, curve in curves.items())
        label(
            panel,
            f"{name}: within a point of dense up to\n{reach}",
            "sparsity (%)",
            "held-out digits classified correctly (%)",
        )
    return fig


def row_errors(results: Results | None = None) -> Figure:
    """Plot the error of single outputs of the default model on held-out text, with half of their weights pruned."""
    results = results or load_measured("classic")
    fig, (axes,) = figure(width=6.8)
    layers = list(dict.fromkeys(row["layer"] for row in rows(results, "rows")))
    for place, layer in enumerate(layers):
        for index, method in enumerate(METHODS):
            errors = [100 * r["held_out"] for r in rows(results, "rows", layer=layer, method=method)]
            x = place + 0.25 * (index - 1)
            look = {"color": COLOURS[index], "marker": MARKERS[index]}
            axes.scatter([x] * len(errors), errors, s=16, label=method if place == 0 else None, **look)
            axes.hlines(median(errors), x - 0.09, x + 0.09, color="black", linewidth=2)
    log_scale(axes, "y")
    axes.set_xticks(range(len(layers)), [f"block 15\n{layer}" for layer in layers])
    axes.legend(frameon=False, ncols=3, loc="upper right")
    axes.margins(y=0.15)
    ratios = row_ratio(results)
    title = f"Half of a row pruned: OBS's error is {min(ratios):.0f} to {max(ratios):.0f} % of OBD's (median)"
    label(axes, title, "", "squared error of the output (%)")
    return fig


def row_ratio(results: Results) -> list[float]:
    """For each layer, the median error of OBS in per cent of OBD's, on held-out text."""
    layers = dict.fromkeys(row["layer"] for row in rows(results, "rows"))
    return [
        100
        * median(r["held_out"] for r in rows(results, "rows", layer=layer, method="OBS"))
        / median(r["held_out"] for r in rows(results, "rows", layer=layer, method="OBD"))
        for layer in layers
    ]


def squared_gradients_by_curvature(diagonals: Mapping[str, Mapping[str, Tensor]] | None = None) -> Figure:
    """Plot squared gradients and outer products of each weight against its curvature, with one panel per network.

    Args:
        diagonals: by network, three diagonals (d,) named "hessian", "outer_product" and "squared".
    """
    diagonals = diagonals or {name: diagonals_of(*situation(name, 0)) for name in (NOISY, EXACT)}
    fig, axes = figure(len(diagonals), width=4.9, height=3.9)
    for panel, (name, by_kind) in zip(axes, diagonals.items(), strict=True):
        exact = by_kind["hessian"]
        for index, kind in enumerate(("outer_product", "squared")):
            look = line_style(index) | {"linestyle": ""}
            panel.plot(exact, by_kind[kind], label=DIAGONALS[kind], markersize=4.5, alpha=0.8, **look)
        ends = [exact.min().item(), exact.max().item()]
        panel.plot(ends, ends, color=COLOURS[4], linewidth=1, zorder=0)
        panel.set_xscale("log")
        panel.set_yscale("log")
        ratio = (exact.sum() / by_kind["squared"].sum()).item()
        title = f"{name}: squared gradients\nare {ratio:,.0f} times too small"
        label(panel, title, "diagonal of the Hessian", "approximation" if panel is axes[0] else "")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return fig


def rank_correlations(results: Results | None = None) -> Figure:
    """Plot how similarly three diagonals rank the weights to the Hessian's diagonal, one dot per network."""
    results = results or load_measured("classic", "small")
    fig, (axes,) = figure(width=7.4, height=3.9)
    for index, (kind, name) in enumerate(DIAGONALS.items()):
        for place, where in enumerate(SITUATIONS):
            values = [row[f"{kind}_order"] for row in rows(results, "curvature", situation=where)]
            x = place + 0.26 * (index - 1)
            look = {"color": COLOURS[index], "marker": MARKERS[index], "s": 18}
            axes.scatter([x] * len(values), values, label=name if place == 0 else None, **look)
            axes.hlines(sum(values) / len(values), x - 0.1, x + 0.1, color="black", linewidth=1.5)
    axes.set_xticks(range(len(SITUATIONS)), SITUATIONS)
    axes.set_ylim(top=1.28)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.axhline(1, color=COLOURS[4], linestyle=":", linewidth=1)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    means = [mean_and_error([r["squared_order"] for r in rows(results, "curvature", situation=s)]) for s in SITUATIONS]
    *trained, (before, error) = means
    title = f"Squared gradients: {min(trained)[0]:.2f} or more after training, {before:.2f} ± {error:.2f} before"
    label(axes, title, "", "rank correlation (line: mean)")
    return fig
