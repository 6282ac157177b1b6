"""The figures of lesson 04 that read measured.json, the measurement made by `course reproduce wanda`."""

from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.dots import ERROR_BARS, side_by_side
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured, rows
from course_lib.lessons.wanda import figures

NAMES = {"magnitude": "magnitude", "wanda": "Wanda"}


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("wanda")


def sweep(measured: dict[str, Any]) -> Figure:
    """Perplexity over sparsity."""
    fig, (axes,) = figure(width=6.8)
    (dense,) = rows(measured, "sweep", method="dense")
    curves = {}
    for index, (method, name) in enumerate(NAMES.items()):
        points = sorted(rows(measured, "sweep", method=method), key=lambda row: row["sparsity"])
        curves[method] = {row["sparsity"]: row["perplexity"] for row in points}
        axes.plot([100 * s for s in curves[method]], curves[method].values(), label=name, **line_style(index))
    axes.axhline(dense["perplexity"], color=COLOURS[4], linestyle=":", label="dense")
    log_scale(axes, "y")
    axes.legend(frameon=False)
    ratio = {s: curves["magnitude"][s] / curves["wanda"][s] for s in curves["wanda"] if s >= 0.5}
    title = f"Wanda's perplexity is {min(ratio.values()):.0f} to {max(ratio.values()):.0f} times lower from 50 % on"
    label(axes, title, "sparsity of the blocks' weights (%)", "perplexity, held-out Wikipedia")
    return fig


def by_pattern(measured: dict[str, Any], corpus: str = "wikipedia") -> Figure:
    """Perplexity at half the weights, by pattern and method, with standard errors."""
    fig, (axes,) = figure(width=6.8)
    (dense,) = rows(measured, "perplexity", method="dense", corpus=corpus)
    patterns = ("50%", "4:8", "2:4")
    by_method = {
        method: [rows(measured, "perplexity", method=method, pattern=p, corpus=corpus)[0] for p in patterns]
        for method in NAMES
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
    label(axes, title, "", f"perplexity (log scale;\n{ERROR_BARS})")
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
    worse = 100 * (means[0] / means[-1] - 1)
    title = f"One window of calibration text is {worse:.0f} % worse than {sizes[-1]}"
    length = measured["sizes"]["length"]
    label(axes, title, f"calibration windows of {length} tokens", "perplexity of Wanda at 50 %")
    return fig


def group_ablation(measured: dict[str, Any]) -> Figure:
    """Perplexity at 50 % by comparison group and method."""
    fig, (axes,) = figure(width=6.8)
    groups = list(dict.fromkeys(row["group"] for row in rows(measured, "groups")))
    by_method = {m: {g: rows(measured, "groups", method=m, group=g)[0] for g in groups} for m in NAMES}
    side_by_side(axes, groups, {NAMES[m]: _cells(list(found.values())) for m, found in by_method.items()})
    axes.legend(frameon=False, ncols=2, loc="upper right")
    title = "Not clearly worse than the best group:\n" + ", ".join(
        f"{' and '.join(_best(found))} for {NAMES[m]}" for m, found in by_method.items()
    )
    label(axes, title, "comparison group", f"perplexity at 50 % (log scale;\n{ERROR_BARS})")
    return fig


def _best(by_group: dict[str, dict[str, Any]]) -> list[str]:
    """The groups that the errors do not tell from the one with the lowest perplexity, that one first."""
    best, *others = sorted(by_group, key=lambda group: by_group[group]["perplexity"])
    return [best, *(group for group in others if not log_gap(by_group[best], by_group[group]).holds)]


def zero_shot(measured: dict[str, Any]) -> Figure:
    """Accuracy with 95 % intervals on tasks where the dense model stands clearly above chance; the rest in grey."""
    fig, (axes,) = figure(width=9.5, height=4.0)
    tasks = by_signal(measured)
    models = [("dense", "dense", "dense"), ("wanda", "50%", "Wanda 50 %"), ("magnitude", "50%", "magnitude 50 %")]
    for index, (method, pattern, name) in enumerate(models):
        by_task = {row["task"]: row for row in rows(measured, "zero_shot", method=method, pattern=pattern)}
        look = line_style(index) | {"linestyle": ""}
        axes.errorbar(
            [i + 0.22 * (index - 1) for i in range(len(tasks))],
            [100 * by_task[task]["accuracy"] for task in tasks],
            yerr=[196 * by_task[task]["standard_error"] for task in tasks],
            capsize=2,
            label=name,
            **look,
        )
    dense = {row["task"]: row for row in rows(measured, "zero_shot", method="dense")}
    for i, task in enumerate(tasks):
        axes.hlines(100 * dense[task]["chance"], i - 0.4, i + 0.4, color=COLOURS[4], linestyle=":")
    n_signal = sum(has_signal(dense[task]) for task in tasks)
    axes.axvspan(n_signal - 0.5, len(tasks) - 0.5, color="#8d99ae", alpha=0.15, linewidth=0)
    axes.set_xticks(range(len(tasks)), [task.replace("_", "\n") for task in tasks], fontsize=9)
    axes.legend(frameon=False, ncols=3)
    title = f"{n_signal} of {len(tasks)} tasks tell the dense model from chance (dotted); the shaded ones say nothing"
    label(axes, title, "", "accuracy (%), 95 % interval")
    return fig


def by_signal(measured: dict[str, Any]) -> list[str]:
    """The tasks, those with the clearest signal first."""
    dense = rows(measured, "zero_shot", method="dense")
    clear = {row["task"]: (row["accuracy"] - row["chance"]) / max(row["standard_error"], 1e-9) for row in dense}
    return sorted(clear, key=clear.__getitem__, reverse=True)


def slide_outliers() -> Figure:
    """For the deck: the norms of the middle block's first input."""
    import torch

    (row,) = rows(results(), "norms")
    return figures.outliers(torch.tensor(row["norms"]), row["layer"])


def slide_loudest() -> Figure:
    """For the deck: loudest against median feature over depth."""
    ratios: dict[str, list[float]] = {}
    for row in rows(results(), "loudness"):
        ratios.setdefault(row["layer"].split(".", 2)[2], []).append(row["loudest"] / row["median"])
    return figures.loudest_over_depth(ratios)


def slide_sweep() -> Figure:
    return sweep(results())


def slide_patterns() -> Figure:
    return by_pattern(results())


def slide_groups() -> Figure:
    return group_ablation(results())


def slide_calibration() -> Figure:
    return calibration_curve(results())


def slide_zero_shot() -> Figure:
    return zero_shot(results())
