"""The figures of lesson 04 that read what `course reproduce` measured: measured.json and masks.json."""

import math
from itertools import pairwise
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import error_bars, reach, side_by_side
from course_lib.lessons.common.effects import Row, log_gap, n_windows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import listed, load_measured, load_published, rows

NAMES = {"magnitude": "magnitude", "wanda": "Wanda", "sparsegpt": "SparseGPT", "sparsegpt_score": "SparseGPT's score"}
MEASURED = ("magnitude", "wanda")
# The paper's names of the comparison groups, and what they are.
GROUPS = {
    "layer": "the whole\nlayer",
    "(input, 1)": "each input\n(input, 1)",
    "(input, 128)": "128 inputs\n(input, 128)",
    "(output, 1)": "each output\n(output, 1)",
    "(output, 128)": "128 outputs\n(output, 128)",
}
PER = {"layer": "whole layer", "row": "each output", "column": "each input"}


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("wanda")


def sweep(measured: dict[str, Any]) -> Figure:
    """Perplexity over sparsity."""
    fig, (axes,) = figure(width=6.8)
    (dense,) = rows(measured, "sweep", method="dense")
    curves = {}
    for index, method in enumerate(MEASURED):
        points = sorted(rows(measured, "sweep", method=method), key=lambda row: row["sparsity"])
        curves[method] = {row["sparsity"]: row["perplexity"] for row in points}
        below, above = zip(*(reach(row["perplexity"], row["standard_error"]) for row in points), strict=True)
        places, look = [100 * s for s in curves[method]], line_style(index)
        axes.errorbar(places, list(curves[method].values()), [below, above], capsize=3, label=NAMES[method], **look)
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(axes, "y")
    axes.legend(frameon=False)
    ratio = {s: curves["magnitude"][s] / curves["wanda"][s] for s in curves["wanda"] if s >= 0.5}
    title = f"Wanda's perplexity is {min(ratio.values()):.0f} to {max(ratio.values()):.0f} times lower from 50 % on"
    bars = error_bars(n_windows(dense))
    label(axes, title, "sparsity of the blocks' weights (%)", f"perplexity (log scale;\n{bars})")
    return fig


def by_pattern(measured: dict[str, Any], corpus: str = "wikipedia") -> Figure:
    """Perplexity at half the weights, by pattern and method, with standard errors."""
    fig, (axes,) = figure(width=6.8)
    (dense,) = rows(measured, "perplexity", method="dense", corpus=corpus)
    patterns = ("50%", "4:8", "2:4")
    by_method = {
        method: [rows(measured, "perplexity", method=method, pattern=p, corpus=corpus)[0] for p in patterns]
        for method in MEASURED
    }
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label=f"dense, {dense['perplexity']:.1f}")
    side_by_side(axes, ("unstructured", "4:8", "2:4"), {NAMES[m]: _cells(found) for m, found in by_method.items()})
    axes.legend(frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, 1.02))
    tighter = {
        NAMES[method]: [log_gap(looser, tight).holds for looser, tight in pairwise(found)]
        for method, found in by_method.items()
    }
    clear = ", ".join(f"{sum(steps)} of {len(steps)} for {name}" for name, steps in tighter.items())
    title = f"Half of the weights gone: a tighter pattern clearly costs more in\n{clear}"
    label(axes, title, "", f"perplexity (log scale;\n{error_bars(n_windows(dense))})")
    return fig


def _cells(found: list[dict[str, Any]]) -> list[tuple[float, float]]:
    return [(row["perplexity"], row["standard_error"]) for row in found]


def calibration_curve(measured: dict[str, Any]) -> Figure:
    """Perplexity of Wanda at 50 % over the number of calibration windows; one dot a sample."""
    fig, (axes,) = figure(width=6.8)
    runs = sorted(rows(measured, "calibration"), key=lambda row: row["n_windows"])
    sizes = sorted({row["n_windows"] for row in runs})
    means = [
        sum(r["perplexity"] for r in runs if r["n_windows"] == n) / sum(r["n_windows"] == n for r in runs)
        for n in sizes
    ]
    axes.scatter([r["n_windows"] for r in runs], [r["perplexity"] for r in runs], color=COLOURS[1], marker="s", s=24)
    axes.plot(sizes, means, color=COLOURS[0])
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    worse, (most, *_) = 100 * (means[0] / means[-1] - 1), (r for r in runs if r["n_windows"] == sizes[-1])
    clear = all(log_gap(most, run).holds for run in runs if run["n_windows"] == sizes[0])
    known = "" if clear else ", within the errors"
    title = f"One window of calibration text: perplexity {worse:.0f} % above that of {sizes[-1]}{known}"
    length = measured["sizes"]["length"]
    label(axes, title, f"calibration windows of {length} tokens", "perplexity of Wanda at 50 %")
    return fig


def group_ablation(measured: dict[str, Any]) -> Figure:
    """Perplexity at 50 % by comparison group and method."""
    fig, (axes,) = figure(width=6.8)
    groups = list(dict.fromkeys(row["group"] for row in rows(measured, "groups")))
    by_method = {m: {g: rows(measured, "groups", method=m, group=g)[0] for g in groups} for m in MEASURED}
    names = [GROUPS.get(group, group) for group in groups]
    side_by_side(axes, names, {NAMES[m]: _cells(list(found.values())) for m, found in by_method.items()})
    axes.legend(frameon=False, ncols=2, loc="upper right")
    best = {NAMES[m]: [_short(group) for group in best_groups(found)] for m, found in by_method.items()}
    said = ", ".join(f"{listed(groups)} for {name}" for name, groups in best.items())
    alone = all(len(groups) == 1 for groups in best.values())
    title = f"{'Clearly the best group' if alone else 'The best group, and what is not clearly worse'}:\n{said}"
    bars = error_bars(n_windows(next(iter(by_method["wanda"].values()))))
    label(axes, title, "comparison group, and the paper's name for it", f"perplexity at 50 % (log scale;\n{bars})")
    return fig


def best_groups(by_group: dict[str, Row]) -> list[str]:
    """The groups that the errors do not tell from the one with the lowest perplexity, that one first."""
    best, *others = sorted(by_group, key=lambda group: by_group[group]["perplexity"])
    return [best, *(group for group in others if not log_gap(by_group[best], by_group[group]).holds)]


def _short(group: str) -> str:
    return GROUPS.get(group, group).partition("\n(")[0].replace("\n", " ")


def beside_published(measured: dict[str, Any]) -> Figure:
    """How many times the dense perplexity a pruned model has: the paper's LLaMA-2 models, and the course's model."""
    panels = ("50%", "2:4")
    fig, both = figure(n_columns=len(panels), width=5.2, height=3.9)
    wanda = {pattern: _times_dense(measured, "wanda", pattern) for pattern in panels}
    bars = error_bars(n_windows(rows(measured, "perplexity", method="dense", corpus="wikipedia")[0]))
    for axes, pattern in zip(both, panels, strict=True):
        by_method = {m: _times_dense(measured, m, pattern) for m in ("magnitude", "sparsegpt", "wanda")}
        models = list(dict.fromkeys(model for found in by_method.values() for model in found))
        for index, (method, found) in enumerate(by_method.items()):
            places = [models.index(model) + 0.16 * (index - 1) for model in found]
            values = [times for times, _ in found.values()]
            below, above = zip(*(reach(times, times * error) for times, error in found.values()), strict=True)
            look = line_style(index) | {"linestyle": "none"}
            axes.errorbar(places, values, [below, above], capsize=3, label=NAMES[method], **look)
        axes.set_xticks(range(len(models)), [model.replace(" ", "\n") for model in models], fontsize=9)
        axes.set_xlim(-0.5, len(models) - 0.5)
        log_scale(axes, "y")
        axes.axhline(1, color=COLOURS[4], linestyle=":")
        here, *published = (times for times, _ in wanda[pattern].values())
        cost = (
            f"Wanda {here:.1f} times the dense perplexity\nhere, {min(published):.1f} to {max(published):.1f} published"
        )
        label(axes, f"{'2:4' if pattern == '2:4' else '50 %'}: {cost}", "", f"times dense (log scale;\n{bars})")
    both[0].legend(frameon=False, fontsize=9)
    return fig


def _times_dense(measured: dict[str, Any], method: str, pattern: str) -> dict[str, tuple[float, float]]:
    """By model: perplexity over that of the dense model, and the error of its logarithm; 0 where none is published."""
    found = {}
    if here := rows(measured, "perplexity", method=method, pattern=pattern, corpus="wikipedia"):
        gap = log_gap(rows(measured, "perplexity", method="dense", corpus="wikipedia")[0], here[0])
        found["135M here"] = (math.exp(gap.value), gap.error)
    published = load_published("wanda")
    for row in rows(published, "perplexity", method=method, pattern=pattern):
        (dense,) = rows(published, "perplexity", method="dense", model=row["model"])
        found[row["model"].replace("LLaMA-2-", "LLaMA-2 ")] = (row["perplexity"] / dense["perplexity"], 0.0)
    return found


def errors_of_choices(masks: dict[str, Any]) -> Figure:
    """What half of the weights costs the output of every layer, by who chose them and among which weights."""
    fig, (axes,) = figure(width=8.4, height=3.6)
    found = rows(masks, "masks")
    choices = list(found[0]["relative_error"])
    for place, choice in enumerate(reversed(choices)):
        errors = sorted(100 * row["relative_error"][choice] for row in found)
        low, middle, high = (errors[int(share * (len(errors) - 1))] for share in (0.1, 0.5, 0.9))
        look = line_style(0 if choice.startswith("magnitude") else 1) | {"linestyle": "none"}
        axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], capsize=3, **look)
        axes.annotate(f"{middle:.1f}", (middle, place), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yticks(range(len(choices)), [choice_name(choice) for choice in reversed(choices)])
    axes.set_ylim(-0.6, len(choices) - 0.3)
    log_scale(axes, "x")
    agree, times = agreement(masks)
    title = (
        f"By output, magnitude's mask is {agree:.0f} % Wanda's,\n"
        f"and its error {times:.1f} times as large (median of {len(found)} layers)"
    )
    label(
        axes,
        title,
        "squared error of the output, held-out text (%, log scale;\nmedian layer, bars: 10 to 90 % of the layers)",
    )
    return fig


def choice_name(choice: str) -> str:
    """Who chose a mask, and among which weights."""
    by, per = choice.split(", ")
    return f"{NAMES[by]}, {PER[per]}"


def agreement(masks: dict[str, Any]) -> tuple[float, float]:
    """Of the median layer: per cent of magnitude's mask that are Wanda's, and how many times its error it has."""
    found = rows(masks, "masks")
    errors = [row["relative_error"] for row in found]
    share = median(row["agree_with_wanda"]["magnitude"] for row in found)
    return 100 * share, median(each["magnitude, row"] / each["wanda, row"] for each in errors)
