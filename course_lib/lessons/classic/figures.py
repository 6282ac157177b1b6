"""The figures of lesson 02 that are drawn from what the notebook computes. Each title says what its data show.

Dimension key: d weights.
"""

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style, log_scale
from course_lib.pruning.classic.deletion import State
from course_lib.pruning.classic.network import DTYPE
from course_lib.pruning.classic.problems import input_names
from course_lib.pruning.classic.quadratic import Choice, Quadratic, choices

LIGHT = "#8d99ae"


def quadratics(surfaces: dict[str, Quadratic]) -> Figure:
    """Contours of the error around the trained weights, and where each method's deletion ends."""
    fig, axes = figure(len(surfaces), width=3.6, height=4.3)
    ends = (-0.2, 0.5), (-0.62, 0.2)
    x, y = torch.meshgrid(*(torch.linspace(*limits, 121, dtype=DTYPE) for limits in ends), indexing="xy")
    for panel, (name, surface) in zip(axes, surfaces.items(), strict=True):
        error = surface.error(torch.stack([x, y], dim=-1))
        panel.contour(x, y, error, levels=[0.005, 0.02, 0.045, 0.08, 0.125, 0.18], colors=LIGHT, linewidths=0.8)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.grid(visible=False)
        panel.plot(*surface.minimum.tolist(), marker="*", markersize=13, color="black", linestyle="")
        deletions = choices(surface)
        for index, choice in enumerate(deletions):
            draw_choice(panel, surface, choice, index)
        panel.set_aspect("equal")
        panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(-0.08, -0.16))
        label(panel, f"{name}:\n{said_of(deletions)}", "weight 1", "weight 2")
    return fig


def draw_choice(axes, surface: Quadratic, choice: Choice, index: int) -> None:
    """An arrow from the trained weights, and what its end costs; wide arrows and large markers lie below others."""
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


def said_of(deletions: list[Choice]) -> str:
    """Who pays how much, in a few words."""
    costs = {choice.method: choice.cost for choice in deletions}
    if max(costs.values()) - min(costs.values()) < 1e-9:
        return f"all three delete weight {deletions[0].deletes + 1}"
    best = min(costs.values())
    winners = [name for name, cost in costs.items() if cost < best + 1e-9]
    worst = max(costs.values())
    return f"{' and '.join(winners)} pay{'s' * (len(winners) == 1)} {100 * best / worst:.0f} % of the worst"


def correlations(hessian: Tensor, names: list[str]) -> Figure:
    """A Hessian scaled to a unit diagonal: what OBD keeps is the diagonal, what it forgets is the rest."""
    fig, (axes,) = figure(width=5.4, height=4.4)
    scale = hessian.diagonal().clamp(min=1e-300).sqrt()
    shown = (hessian / scale / scale[:, None]).abs()
    axes.imshow(shown, cmap="Greys", vmin=0, vmax=1)
    axes.grid(visible=False)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    for i in range(len(names)):
        for j in range(len(names)):
            dark = shown[i, j] > 0.55
            axes.text(j, i, f"{shown[i, j]:.1f}", ha="center", va="center", fontsize=7, color="w" if dark else "k")
    off = shown - torch.diag(shown.diagonal())
    strong = int((off.max(dim=1).values > 0.5).sum())
    title = f"{strong} of {len(names)} weights are coupled to another\nby more than one half"
    label(axes, title, "weight", "weight")
    return fig


def predictions(predicted: Tensor, real: Tensor, names: list[str]) -> Figure:
    """The rise of the error by each deletion: as the second order predicts it, and as it is."""
    fig, (axes,) = figure(width=6.6, height=3.4)
    for index, (values, name) in enumerate(((predicted, "½ h w², predicted"), (real, "real"))):
        places = [k + 0.4 * (index - 0.5) for k in range(len(names))]
        axes.bar(places, values, 0.38, color=COLOURS[index], hatch=("", "//")[index], edgecolor="white", label=name)
    axes.set_xticks(range(len(names)), names, rotation=45, fontsize=9)
    axes.legend(frameon=False)
    largest = max(predicted.max().item(), 1e-30)
    title = f"Every deletion costs {(real / predicted.clamp(min=1e-30)).min():,.0f} times its prediction or more"
    label(axes, f"{title};\nthe largest prediction is {largest:.1g}", "", "rise of the error")
    return fig


def diagonals(exact: Tensor, approximate: Tensor, layers: dict[str, slice]) -> Figure:
    """LeCun's recursion against the exact diagonal, each layer of weights with its own marker."""
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
    label(axes, title, "second derivative, exact", "by LeCun's recursion")
    return fig


def surviving(state: State, dense: State) -> Figure:
    """A MONK's network before and after surgery: lines for the weights that stay, thicker for larger ones."""
    fig, axes = figure(2, width=4.6, height=4.4)
    for panel, shown, name in zip(axes, (dense, state), ("trained", "pruned"), strict=True):
        draw_network(panel, shown)
        panel.set_title(f"{name}: {shown.n_left} weights", loc="left", fontsize=11)
    first = state.network.layers(state.theta)[0][:, :-1]
    read = [input_names()[i] for i in first.abs().sum(0).nonzero().flatten().tolist()]
    axes[0].annotate("solid: positive, dashed: negative,\nring: bias", (0.6, 0), xycoords="axes fraction", fontsize=9)
    several = f"{', '.join(read)}" if len(read) <= 6 else f"{len(read)} of 17 inputs"
    axes[1].set_title(f"pruned: {state.n_left} weights,\nreads {several}", loc="left", fontsize=11)
    return fig


def draw_network(axes, state: State) -> None:
    """Inputs on the left, the output on the right; a bias is a ring around its unit."""
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


def bytes_of_inverses(sizes: dict[str, int], memory: int, bytes_per_number: int = 4) -> Figure:
    """The bytes of an inverse Hessian by what it covers, against the memory of a machine."""
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
    label(axes, f"The largest inverse Hessian that {memory / 1e9:,.0f} GB hold: {largest}", "size (log scale)")
    return fig


def in_words(n_bytes: int | float) -> str:
    """1,300,000 → 1.3 MB."""
    for unit, size in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.3g} {unit}"
    return f"{n_bytes:.0f} bytes"
