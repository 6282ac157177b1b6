"""Answers under steered attention."""

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import SHARE_BARS, share_reach
from course_lib.lessons.common.effects import accuracy_gap
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.tables import Measured, listed, rows
from course_lib.lessons.sparse_attention.estimates import steering
from course_lib.lessons.sparse_attention.experiments.experiment_steering import NO_HEADS, NOTHING, PROMPTED, TRUE
from course_lib.lessons.sparse_attention.measuring.items import RESIDENTS
from course_lib.lessons.sparse_attention.tables.steering import results


def steered(
    measured: Measured | None = None, data: str = RESIDENTS, only: list[steering.Condition] | None = None
) -> Figure:
    """Right answers of each condition, or of some, with intervals; chance as a line."""
    measured = measured or results()
    every = rows(measured, "answers", data=data)
    found = [row for row in every if only is None or (row["heads"], row["steered"]) in only]
    fig, (axes,) = figure(width=8.2, height=0.32 * len(found) + 1.2)
    for place, row in enumerate(found):
        below, above = share_reach(row["right"].count("1"), row["n"])
        colour = COLOURS[3] if row["steered"] == TRUE else COLOURS[4]
        axes.barh(-place, 100 * row["accuracy"], 0.7, color=colour, edgecolor="black", linewidth=0.6)
        axes.errorbar(100 * row["accuracy"], -place, xerr=[[below], [above]], color="black", capsize=2.5, linewidth=1)
    axes.axvline(100 * found[0]["chance"], color="black", linestyle=":", linewidth=1)
    axes.set_yticks([-place for place in range(len(found))], [_name(row) for row in found], fontsize=9)
    axes.set_xlim(0, 102)
    plain = steering.condition(measured, data, NO_HEADS, NOTHING)
    better = [row for row in found if row is not plain and accuracy_gap(row, plain).holds]
    keys = sum(row["steered"] == TRUE for row in better)
    title = f"{data}: {len(better)} of {len(found) - 1} ways are clearly better than none, {keys} with the true key"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(axes, "", f"right answers (%; {SHARE_BARS})\ndotted: chance; yellow: the true key sentence")
    return fig


def _name(row: dict) -> str:
    """The condition in words."""
    if row["heads"] == NO_HEADS:
        return "as it is"
    if row["heads"] == PROMPTED:
        return f"told the {row['steered']} sentence, no steering"
    what = row["steered"] if row["steered"] == "whole context" else f"{row['steered']} sentence"
    return f"{what}, heads: {row['heads']}"


def by_layer(measured: Measured | None = None) -> Figure:
    """What steering each whole layer is worth on the development set."""
    measured = measured or results()
    found = measured["tables"]["search"]
    worth = [row["log_probability"] for row in steering.whole_layers(measured)]
    _, (axes,) = figure(width=8.2, height=3.2)
    axes.bar(range(len(worth)), [value - found[0]["log_probability"] for value in worth], color=COLOURS[0])
    axes.axhline(0, color="black", linewidth=0.8)
    best = sorted(range(len(worth)), key=lambda layer: -worth[layer])[:3]
    helps = sum(value > found[0]["log_probability"] for value in worth)
    title = f"Steering a whole layer helps in {helps} of {len(worth)}; most in layers {listed(sorted(best))}"
    n = measured["sizes"]["developed"]
    return label(axes, title, "layer", f"nats of the right answer gained\n({n} questions)").figure
