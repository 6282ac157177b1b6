"""Figures and verdict of backcopy.json: a head that is idle most of the time, and where it puts its attention.

Made by `course reproduce backcopy`.
"""

from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style
from course_lib.lessons.sinks import claims
from course_lib.lessons.sinks.estimates import VARIANTS

UNITS = "hidden units behind the head"


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("sinks", "backcopy")


def attention_map(weights: Float[Tensor, "T slots"], text: str, which: str, triggers: str = "aeiou") -> Figure:
    """What each letter reads, a row a query; the slot before the text is the sink."""
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
    back = fmean(weights[row, row + n_before - 1].item() for row in busy)
    to_sink = fmean(weights[row, 0].item() for row in idle)
    title = f"{which}: after a trigger the head reads the letter before it ({100 * back:.0f} %),\n"
    label(axes, title + f"otherwise the first slot ({100 * to_sink:.0f} %)", "read", "query (bold: trigger)")
    return fig


def costs(measured: dict[str, Any]) -> Figure:
    """What each model loses when nothing of the first slots stays in the cache, every seed a mark."""
    fig, (axes,) = figure(width=7.2)
    ranges = []
    for index, variant in enumerate(VARIANTS):
        by_sinks = {n: [row["others"] for row in rows(measured, "streaming", variant=variant, sinks=n)] for n in (0, 1)}
        for n, values in by_sinks.items():
            look = {"color": COLOURS[index], "marker": MARKERS[index], "s": 34}
            place = index + 0.32 * (n - 0.5)
            axes.scatter([place] * len(values), values, facecolors="none" if n else COLOURS[index], **_edge(look))
            under = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center"}
            axes.annotate(f"{n} kept", (place, 0), (0, -12), fontsize=8, **under)
        ranges.append(f"{variant} {min(by_sinks[0]):.2f} to {max(by_sinks[0]):.2f}")
    axes.set_xticks(range(len(VARIANTS)), VARIANTS)
    axes.tick_params(axis="x", pad=14, length=0)
    axes.axhline(0, color=COLOURS[4], linewidth=1)
    label(axes, "Lost without the first slot, nats a letter:\n" + ", ".join(ranges), "", "above the least loss (nats)")
    return fig


def _edge(look: dict[str, Any]) -> dict[str, Any]:
    """Marks that may be hollow take their colour as that of the edge."""
    return {"edgecolors": look["color"]} | {name: value for name, value in look.items() if name != "color"}


def emergence(measured: dict[str, Any]) -> Figure:
    """While the model with a learnable sink is trained: the sink's share of attention, and the length of its value."""
    fig, (left, right) = figure(2, width=4.8)
    seeds = sorted({row["seed"] for row in rows(measured, "emergence", variant="learnable sink")})
    ends = []
    for index, seed in enumerate(seeds):
        checkpoints = rows(measured, "emergence", variant="learnable sink", seed=seed)
        steps, style = [row["step"] for row in checkpoints], line_style(index) | {"markersize": 3}
        left.plot(steps, [100 * row["first_slot"] for row in checkpoints], label=f"seed {seed}", **style)
        right.plot(steps, [row["first_value"] for row in checkpoints], **style)
        ends.append(checkpoints[-1])
    left.legend(frameon=False, fontsize=8)
    shares, norms = ([row[key] for row in ends] for key in ("first_slot", "first_value"))
    title = f"In the end the sink gets {100 * min(shares):.0f} to {100 * max(shares):.0f} % of all attention"
    label(left, title, "step", "share of attention (%)")
    right.axhline(1, color=COLOURS[4], linewidth=1)
    right.set_ylim(bottom=0)
    title = f"Its value: {min(norms):.2f} to {max(norms):.2f} of the others' length"
    label(right, title, "step", "norm / mean of others")
    return fig


def verdict(measured: dict[str, Any]) -> str:
    """The claims about idle and busy queries: each speaks of most trainings, and seeds are tries."""
    return report(claims.IDLE_CLAIMS, measured)


def by_width(measured: dict[str, Any]) -> Figure:
    """The learnable sink by the size of the network behind the head: its share, and what it costs to lose it."""
    fig, (left, right) = figure(2, width=4.6, height=3.2)
    found = widths(measured)
    for place, cells in enumerate(found.values()):
        shares, lost = zip(*cells, strict=True)
        for panel, values in ((left, shares), (right, lost)):
            look = {"color": COLOURS[0], "marker": MARKERS[place], "s": 34}
            panel.scatter([place] * len(values), values, **look)
    for panel in (left, right):
        panel.set_xticks(range(len(found)), list(found))
        panel.set_xlim(-0.6, len(found) - 0.4)
    left.set_ylim(0, 100)
    right.axhline(0, color=COLOURS[4], linewidth=1)
    widest = list(found.values())[-1]
    shares, lost = zip(*widest, strict=True)
    label(left, f"With {max(found)} units the sink still gets\n{min(shares):.0f} to {max(shares):.0f} %", UNITS)
    label(right, f"and losing it costs {min(lost):.3f} to {max(lost):.3f} nats", UNITS)
    left.set_ylabel("attention of idle queries on it (%)")
    right.set_ylabel("nats a letter, without it")
    return fig


def widths(measured: dict[str, Any]) -> dict[int, list[tuple[float, float]]]:
    """For each number of hidden units and training: the sink's share of idle queries (%), and what it costs to lose."""
    by_hidden: dict[int, list[tuple[float, float]]] = {}
    hidden = measured["sizes"]["shape"]["hidden"]
    for row in rows(measured, "attention", variant="learnable sink"):
        others = [
            rows(measured, "streaming", variant="learnable sink", seed=row["seed"], sinks=n)[0]["others"]
            for n in (0, 1)
        ]
        by_hidden.setdefault(hidden, []).append((100 * row["idle_first_slot"], others[0] - others[1]))
    for row in measured["tables"]["widths"]:
        cell = (100 * row["idle_first_slot"], row["others_0"] - row["others_1"])
        by_hidden.setdefault(row["hidden"], []).append(cell)
    return dict(sorted(by_hidden.items()))


def sample(measured: dict[str, Any] | None = None) -> Figure:
    """The attention of one model with a learnable sink, the first seed's, on one line of its language."""
    measured = measured or results()
    line, *_ = rows(measured, "sample", variant="learnable sink")
    n_models = len(rows(measured, "attention", variant="learnable sink"))
    which = f"One model of {n_models} (seed {line['seed']})"
    return attention_map(torch.tensor(line["weights"]), line["text"], which)
