"""The printed tables of lesson 04, from the committed measurement and the published rows."""

from typing import Any

from course_lib.data.benchmarks import WANDA_TASKS
from course_lib.lessons.common.benchmarks import amounts, has_signal
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import mean_of
from course_lib.lessons.common.tables import load_published, origin, rows, spaced
from course_lib.lessons.wanda import claims
from course_lib.lessons.wanda.accuracies import accuracy_gaps, by_signal
from course_lib.lessons.wanda.measured import MEASURED, NAMES, choice_name


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
    gaps, whole = accuracy_gaps(measured), mean_of(list(seven.values()))
    silent = len(seven.keys() - gaps.keys())
    listing = ", ".join(f"{task} {100 * each.value:+.0f} ± {100 * each.error:.0f}" for task, each in gaps.items())
    return (
        f"The paper's seven tasks: {100 * whole.value:+.1f} ± {100 * whole.error:.1f} points for Wanda on average. "
        f"{silent} of them have no signal,\nso this mean decides nothing.\nTasks with a signal: {listing}\n"
        f"{claims.ACCURACY.judge(measured)}"
    )


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


PAPER_CLAIMS = (
    claims.BELOW_MAGNITUDE,
    claims.ACCURACY,
    claims.TIGHTER_PATTERNS,
    claims.OUTPUT_GROUP_IS_BEST,
    claims.MORE_CALIBRATION,
)
SWEEP_CLAIMS = (
    claims.SWEEP,
    claims.MAGNITUDE_HARMS,
    claims.MAGNITUDE_FAILS_EARLY,
    claims.HALF_IS_CHEAP,
    claims.TWO_FOUR_IS_CHEAP,
)


def claims_table(measured: dict[str, Any]) -> str:
    """The claims of the paper and their verdicts here."""
    return report(PAPER_CLAIMS, measured)


def sweep_verdict(measured: dict[str, Any]) -> str:
    """What sparsity costs: step by step with both methods, and compared with the dense model."""
    return report(SWEEP_CLAIMS, measured)


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
