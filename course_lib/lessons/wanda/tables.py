"""The printed tables of lesson 04, from the committed measurement and the published rows."""

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Any

from course_lib.data.benchmarks import WANDA_TASKS
from course_lib.lessons.common.benchmarks import amounts, has_signal
from course_lib.lessons.common.effects import accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.tables import listed, load_published, origin, rows, spaced
from course_lib.lessons.common.verdicts import Effect, verdict
from course_lib.lessons.wanda.accuracies import by_signal
from course_lib.lessons.wanda.measured import MEASURED, NAMES, choice_name

HARMED = 1.5  # times the perplexity: a model that has lost much


def provenance(measured: dict[str, Any]) -> str:
    """What was run, where, when, with how much."""
    return origin(measured, amounts(measured["sizes"]))


def zero_shot_table(measured: dict[str, Any]) -> str:
    """Accuracy ± standard error per task and model, in per cent, with n and chance."""
    models = [("dense", "dense")] + [(method, p) for p in ("50%", "4:8", "2:4") for method in MEASURED]
    names = [("dense", "")] + [(NAMES[method], spaced(p)) for method, p in models[1:]]
    scores = {(r["task"], r["method"], r["pattern"]): r for r in rows(measured, "zero_shot")}
    lines = [f"{'':<30}" + "".join(f"{method:>10}" for method, _ in names)]
    lines.append(f"{'task':<17}{'n':>5}{'chance':>8}" + "".join(f"{pattern:>10}" for _, pattern in names))
    for task in by_signal(measured):
        dense = scores[task, "dense", "dense"]
        cells = [scores[task, *model] for model in models]
        cells = "".join(f"{100 * c['accuracy']:>6.0f} ± {100 * c['standard_error']:<1.0f}" for c in cells)
        name = task if has_signal(dense) else f"{task} *"
        lines.append(f"{name:<17}{dense['n']:>5}{100 * dense['chance']:>8.0f}{cells}")
    means = {(r["method"], r["pattern"]): r for r in rows(measured, "zero_shot_mean")}
    cells = "".join(f"{100 * means[m]['accuracy']:>6.0f} ± {100 * means[m]['standard_error']:<1.0f}" for m in models)
    lines.append(f"{'the paper’s seven':<22}{100 * means[models[0]]['chance']:>8.0f}{cells}")
    lines.append("accuracy and standard error in %; * no signal: the dense model is not clearly above chance")
    return "\n".join(lines)


def zero_shot_verdict(measured: dict[str, Any]) -> str:
    """The paper's claim that Wanda keeps more accuracy than magnitude at 50 %, judged on the tasks with a signal.

    The mean of the paper's seven is printed and decides nothing where one of them has none.
    """
    tasks = [row["task"] for row in rows(measured, "zero_shot", method="dense")]
    seven = accuracy_gaps(measured, [task for task in tasks if task in WANDA_TASKS])
    gaps, whole, mean = accuracy_gaps(measured), mean_of(list(seven.values())), accuracy_effect(measured)
    silent = len(seven.keys() - gaps.keys())
    listing = ", ".join(f"{task} {100 * each.value:+.0f} ± {100 * each.error:.0f}" for task, each in gaps.items())
    return (
        f"The paper's seven tasks: {100 * whole.value:+.1f} ± {100 * whole.error:.1f} points for Wanda on average. "
        f"{silent} of them have no signal,\nso this mean decides nothing.\nTasks with a signal: {listing}\n"
        f"Claim: Wanda keeps more accuracy than magnitude at 50 %. {100 * mean.value:+.1f} ± {100 * mean.error:.1f} "
        f"points on average: {verdict(mean)}"
    )


def accuracy_gaps(measured: dict[str, Any], tasks: Sequence[str] = ()) -> dict[str, Effect]:
    """By task: Wanda's accuracy above magnitude's at 50 %. If no tasks are named, those that tell dense from chance."""
    tasks = tasks or [row["task"] for row in rows(measured, "zero_shot", method="dense") if has_signal(row)]
    by_task = {(r["task"], r["method"]): r for r in rows(measured, "zero_shot", pattern="50%")}
    return {task: accuracy_gap(by_task[task, "wanda"], by_task[task, "magnitude"]) for task in tasks}


def accuracy_effect(measured: dict[str, Any]) -> Effect:
    """The mean of those gaps, each task weighing the same."""
    return mean_of(list(accuracy_gaps(measured).values()))


def published_table() -> str:
    """The paper's mean zero-shot accuracies, marked as published."""
    published = load_published("wanda")
    accuracies = {(r["model"], r["method"], r["pattern"]): r["accuracy"] for r in rows(published, "zero_shot_mean")}
    models = list(dict.fromkeys(model for model, _, _ in accuracies))
    kinds = list(dict.fromkeys((method, pattern) for _, method, pattern in accuracies))
    lines = ["Published, not measured here: mean accuracy (%) over seven tasks (arXiv:2306.11695)"]
    sizes = [model.rpartition("-")[::2] for model in models]
    lines.append(f"{'':<17}" + "".join(f"{family:>9}" for family, _ in sizes))
    lines.append(f"{'':<17}" + "".join(f"{size:>9}" for _, size in sizes))
    for kind in kinds:
        cells = "".join(f"{100 * accuracies[model, *kind]:>9.2f}" for model in models)
        lines.append(f"{_named(*kind):<17}{cells}")
    return "\n".join(lines)


def _named(method: str, pattern: str) -> str:
    return method if method == "dense" else f"{NAMES[method]} {spaced(pattern)}"


def perplexity_table(measured: dict[str, Any]) -> str:
    """Perplexities measured here beside those that the authors report."""
    published = {(r["model"], r["method"], r["pattern"]): r for r in rows(load_published("wanda"), "perplexity")}
    here = {(r["method"], r["pattern"]): r for r in rows(measured, "perplexity", corpus="wikipedia")}
    models = list(dict.fromkeys(model for model, _, _ in published))
    kinds = list(dict.fromkeys((method, pattern) for _, method, pattern in published))
    lines = [f"{'perplexity':<17}{'here, 135M':>14}  published:" + "".join(f"{model:>13}" for model in models)]
    for kind in kinds:
        mine = f"{here[kind]['perplexity']:.1f} ± {here[kind]['standard_error']:.1f}" if kind in here else "lesson 03"
        cells = "".join(f"{published[model, *kind]['perplexity']:>13.2f}" for model in models)
        lines.append(f"{_named(*kind):<17}{mine:>14}{'':12}{cells}")
    lines.append(
        "Here: held-out Wikipedia in windows of 512 tokens, ± one standard error. Published: WikiText-2 in\n"
        "windows of 4,096, from the README of the authors' code. Compare ratios to dense, not values."
    )
    return "\n".join(lines)


def claims(measured: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(claim of the paper, its numbers, ours, verdict), each verdict from an effect and its error."""
    found = {(r["method"], r["pattern"]): r for r in rows(measured, "perplexity", corpus="wikipedia")}
    theirs = {
        (r["method"], r["pattern"]): r["perplexity"]
        for r in rows(load_published("wanda"), "perplexity", model="LLaMA-2-7B")
    }
    groups = {r["group"]: r for r in rows(measured, "groups", method="wanda")}
    runs = sorted(rows(measured, "calibration"), key=lambda run: run["n_windows"])
    few, most = [run for run in runs if run["n_windows"] == 1], runs[-1]
    patterns = ("50%", "4:8", "2:4")
    accuracy = accuracy_effect(measured)
    means = {
        r["method"]: r["accuracy"]
        for r in rows(load_published("wanda"), "zero_shot_mean", model="LLaMA-7B", pattern="50%")
    }

    def numbers(source: dict, digits: int) -> str:
        return ", ".join(f"{source['wanda', pattern]:.{digits}f}" for pattern in patterns)

    ours = {kind: row["perplexity"] for kind, row in found.items()}
    best, *others = sorted(groups.values(), key=lambda row: row["perplexity"])
    own = groups["(output, 1)"]
    return [
        (
            "Wanda's perplexity is below\nmagnitude's at 50 %",
            f"{theirs['wanda', '50%']:.2f} against {theirs['magnitude', '50%']:.2f}\n(LLaMA-2-7B)",
            f"{ours['wanda', '50%']:.0f} against {ours['magnitude', '50%']:.0f}",
            verdict(log_gap(found["wanda", "50%"], found["magnitude", "50%"])),
        ),
        (
            "Its accuracy is above\nmagnitude's at 50 %",
            f"{100 * means['wanda']:.1f} against {100 * means['magnitude']:.1f} %\n(LLaMA-7B, 7 tasks)",
            f"{100 * accuracy.value:+.0f} ± {100 * accuracy.error:.0f} points\n(tasks with a signal)",
            verdict(accuracy),
        ),
        (
            "Tighter patterns cost more:\n50 %, 4:8, 2:4",
            f"{numbers(theirs, 2)}\n(LLaMA-2-7B)",
            numbers(ours, 0),
            verdict([log_gap(found["wanda", a], found["wanda", b]) for a, b in pairwise(patterns)]),
        ),
        (
            "Each output is the best\ncomparison group for Wanda",
            "best of five\n(LLaMA-7B)",
            f"{own['perplexity']:.0f}; next best {next(r for r in (best, *others) if r is not own)['perplexity']:.0f}",
            verdict([log_gap(own, row) for row in groups.values() if row is not own]),
        ),
        (
            f"More than one window of\ncalibration text helps ({most['n_windows']} to 1)",
            "a few samples are enough\n(LLaMA-7B)",
            f"{most['perplexity']:.1f}; with one\n" + listed([f"{run['perplexity']:.1f}" for run in few]),
            verdict([log_gap(most, run) for run in few]),
        ),
    ]


def sweep_verdict(measured: dict[str, Any]) -> str:
    """What sparsity costs: step by step with both methods, and beside the dense model."""
    curves = {
        method: sorted(rows(measured, "sweep", method=method), key=lambda row: row["sparsity"])
        for method in ("magnitude", "wanda")
    }
    (dense,) = rows(measured, "sweep", method="dense")
    steps = [log_gap(a, b) for curve in curves.values() for a, b in pairwise([dense, *curve])]
    at = {(method, row["sparsity"]): log_gap(dense, row, log(HARMED)) for method, c in curves.items() for row in c}
    found = {row["pattern"]: row for row in rows(measured, "perplexity", method="wanda", corpus="wikipedia")}
    whole = rows(measured, "perplexity", method="dense", corpus="wikipedia")[0]
    usable = [_below(log_gap(whole, found[pattern], log(HARMED))) for pattern in ("50%", "2:4")]
    judged = [
        ("each step of sparsity costs quality, with both methods", verdict(steps)),
        (f"half of the weights by magnitude cost over {HARMED} times the perplexity", verdict(at["magnitude", 0.5])),
        (f"30 % by magnitude cost over {HARMED} times the perplexity", verdict(at["magnitude", 0.3])),
        (f"half of the weights by Wanda cost less than {HARMED} times the perplexity", verdict(usable[0], True)),
        (f"2:4 by Wanda costs less than {HARMED} times the perplexity", verdict(usable[1], True)),
    ]
    return "\n".join(f"Claim: {claim}: {said}" for claim, said in judged)


def _below(effect: Effect) -> Effect:
    """The same measured from the other side of its threshold."""
    return Effect(value=-effect.value, error=effect.error, n=effect.n)


def claims_table(measured: dict[str, Any]) -> str:
    """The claims of the paper and what became of them here."""
    lines = []
    for claim, paper, here, said in claims(measured):
        claim, paper, here = (" ".join(text.split("\n")) for text in (claim, paper, here))
        lines += [f"Claim: {claim}: {said}", f"    paper: {paper}; here: {here}"]
    return "\n".join(lines)


def masks_table(masks: dict[str, Any]) -> str:
    """In how many layers one choice of a mask has a smaller error of the output than another."""
    errors = [row["relative_error"] for row in rows(masks, "masks")]
    pairs = [
        ("wanda, row", "magnitude, row"),
        ("magnitude, column", "magnitude, row"),
        ("wanda, row", "sparsegpt_score, row"),
        ("wanda, layer", "wanda, row"),
    ]
    lines = ["layers in which the first choice has the smaller error:"]
    for better, worse in pairs:
        n_better = sum(each[better] < each[worse] for each in errors)
        lines.append(f"  {choice_name(better):<28} than {choice_name(worse):<32}{n_better:>4} of {len(errors)}")
    return "\n".join(lines)


def cost_table(measured: dict[str, Any]) -> str:
    """Where the seconds of pruning go, and what Wanda costs beyond its two forward passes."""
    lines = [f"{'':<17}{'tokens':>8}{'forward':>10}{'norms':>9}{'score, mask':>13}{'beyond the forward passes':>28}"]
    for row in rows(measured, "seconds"):
        choice = row["factorise"] + row["solve"]
        calibrated = row["forward"] > 1
        share = f"{100 * (row['gram'] + choice) / row['forward']:.0f} %" if calibrated else "no forward pass needed"
        tokens = row["calibration_tokens"] if calibrated else 0
        times = f"{row['forward']:>8.1f} s{row['gram']:>7.1f} s{choice:>11.1f} s"
        lines.append(f"{_named(row['method'], row['pattern']):<17}{tokens:>8}{times}{share:>28}")
    return "\n".join(lines)
