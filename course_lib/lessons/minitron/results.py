"""Stored results of lesson 05: their rows, and the differences that claims are judged by.

All models were evaluated on the same windows, so two of them are compared window by window. Random trials were
evaluated on the first windows only, and are compared on these.
"""

import math
from statistics import fmean
from typing import Any

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.effects import Row, accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples

Measured = dict[str, Any]
Cut = tuple[str, int]  # what is pruned, and how many are kept
Pairs = list[tuple[Row, Row]]

DENSE = {"neurons": 1536, "groups": 3, "heads": 9, "width": 576}
WORDS = {
    "neurons": "neurons",
    "groups": "whole groups",
    "heads": "heads, equally many of every group",
    "width": "channels",
}
TOLERANCE = 0.02  # relative difference of the FLOP of two checkpoints; runs are evaluated after whole steps only
EACH_GROUP = "one of every group"
PAPERS, BEST = "l2, mean", "l2, l2"  # over windows, over the tokens of a window
ENERGY = ("output energy", "")
SCORES = {
    ("activations", BEST): "activations, L2",
    ENERGY: "activations × weight norm",
    ("LLM-Pruner", "param_first"): "gradients, Σ |w g|",
    ("LLM-Pruner", "vectorize"): "gradients, |Σ w g|",
    ("weight norm", ""): "weight norm",
}


def results() -> Measured:
    """Load the stored result."""
    return load_measured("minitron")


def without_teacher() -> Measured:
    """Load the stored result of the runs without a teacher."""
    return load_measured("minitron", "equal_compute")


def dense(measured: Measured) -> Row:
    return rows(measured, "dense")[0]


def cuts(measured: Measured) -> list[Cut]:
    """Return what was pruned, in the order of the measurement."""
    return list(dict.fromkeys((row["kind"], row["size"]) for row in rows(measured, "cuts")))


def name_of(cut: Cut) -> str:
    kind, size = cut
    return f"{size} of {DENSE[kind]} {WORDS[kind]}"


def cut_row(measured: Measured, cut: Cut, method: str = "activations", setting: str = BEST) -> Row | None:
    """Return the model pruned by a score; None if the score does not exist for this kind."""
    kind, size = cut
    matches = rows(measured, "cuts", kind=kind, size=size, method=method, setting=setting, draw=None)
    return matches[0] if matches else None


def random_trials(measured: Measured, cut: Cut) -> list[Row]:
    """Return the models pruned at random; for heads of every group, also those with heads ablated at random."""
    trials = rows(measured, "cuts", kind=cut[0], size=cut[1], method="random")
    if cut == ("heads", 6) and "heads" in measured["tables"]:
        trials = trials + rows(measured, "heads", set=EACH_GROUP, chosen="random")
    return trials


def times_dense(measured: Measured, row: Row, n: int | None = None) -> float:
    """Return a model's perplexity over the dense one, on the first n windows."""
    pairs = zip(row["losses"][:n], dense(measured)["losses"][:n], strict=True)
    return math.exp(fmean(loss - dense_loss for loss, dense_loss in pairs))


def random_minus(row: Row, trials: list[Row]) -> Effect:
    """Return the loss of random trials minus that of a model: one sample per trial, on the windows of the trials."""
    return of_samples(
        [fmean(other - ours for other, ours in zip(trial["losses"], row["losses"], strict=False)) for trial in trials]
    )


def gain_over_random(measured: Measured, method: str = "activations", setting: str = BEST) -> dict[Cut, Effect]:
    """Return the loss of random selection minus that of a score, where the score exists."""
    chosen = {cut: cut_row(measured, cut, method, setting) for cut in cuts(measured)}
    return {cut: random_minus(row, random_trials(measured, cut)) for cut, row in chosen.items() if row}


def gain_over_score(measured: Measured, method: str, setting: str) -> dict[Cut, Effect]:
    """Return the loss with another score minus that with activations."""
    pairs = {cut: (cut_row(measured, cut), cut_row(measured, cut, method, setting)) for cut in cuts(measured)}
    return {cut: log_gap(ours, other) for cut, (ours, other) in pairs.items() if ours and other}


def gain_of_papers_aggregation(measured: Measured) -> dict[tuple[Cut, str], Effect]:
    """Return the loss with another aggregation over windows and tokens minus that with the paper's."""
    others = list(dict.fromkeys(row["setting"] for row in rows(measured, "cuts", method="activations")))
    effects = {}
    for cut in cuts(measured):
        ours = cut_row(measured, cut, setting=PAPERS)
        for setting in others:
            other = cut_row(measured, cut, setting=setting)
            if other and setting != PAPERS:
                effects[cut, setting] = log_gap(ours, other)
    return effects


def equal_models(measured: Measured) -> dict[str, dict[int, Row]]:
    """Return the models with equal parameters, by name and steps of distillation."""
    models: dict[str, dict[int, Row]] = {}
    for row in rows(measured, "equal_parameters"):
        models.setdefault(row["name"], {})[row["steps"]] = row
    return models


def width_over_depth(measured: Measured, after: bool) -> dict[str, Effect]:
    """Return the loss with fewer blocks minus that with fewer neurons, by choice of blocks."""
    (_, by_width), *others = equal_models(measured).items()
    when = max if after else min
    return {name: log_gap(by_width[when(by_width)], by_step[when(by_step)]) for name, by_step in others}


def curve(measured: Measured, run: str = "KL") -> list[Row]:
    """Return the checkpoints of a run in order."""
    return sorted(rows(measured, "curves", run=run), key=lambda row: row["step"])


def repaired(measured: Measured) -> Effect:
    """Return the fraction of the loss increase that the long run removed.

    Its error is that of the test whether more than half is removed: of each window's gain minus half of its increase.
    """
    first, *_, last = curve(measured)
    windows = list(zip(first["losses"], last["losses"], dense(measured)["losses"], strict=True))
    lost = fmean(cut - whole for cut, _, whole in windows)
    beyond_half = of_samples([(cut + whole) / 2 - end for cut, end, whole in windows])
    return Effect(value=0.5 + beyond_half.value / lost, error=beyond_half.error / abs(lost), n=beyond_half.n)


def refit_gains(measured: Measured) -> dict[str, Effect]:
    """Return by how much a refit lowers the loss, right after pruning and after training."""
    trained = equal_models(measured)["neurons"]
    steps = max(trained)
    refits = {row["steps"]: row for row in rows(measured, "refit", setting=BEST) if row["damping"] == 1.0}
    return {
        "right after pruning": log_gap(refits[0], cut_row(measured, ("neurons", 1126))),
        f"{steps} steps later": log_gap(refits[steps], trained[steps]),
    }


def still_best(measured: Measured) -> dict[str, Effect]:
    """Return, after training, the loss of the best other shape minus that of the best one right after pruning."""
    effects = {}
    for order in rows(measured, "search_order"):
        first, *others = sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_before"])
        rival = min(others, key=lambda row: row["after"])
        pairs = zip(first["losses_after"], rival["losses_after"], strict=True)
        effects[order["model"]] = of_samples([other - ours for ours, other in pairs])
    return effects


def accuracy_gained(measured: Measured, better: tuple[str, int], worse: tuple[str, int]) -> Effect:
    """Return the accuracy of one model minus another's, averaged over tasks on which the dense model beats chance."""
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    tasks = [row["task"] for row in rows(measured, "zero_shot", model="dense") if has_signal(row)]
    return mean_of([accuracy_gap(by_cell[*better, task], by_cell[*worse, task]) for task in tasks])


def equal_pairs(measured: Measured, alone: Measured, run: str) -> Pairs:
    """Return pairs of checkpoints after equal compute: with a teacher, and of a run without one."""
    others = [row for row in curve(alone, run) if row["step"]]
    return [
        (teacher, other)
        for teacher in curve(measured)
        for other in others
        if abs(other["flops"] - teacher["flops"]) <= TOLERANCE * other["flops"]
    ]


def gain_of_teacher(pairs: Pairs) -> list[Effect]:
    """Return the loss without a teacher minus that with one, in nats per token, for each pair."""
    return [log_gap(teacher, other) for teacher, other in pairs]
