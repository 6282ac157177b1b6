"""The printed tables of lesson 04, from the committed measurement and the published rows."""

from typing import Any

from course_lib.data.benchmarks import WANDA_TASKS
from course_lib.lessons.common.benchmarks import amounts, has_signal
from course_lib.lessons.common.effects import accuracy_gap, mean_of
from course_lib.lessons.common.tables import load_published, origin, rows
from course_lib.lessons.common.verdicts import verdict
from course_lib.lessons.wanda.measured import NAMES, by_signal


def provenance(measured: dict[str, Any]) -> str:
    """What was run, where, when, with how much."""
    return origin(measured, amounts(measured["sizes"]))


def zero_shot_table(measured: dict[str, Any]) -> str:
    """Accuracy ± standard error per task and model, in per cent, with n and chance."""
    models = [("dense", "dense")] + [(method, p) for p in ("50%", "4:8", "2:4") for method in NAMES]
    names = ["dense"] + [f"{NAMES[method][:6]} {p}" for method, p in models[1:]]
    scores = {(r["task"], r["method"], r["pattern"]): r for r in rows(measured, "zero_shot")}
    lines = [f"{'task':<17}{'n':>4}{'chance':>8}" + "".join(f"{name:>13}" for name in names)]
    for task in by_signal(measured):
        dense = scores[task, "dense", "dense"]
        cells = [scores[task, *model] for model in models]
        cells = "".join(f"{100 * c['accuracy']:>8.0f} ± {100 * c['standard_error']:<2.0f}" for c in cells)
        note = "" if has_signal(dense) else "   no signal"
        lines.append(f"{task:<17}{dense['n']:>4}{100 * dense['chance']:>8.0f}{cells}{note}")
    means = {(r["method"], r["pattern"]): r for r in rows(measured, "zero_shot_mean")}
    cells = "".join(f"{100 * means[m]['accuracy']:>8.0f} ± {100 * means[m]['standard_error']:<2.0f}" for m in models)
    lines.append(f"{'mean of the seven':<17}{'':>4}{100 * means[models[0]]['chance']:>8.0f}{cells}")
    return "\n".join(lines)


def zero_shot_verdict(measured: dict[str, Any]) -> str:
    """The paper's claim that Wanda keeps more accuracy than magnitude at 50 %, judged on the tasks with a signal.

    The mean of the paper's seven is printed and decides nothing where one of them has none.
    """
    means = {r["method"]: r for r in rows(measured, "zero_shot_mean") if r["pattern"] in ("dense", "50%")}
    gap = means["wanda"]["accuracy"] - means["magnitude"]["accuracy"]
    error = (means["wanda"]["standard_error"] ** 2 + means["magnitude"]["standard_error"] ** 2) ** 0.5
    dense = {r["task"]: r for r in rows(measured, "zero_shot", method="dense")}
    speaking = [task for task, row in dense.items() if has_signal(row)]
    silent = sum(task in WANDA_TASKS and task not in speaking for task in dense)
    by_task = {(r["task"], r["method"]): r for r in rows(measured, "zero_shot", pattern="50%")}
    gaps = [accuracy_gap(by_task[task, "wanda"], by_task[task, "magnitude"]) for task in speaking]
    mean = mean_of(gaps)
    listing = ", ".join(
        f"{task} {100 * each.value:+.0f} ± {100 * each.error:.0f}" for task, each in zip(speaking, gaps, strict=True)
    )
    return (
        f"Mean of the paper's seven: {100 * gap:+.1f} ± {100 * error:.1f} points for Wanda; {silent} of them have no "
        f"signal, so it decides nothing.\nTasks with a signal: {listing}\n"
        f"Claim: Wanda keeps more accuracy than magnitude at 50 %. {100 * mean.value:+.1f} ± {100 * mean.error:.1f} "
        f"points, the mean of {len(gaps)} tasks: {verdict(mean)}"
    )


def published_table() -> str:
    """The paper's mean zero-shot accuracies, marked as published."""
    published = load_published("wanda")
    accuracies = {(r["model"], r["method"], r["pattern"]): r["accuracy"] for r in rows(published, "zero_shot_mean")}
    models = list(dict.fromkeys(model for model, _, _ in accuracies))
    kinds = list(dict.fromkeys((method, pattern) for _, method, pattern in accuracies))
    lines = ["published, not measured here: mean accuracy (%) over seven tasks"]
    lines.append(f"{'':<17}" + "".join(f"{model.replace('LLaMA', 'L'):>9}" for model in models))
    for method, pattern in kinds:
        cells = "".join(f"{100 * accuracies[model, method, pattern]:>9.2f}" for model in models)
        lines.append(f"{method + ' ' + pattern.replace('dense', ''):<17}{cells}")
    return "\n".join(lines)


def cost_table(measured: dict[str, Any]) -> str:
    """Where the seconds of pruning go, and what Wanda costs beyond its two forward passes."""
    lines = [f"{'':<18}{'tokens':>8}{'forward':>10}{'norms':>8}{'score, mask':>13}{'beyond the forward passes':>28}"]
    for row in rows(measured, "seconds"):
        choice = row["factorise"] + row["solve"]
        beyond = (row["gram"] + choice) / row["forward"] if row["forward"] > 1 else None
        share = f"{100 * beyond:.0f} %" if beyond is not None else "no forward pass needed"
        tokens = row["calibration_tokens"] if beyond is not None else 0
        lines.append(
            f"{NAMES[row['method']] + ' ' + row['pattern']:<18}{tokens:>8}{row['forward']:>8.1f} s{row['gram']:>6.1f} s"
            f"{choice:>11.1f} s{share:>28}"
        )
    return "\n".join(lines)
