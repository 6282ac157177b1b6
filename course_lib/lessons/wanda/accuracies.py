"""Accuracies with their errors: two 95 % intervals, how often each contains the truth, and the measured benchmarks."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.effects import accuracy_gap
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import ERRORS, Effect
from course_lib.measure import paired
from course_lib.measure.paired import error_of_paired_shares, error_of_share

Z = 1.96  # standard errors to either side: 95 % of a normal distribution
Interval = Callable[[int, int], tuple[float, float, float]]


def normal(n_right: int, n: int) -> tuple[float, float, float]:
    """(accuracy, lower, upper), Z standard errors to either side."""
    share = n_right / n
    half = Z * math.sqrt(share * (1 - share) / n)
    return share, share - half, share + half


def wilson(n_right: int, n: int) -> tuple[float, float, float]:
    """(accuracy, lower, upper) by Wilson's interval, whose ends never leave 0 to 1."""
    return n_right / n, *paired.wilson(n_right, n, Z)


def coverage(interval: Interval, truth: float, n: int) -> float:
    """The probability that the interval of n answers, each right with probability `truth`, contains `truth`: exact."""
    inside = [k for k in range(n + 1) if (ends := interval(k, n)) and ends[1] <= truth <= ends[2]]
    return sum((math.comb(n, k) * truth**k * (1 - truth) ** (n - k) for k in inside), 0.0)


def how_often_right(interval: Interval = normal, n: int = 100) -> Figure:
    """Coverage over the true accuracy, of the normal approximation and of Wilson's interval."""
    fig, (axes,) = figure(width=7.2)
    truths = [t / 200 for t in range(2, 199)]
    ways = {"normal approximation": _once(interval, n), "Wilson's interval": _once(wilson, n)}
    found = {name: [100 * coverage(way, truth, n) for truth in truths] for name, way in ways.items()}
    for index, (name, shares) in enumerate(found.items()):
        look = line_style(index) | {"markersize": 4, "markevery": 10}
        axes.plot([100 * t for t in truths], shares, label=name, **look)
    axes.axhline(95, color=COLOURS[4], linestyle=":")
    axes.legend(frameon=False, loc="lower center")
    plain, better = (min(shares) for shares in found.values())
    title = f"{n} answers, “95 %”: at worst {plain:.0f} % are right; Wilson's {better:.0f} %"
    label(axes, title, "true accuracy (%)", "intervals that contain it (%)")
    return fig


def _once(interval: Interval, n: int) -> Interval:
    """The same interval, asked once for every count."""
    ends = {k: interval(k, n) for k in range(n + 1)}
    return lambda k, _: ends[k]


def zero_shot(measured: dict[str, Any]) -> Figure:
    """Accuracy with Wilson's 95 % intervals: first the tasks on which the dense model is clearly above chance."""
    fig, (axes,) = figure(width=9.5, height=4.0)
    tasks = by_signal(measured)
    models = [("dense", "dense", "dense"), ("wanda", "50%", "Wanda 50 %"), ("magnitude", "50%", "magnitude 50 %")]
    for index, (method, pattern, name) in enumerate(models):
        by_task = {row["task"]: row for row in rows(measured, "zero_shot", method=method, pattern=pattern)}
        found = [wilson(round(by_task[task]["accuracy"] * by_task[task]["n"]), by_task[task]["n"]) for task in tasks]
        axes.errorbar(
            [i + 0.22 * (index - 1) for i in range(len(tasks))],
            [100 * share for share, _, _ in found],
            yerr=[[100 * (share - low) for share, low, _ in found], [100 * (high - share) for share, _, high in found]],
            capsize=2,
            label=name,
            **line_style(index) | {"linestyle": ""},
        )
    dense = {row["task"]: row for row in rows(measured, "zero_shot", method="dense")}
    for i, task in enumerate(tasks):
        axes.hlines(100 * dense[task]["chance"], i - 0.4, i + 0.4, color=COLOURS[4], linestyle=":")
    n_signal = sum(has_signal(dense[task]) for task in tasks)
    axes.axvspan(n_signal - 0.5, len(tasks) - 0.5, color="#8d99ae", alpha=0.15, linewidth=0)
    axes.set_xticks(range(len(tasks)), [task.replace("_", "\n") for task in tasks], fontsize=9)
    axes.set_ylim(-2, 100)  # a marker at zero is whole
    axes.legend(frameon=False, ncols=3)
    title = f"{n_signal} of {len(tasks)} tasks tell the dense model from chance (dotted); the shaded ones do not"
    label(axes, title, "", "accuracy (%), Wilson's 95 % interval")
    return fig


def by_signal(measured: dict[str, Any]) -> list[str]:
    """The tasks, those with the clearest signal first."""
    dense = rows(measured, "zero_shot", method="dense")
    clear = {row["task"]: (row["accuracy"] - row["chance"]) / max(row["standard_error"], 1e-9) for row in dense}
    return sorted(clear, key=clear.__getitem__, reverse=True)


def above_chance(measured: dict[str, Any]) -> dict[str, list[tuple[float, float, float]]]:
    """By task with a signal, for each pruned model: (perplexity, share of the dense margin above chance, its error).

    The models are ordered by perplexity. Where the rows hold which answers were `right`, the error is that of pairs;
    otherwise it counts the questions of both models as independent, which is too wide, since they are the same.
    """
    by_model = {(r["method"], r["pattern"]): r["perplexity"] for r in rows(measured, "perplexity", corpus="wikipedia")}
    models = sorted((model for model in by_model if model[0] != "dense"), key=by_model.__getitem__)
    found = {}
    for dense in filter(has_signal, rows(measured, "zero_shot", method="dense")):
        margin = dense["accuracy"] - dense["chance"]
        found[dense["task"]] = []
        for method, pattern in models:
            (row,) = rows(measured, "zero_shot", method=method, pattern=pattern, task=dense["task"])
            share = (row["accuracy"] - row["chance"]) / margin
            found[dense["task"]].append((by_model[method, pattern], share, _error_beside(row, dense, share) / margin))
    return found


def _error_beside(row: dict[str, Any], dense: dict[str, Any], share: float) -> float:
    """Standard error of an accuracy less `share` times the dense one; divided by the margin, that of the ratio."""
    if row.get("right") and dense.get("right"):
        return error_of_paired_shares(row["right"], dense["right"], share)
    own, others = (error_of_share(round(each["accuracy"] * each["n"]), each["n"]) for each in (row, dense))
    return math.hypot(own, share * others)


def against_perplexity(measured: dict[str, Any]) -> Figure:
    """What each task keeps of the dense model's margin above chance, over the perplexity of the pruned model."""
    fig, (axes,) = figure(width=7.6, height=3.9)
    found = above_chance(measured)
    for index, (task, points) in enumerate(found.items()):
        shift = 1.035 ** (index - (len(found) - 1) / 2)  # beside each other, not on each other
        at, shares, errors = zip(*points, strict=True)
        bars = [100 * ERRORS * error for error in errors]
        look = line_style(index) | {"label": task.replace("_", " "), "capsize": 2, "elinewidth": 0.8}
        axes.errorbar([shift * each for each in at], [100 * share for share in shares], yerr=bars, **look)
    axes.axhline(0, color="black", linewidth=0.8)
    log_scale(axes, "x")
    axes.set_ylim(top=125)
    axes.legend(frameon=False, fontsize=9, ncols=len(found), loc="upper center")
    middle = len(next(iter(found.values()))) // 2
    kept = ", ".join(f"{task.replace('_', ' ')} {100 * points[middle][1]:.0f}" for task, points in found.items())
    perplexity = next(iter(found.values()))[middle][0]
    title = f"Left of the margin above chance at a perplexity of {perplexity:.0f} (% of dense):\n{kept}"
    label(
        axes,
        title,
        "perplexity of the pruned model (log scale)",
        "margin above chance, % of dense\n(bars: two standard errors)",
    )
    return fig


def accuracy_gaps(measured: dict[str, Any], tasks: Sequence[str] = ()) -> dict[str, Effect]:
    """By task: Wanda's accuracy minus magnitude's at 50 %. If no tasks are named, those that tell dense from chance."""
    tasks = tasks or [row["task"] for row in rows(measured, "zero_shot", method="dense") if has_signal(row)]
    by_task = {(r["task"], r["method"]): r for r in rows(measured, "zero_shot", pattern="50%")}
    return {task: accuracy_gap(by_task[task, "wanda"], by_task[task, "magnitude"]) for task in tasks}


def one_word_gaps(measured: dict[str, Any], task: str) -> dict[str, Effect]:
    """How much less of its dense margin a task keeps than the other tasks do on average, by perplexity of the model."""
    margins = above_chance(measured)
    own, others = margins.pop(task), list(margins.values())
    gaps = {}
    for index, (perplexity, fraction, error) in enumerate(own):
        _, fractions, errors = zip(*(points[index] for points in others), strict=True)
        both = math.hypot(error, math.hypot(*errors) / len(errors))
        gaps[f"perplexity {perplexity:.0f}"] = Effect(value=sum(fractions) / len(fractions) - fraction, error=both)
    return gaps


def where_perplexity_doubles(measured: dict[str, Any]) -> str:
    """Magnitude pruning from half of the weights to 4:8: what each task with a signal gains or loses meanwhile."""
    models = (("magnitude", "50%"), ("magnitude", "4:8"))
    before, after = (
        rows(measured, "perplexity", method=m, pattern=p, corpus="wikipedia")[0]["perplexity"] for m, p in models
    )
    gaps = []
    for dense in filter(has_signal, rows(measured, "zero_shot", method="dense")):
        task = dense["task"]
        first, second = (rows(measured, "zero_shot", method=m, pattern=p, task=task)[0] for m, p in models)
        gap = accuracy_gap(second, first)
        gaps.append(f"{task} {100 * gap.value:+.0f} ± {100 * gap.error:.0f}")
    points = ", ".join(gaps)
    return f"Magnitude, from half to 4:8: perplexity {before:.0f} to {after:.0f}; points of accuracy:\n{points}"
