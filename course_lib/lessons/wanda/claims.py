"""The claims of lesson 04: statements on one-shot pruning by the Wanda paper and a lecture, and how we measure them."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.claim import (
    DECENT,
    HARMED,
    OTHER_FRACTIONS,
    OTHER_HARMS,
    PERCENT,
    POINTS,
    TIMES,
    WHY_DECENT,
    WHY_HARMED,
    Claim,
)
from course_lib.lessons.common.effects import Row, accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.results import rows, spaced
from course_lib.lessons.common.verdicts import Effect
from course_lib.lessons.wanda.published import PAPER, PATTERNS, PUBLISHED_CLAIMS, kept_fractions, published
from course_lib.measure.paired import error_of_paired_shares, error_of_share

Measured = dict[str, Any]
PAPERS_TASKS = ("boolq", "rte", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
OUTPUT_GROUPS = "(output, 1)"  # the paper's name for "each output row is a comparison group"

_claim = partial(Claim, results=("wanda/experiments/wanda",), source=PAPER, unit=TIMES)


def perplexity_row(measured: Measured, method: str, pattern: str) -> Row:
    """Return the perplexity row of one pruned model on held-out Wikipedia."""
    (row,) = rows(measured, "perplexity", method=method, pattern=pattern, corpus="wikipedia")
    return row


def sweep_rows(measured: Measured, method: str) -> list[Row]:
    """Return the rows of unstructured pruning with one method, by increasing sparsity."""
    return sorted(rows(measured, "sweep", method=method), key=lambda row: row["sparsity"])


def _published_ratio(method: str, pattern: str) -> str:
    """Format the published ratio of pruned to dense perplexity, LLaMA-2-7B on WikiText-2."""
    value = partial(published, "perplexity", "perplexity", "LLaMA-2-7B")
    ratio = value(method=method, pattern=pattern) / value(method="dense", pattern="dense")
    return f"{ratio:.2f} times (LLaMA-2-7B)"


def _published_against_magnitude() -> str:
    value = partial(published, "perplexity", "perplexity", "LLaMA-2-7B", pattern="50%")
    return f"{value(method='magnitude') / value(method='wanda'):.2f} times (LLaMA-2-7B)"


def _published_accuracy_gain() -> str:
    value = partial(published, "zero_shot_mean", "accuracy", "LLaMA-7B", pattern="50%")
    return f"{100 * (value(method='wanda') - value(method='magnitude')):+.1f} percentage points (LLaMA-7B, seven tasks)"


def _published_steps() -> str:
    value = partial(published, "perplexity", "perplexity", "LLaMA-2-7B", method="wanda")
    ratios = ", ".join(f"{value(pattern=b) / value(pattern=a):.2f}" for a, b in pairwise(PATTERNS))
    return f"{ratios} times (LLaMA-2-7B)"


def _against_magnitude(measured: Measured) -> Effect:
    return log_gap(perplexity_row(measured, "wanda", "50%"), perplexity_row(measured, "magnitude", "50%"))


BELOW_MAGNITUDE = _claim(
    id="wanda-below-magnitude",
    text="at 50 % sparsity, Wanda has a lower perplexity than magnitude pruning",
    measure=_against_magnitude,
    quantity="magnitude's perplexity over Wanda's",
    refuted="a perplexity at 50 % that is not below magnitude's",
    published=_published_against_magnitude,
)


def accuracy_gaps(measured: Measured, tasks: Sequence[str] = ()) -> dict[str, Effect]:
    """Return Wanda's accuracy minus magnitude's at 50 %, by task. Default: tasks where the dense model beats chance."""
    tasks = tasks or [row["task"] for row in rows(measured, "zero_shot", method="dense") if has_signal(row)]
    by_task = {(r["task"], r["method"]): r for r in rows(measured, "zero_shot", pattern="50%")}
    return {task: accuracy_gap(by_task[task, "wanda"], by_task[task, "magnitude"]) for task in tasks}


_accuracy = partial(
    _claim,
    refuted="an accuracy at 50 % that is not above magnitude's",
    unit=POINTS,
    published=_published_accuracy_gain,
)
ACCURACY = _accuracy(
    id="wanda-accuracy",
    text="at 50 % sparsity, Wanda has a higher accuracy than magnitude pruning on the paper's seven tasks",
    measure=lambda measured: mean_of(list(accuracy_gaps(measured, PAPERS_TASKS).values())),
    quantity="accuracy above magnitude's, mean of the seven tasks; the dense model is at chance on most of them",
    larger_models=True,
)
ACCURACY_WITH_SIGNAL = _accuracy(
    id="wanda-accuracy-with-signal",
    text="at 50 % sparsity, Wanda has a higher accuracy than magnitude pruning on tasks that the dense model can do",
    measure=lambda measured: mean_of(list(accuracy_gaps(measured).values())),
    quantity="accuracy above magnitude's, mean of the tasks on which the dense model beats chance",
)


def _tighter_patterns(measured: Measured) -> dict[str, Effect]:
    row_by_pattern = {pattern: perplexity_row(measured, "wanda", pattern) for pattern in PATTERNS}
    return {f"{spaced(a)} to {spaced(b)}": log_gap(row_by_pattern[a], row_by_pattern[b]) for a, b in pairwise(PATTERNS)}


TIGHTER_PATTERNS = _claim(
    id="wanda-patterns",
    text="the tighter the pattern (50 %, 4:8, 2:4), the higher the perplexity",
    measure=_tighter_patterns,
    quantity="perplexity with a pattern over that with the looser one before it",
    refuted="a tighter pattern that costs no more",
    published=_published_steps,
)


def _other_groups(measured: Measured) -> dict[str, Effect]:
    by_group = {row["group"]: row for row in rows(measured, "groups", method="wanda")}
    own = by_group.pop(OUTPUT_GROUPS)
    return {group: log_gap(own, row) for group, row in by_group.items()}


OUTPUT_GROUP_IS_BEST = _claim(
    id="wanda-output-group",
    text="each output row is the best comparison group for Wanda",
    measure=_other_groups,
    quantity="perplexity with another comparison group over that with output rows",
    refuted="another comparison group with a perplexity as low",
    published="the lowest of five (LLaMA-7B)",
)


def _fewest_windows(measured: Measured) -> dict[str, Effect]:
    runs = sorted(rows(measured, "calibration"), key=lambda run: run["n_windows"])
    single = [run for run in runs if run["n_windows"] == 1]
    return {f"window {index}": log_gap(runs[-1], run) for index, run in enumerate(single, 1)}


MORE_CALIBRATION = _claim(
    id="wanda-calibration",
    text="more than one window of calibration text lowers the perplexity",
    measure=_fewest_windows,
    quantity="perplexity after calibration on one window over that on the most windows",
    refuted="a perplexity as low with a single window",
    published="a few samples are enough (LLaMA-7B)",
)


def kept_margins(measured: Measured) -> dict[str, list[tuple[float, float, float]]]:
    """Return (perplexity, kept fraction of the dense margin, its error) of each pruned model, by task with a signal.

    The margin is accuracy minus chance. Models are ordered by perplexity. Where the rows store which answers were
    `right`, the error is paired; otherwise it treats the models' answers as independent and is too wide, since both
    answer the same questions.
    """
    by_model = {(r["method"], r["pattern"]): r["perplexity"] for r in rows(measured, "perplexity", corpus="wikipedia")}
    models = sorted((model for model in by_model if model[0] != "dense"), key=by_model.__getitem__)
    by_task = {}
    for dense in filter(has_signal, rows(measured, "zero_shot", method="dense")):
        margin = dense["accuracy"] - dense["chance"]
        by_task[dense["task"]] = []
        for method, pattern in models:
            (row,) = rows(measured, "zero_shot", method=method, pattern=pattern, task=dense["task"])
            fraction = (row["accuracy"] - row["chance"]) / margin
            error = _error_of_difference(row, dense, fraction) / margin
            by_task[dense["task"]].append((by_model[method, pattern], fraction, error))
    return by_task


def _error_of_difference(row: Row, dense: Row, fraction: float) -> float:
    """Return the standard error of a − f·d (pruned and dense accuracy, f = `fraction`).

    Divided by the dense margin, it is the error of the ratio of margins (delta method).
    """
    if row.get("right") and dense.get("right"):
        return error_of_paired_shares(row["right"], dense["right"], fraction)
    pruned, unpruned = (error_of_share(round(r["accuracy"] * r["n"]), r["n"]) for r in (row, dense))
    return math.hypot(pruned, fraction * unpruned)


def one_word_gaps(measured: Measured, task: str) -> dict[str, Effect]:
    """Return the mean kept fraction of the other tasks minus that of `task`, by perplexity of the model."""
    margins = kept_margins(measured)
    task_points, other_points = margins.pop(task), list(margins.values())
    gaps = {}
    for index, (perplexity, fraction, error) in enumerate(task_points):
        _, fractions, errors = zip(*(points[index] for points in other_points), strict=True)
        gap_error = math.hypot(error, math.hypot(*errors) / len(errors))
        gaps[f"perplexity {perplexity:.0f}"] = Effect(value=sum(fractions) / len(fractions) - fraction, error=gap_error)
    return gaps


ONE_WORD_TASKS = _claim(
    id="wanda-one-word",
    text="LAMBADA, which asks for one exact word, loses more than tasks with answers to choose from",
    source="",
    measure=lambda measured: one_word_gaps(measured, "lambada"),
    quantity="remaining fraction of the dense margin above chance: mean of the other tasks minus LAMBADA, by model",
    refuted="a pruned model that keeps as much of its margin on LAMBADA",
    unit=POINTS,
)


def _steps_of_sparsity(measured: Measured) -> dict[str, Effect]:
    (dense,) = sweep_rows(measured, "dense")
    return {
        f"{method}, {100 * b['sparsity']:.0f} %": log_gap(a, b)
        for method in ("magnitude", "wanda")
        for a, b in pairwise([dense, *sweep_rows(measured, method)])
    }


def _magnitude_at(sparsity: float, measured: Measured) -> Effect:
    (dense,) = sweep_rows(measured, "dense")
    (row,) = (row for row in sweep_rows(measured, "magnitude") if row["sparsity"] == sparsity)
    return log_gap(dense, row)


def _wanda_at(pattern: str, measured: Measured) -> Effect:
    return log_gap(perplexity_row(measured, "dense", "dense"), perplexity_row(measured, "wanda", pattern))


SWEEP = _claim(
    id="wanda-sweep",
    text="each step of sparsity raises the perplexity, with magnitude and with Wanda",
    measure=_steps_of_sparsity,
    quantity="perplexity at a sparsity over that one step below, by method",
    refuted="a step of sparsity that costs nothing",
)
MAGNITUDE_HARMS = _claim(
    id="wanda-magnitude-harms",
    text="pruning half of the weights by magnitude raises the perplexity more than 1.5 times",
    measure=partial(_magnitude_at, 0.5),
    above=HARMED,
    because=WHY_HARMED,
    other_thresholds=OTHER_HARMS,
    quantity="perplexity over the dense one",
    refuted="a perplexity within 1.5 times the dense one",
    published=partial(_published_ratio, "magnitude", "50%"),
)
MAGNITUDE_FAILS_EARLY = _claim(
    id="wanda-magnitude-fails-early",
    text="pruning 30 % of the weights by magnitude raises the perplexity more than 1.5 times",
    measure=partial(_magnitude_at, 0.3),
    above=HARMED,
    because=WHY_HARMED,
    other_thresholds=OTHER_HARMS,
    quantity="perplexity over the dense one",
    refuted="a perplexity at 30 % within 1.5 times the dense one",
)
HALF_IS_CHEAP = _claim(
    id="wanda-half-is-cheap",
    text="pruning half of the weights with Wanda raises the perplexity less than 1.5 times",
    measure=partial(_wanda_at, "50%"),
    below=HARMED,
    because=WHY_HARMED,
    other_thresholds=OTHER_HARMS,
    quantity="perplexity over the dense one",
    refuted="over 1.5 times the dense perplexity at 50 %",
    published=partial(_published_ratio, "wanda", "50%"),
)
TWO_FOUR_IS_CHEAP = _claim(
    id="wanda-two-four-is-cheap",
    text="2:4 pruning with Wanda raises the perplexity less than 1.5 times",
    measure=partial(_wanda_at, "2:4"),
    below=HARMED,
    because=WHY_HARMED,
    other_thresholds=OTHER_HARMS,
    quantity="perplexity over the dense one",
    refuted="over 1.5 times the dense perplexity at 2:4",
    published=partial(_published_ratio, "wanda", "2:4"),
)


# Claims about accuracy that the paper's own table decides, shown with the perplexity that we measured.


def _kept(pattern: str, name: str, is_cheap: Claim, **record: str) -> Claim:
    """Build a claim that the paper's table decides; our perplexity, which `is_cheap` judges, is shown with it."""

    def show(measured: Measured) -> str:
        fractions = PERCENT.several(kept_fractions("wanda", pattern))
        perplexity = is_cheap.judge(measured).ours
        return f"{fractions} (fraction of the dense accuracy, by model); here {perplexity} the dense perplexity"

    return Claim(
        id=f"wanda-published-{name}",
        source=PAPER,
        results=is_cheap.results,
        from_source=True,
        measure=lambda _measured: kept_fractions("wanda", pattern),
        shown=show,
        above=DECENT,
        because=WHY_DECENT,
        other_thresholds=OTHER_FRACTIONS,
        unit=PERCENT,
        quantity="fraction of the dense accuracy, by model",
        refuted="a model that keeps less",
        **record,
    )


HALF_KEEPS = _kept(
    "50%",
    "half-keeps",
    HALF_IS_CHEAP,
    text="with half of the weights, Wanda keeps over 90 % of the dense accuracy for each model of the paper's table",
)
TWO_FOUR_KEEPS = _kept(
    "2:4",
    "two-four-keeps",
    TWO_FOUR_IS_CHEAP,
    text="at 2:4, Wanda keeps over 90 % of the dense accuracy for each model of the paper's table",
)
TABLE_CLAIMS = PUBLISHED_CLAIMS  # the claims page reads this name
PAPER_CLAIMS = (BELOW_MAGNITUDE, ACCURACY_WITH_SIGNAL, TIGHTER_PATTERNS, OUTPUT_GROUP_IS_BEST, MORE_CALIBRATION)
