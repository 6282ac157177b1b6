"""Figures of deck 06 that are computed: how wrong a router's gradient is, what a layer costs over its dense twin."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.results import load_bench
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.moe.estimators.estimator import Estimator
from course_lib.moe.estimators.multiplier import Multiplier
from course_lib.moe.estimators.problems import network
from course_lib.moe.estimators.reinforce import Reinforce
from course_lib.moe.estimators.sparsemixer import SparseMixer
from course_lib.moe.estimators.table import Row, measure

COMPARED: dict[str, Estimator] = {
    "multiplier only (Switch)": Multiplier(),
    "REINFORCE": Reinforce(),
    "SparseMixer, every draw": SparseMixer(argmax_whole=False),
    "SparseMixer, as released": SparseMixer(argmax_whole=True),
}
TOKENS = tuple(dict.fromkeys(round(10 ** (step / 20)) for step in range(81)))  # 1 to 10,000
N_PROBLEMS = 200
TWIN, LAYER, ALL = "dense, of equal active size", "grouped product", "all experts"


def errors() -> dict[str, Row]:
    """Of the mean gradient over T tokens, by enumeration, medians over 200 problems."""
    problem = network(N_PROBLEMS, torch.Generator().manual_seed(0))
    return dict(zip(COMPARED, measure(problem, TOKENS, list(COMPARED.values())), strict=True))


def first_ahead(one: Row, other: Row) -> int | None:
    """From how many tokens on the error of one is below that of the other; None where it never is to the end."""
    behind = [n for n, mine, theirs in zip(TOKENS, one.errors, other.errors, strict=True) if mine >= theirs]
    later = [n for n in TOKENS if n > max(behind, default=0)]
    return later[0] if later else None


def estimators() -> Figure:
    """The error of four estimates that run one expert a token, over the tokens they are averaged over."""
    fig, (axes,) = figure(width=8.6, height=4.0)
    found = errors()
    for index, (name, row) in enumerate(found.items()):
        axes.plot(TOKENS, row.errors, label=name, markevery=10, **line_style(index))
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=10)
    released, plain = found["SparseMixer, as released"], found["multiplier only (Switch)"]
    start, end = first_ahead(released, plain), first_ahead(found["REINFORCE"], released)
    title = f"SparseMixer as released: ahead of the multiplier from {start} tokens on, behind REINFORCE from {end}"
    label(axes, title, "tokens averaged over", "error over size of gradient")
    return fig


def speeds() -> Figure:
    """Times of the layer and of all experts over those of the dense twin, on the machine of the bench."""
    sides = load_bench("cpu_moe")["tables"]["sides"]
    fig, panels = figure(n_columns=2, width=4.9, height=3.5)
    usual = [row for row in sides if row["shape"][1] == 8]
    many = [row for row in sides if row["shape"][0] in (1, 512)]
    _over_twin(panels[0], usual, [f"{n}" for n in _different(usual, 0)], "tokens")
    _over_twin(panels[1], many, [f"{n} · {e}" for n, e in _shapes(many)], "tokens · experts")
    layer = [1 / row["times_anchor"] for row in usual if row["side"] == LAYER]
    whole = [1 / row["times_anchor"] for row in usual if row["side"] == ALL]
    panels[0].set_title(
        f"8 experts: {min(layer):.1f} to {max(layer):.1f} times; all computed, {min(whole):.1f} to {max(whole):.1f}",
        loc="left",
        fontsize=11,
    )
    most = max((1 / row["times_anchor"], row["shape"][1]) for row in many if row["side"] == LAYER)
    panels[1].set_title(f"Dearest at {most[1]} experts: {most[0]:.1f} times", loc="left", fontsize=11)
    panels[0].legend(frameon=False, fontsize=10, loc="upper left")
    return fig


def _shapes(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Tokens and experts of each contest, few experts first."""
    return sorted({tuple(row["shape"]) for row in rows}, key=lambda shape: (shape[0], shape[1]))


def _different(rows: list[dict[str, Any]], place: int) -> list[int]:
    return sorted({row["shape"][place] for row in rows})


def _over_twin(axes: Axes, rows: list[dict[str, Any]], ticks: list[str], x: str) -> None:
    """Two measured times and the bytes of the sparse layer, each over those of the dense twin."""
    shapes = _shapes(rows)
    for index, (side, name) in enumerate(((LAYER, "sparse layer"), (ALL, "all experts"))):
        here = {tuple(row["shape"]): row for row in rows if row["side"] == side}
        times = [1 / here[shape]["times_anchor"] for shape in shapes]
        low = [time - 1 / here[shape]["times_anchor_high"] for time, shape in zip(times, shapes, strict=True)]
        high = [1 / here[shape]["times_anchor_low"] - time for time, shape in zip(times, shapes, strict=True)]
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(range(len(shapes)), times, yerr=[low, high], capsize=3, label=name, **look)
    read = {tuple(row["shape"]): {} for row in rows}
    for row in rows:
        read[tuple(row["shape"])][row["side"]] = row["bytes"]
    over = [read[shape][LAYER] / read[shape][TWIN] for shape in shapes]
    axes.plot(range(len(shapes)), over, "_", color="black", markersize=20, label="bytes of the sparse layer")
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    log_scale(axes, "y")
    axes.set_ylim(0.8, 30)
    axes.set_xticks(range(len(shapes)), ticks)
    axes.set_xlim(-0.5, len(shapes) - 0.5)
    label(axes, "", x, "times the dense twin")
