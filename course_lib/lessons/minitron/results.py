"""The stored measurements of lesson 05: their rows, and the differences on which claims stand.

All models were evaluated on the same windows, so that two of them are compared window by window. Random choices were
evaluated on the first windows alone, and are compared on these.
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

WHOLE = {"neurons": 1536, "groups": 3, "heads": 9, "width": 576}
WORDS = {"neurons": "neurons", "groups": "whole groups", "heads": "heads, as many of every group", "width": "channels"}
TOLERANCE = 0.02  # how far the FLOP of two looks may differ; a run looks after whole steps only
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
    """The committed measurement."""
    return load_measured("minitron")


def without_teacher() -> Measured:
    """The committed measurement of the runs without a teacher."""
    return load_measured("minitron", "equal_compute")


def dense(measured: Measured) -> Row:
    return rows(measured, "dense")[0]


def cuts(measured: Measured) -> list[Cut]:
    """In the order in which they were measured."""
    return list(dict.fromkeys((row["kind"], row["size"]) for row in rows(measured, "cuts")))


def name_of(cut: Cut) -> str:
    kind, size = cut
    return f"{size} of {WHOLE[kind]} {WORDS[kind]}"


def scored(measured: Measured, cut: Cut, method: str = "activations", setting: str = BEST) -> Row | None:
    """A cut by a score; None where that score has no opinion."""
    kind, size = cut
    found = rows(measured, "cuts", kind=kind, size=size, method=method, setting=setting, draw=None)
    return found[0] if found else None


def lots(measured: Measured, cut: Cut) -> list[Row]:
    """The same cut, what leaves drawn by lot; heads of every group were drawn a second time, and silenced."""
    drawn = rows(measured, "cuts", kind=cut[0], size=cut[1], method="random")
    if cut == ("heads", 6) and "heads" in measured["tables"]:
        drawn = drawn + rows(measured, "heads", set=EACH_GROUP, chosen="random")
    return drawn


def times_dense(measured: Measured, row: Row, n: int | None = None) -> float:
    """How many times the dense perplexity a model has, on the first n windows."""
    pairs = zip(row["losses"][:n], dense(measured)["losses"][:n], strict=True)
    return math.exp(fmean(here - whole for here, whole in pairs))


def beside_lots(row: Row, drawn: list[Row]) -> Effect:
    """By how many nats a token a draw by lot reads worse: a sample a draw, on the windows that all have read."""
    return of_samples(
        [fmean(there - here for there, here in zip(draw["losses"], row["losses"], strict=False)) for draw in drawn]
    )


def than_lots(measured: Measured, method: str = "activations", setting: str = BEST) -> dict[Cut, Effect]:
    """By cut, where the score has an opinion."""
    found = {cut: scored(measured, cut, method, setting) for cut in cuts(measured)}
    return {cut: beside_lots(row, lots(measured, cut)) for cut, row in found.items() if row}


def than_score(measured: Measured, method: str, setting: str) -> dict[Cut, Effect]:
    """By cut: by how much another score's choice reads worse than that of the activations."""
    found = {cut: (scored(measured, cut), scored(measured, cut, method, setting)) for cut in cuts(measured)}
    return {cut: log_gap(ours, other) for cut, (ours, other) in found.items() if ours and other}


def than_papers_aggregation(measured: Measured) -> dict[tuple[Cut, str], Effect]:
    """By cut and other way to fold up windows and tokens: by how much it reads worse than the paper's way."""
    others = list(dict.fromkeys(row["setting"] for row in rows(measured, "cuts", method="activations")))
    found = {}
    for cut in cuts(measured):
        ours = scored(measured, cut, setting=PAPERS)
        for setting in others:
            other = scored(measured, cut, setting=setting)
            if other and setting != PAPERS:
                found[cut, setting] = log_gap(ours, other)
    return found


def ways(measured: Measured) -> dict[str, dict[int, Row]]:
    """At equal parameters: by way and steps of learning."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows(measured, "equal_parameters"):
        found.setdefault(row["name"], {})[row["steps"]] = row
    return found


def width_over_depth(measured: Measured, after: bool) -> dict[str, Effect]:
    """By way to choose blocks: by how much depth reads worse than width, before or after learning."""
    by_width, *others = ways(measured).items()
    when = max if after else min
    return {name: log_gap(by_width[1][when(by_width[1])], found[when(found)]) for name, found in others}


def curve(measured: Measured, run: str = "KL") -> list[Row]:
    """A run's looks in their order."""
    return sorted(rows(measured, "curves", run=run), key=lambda row: row["step"])


def left(measured: Measured) -> float:
    """Which share of the loss that the cut cost is left at the end of the long run."""
    looks, whole = curve(measured), math.log(dense(measured)["perplexity"])
    first, last = (math.log(looks[place]["perplexity"]) - whole for place in (0, -1))
    return last / first


def repaired(measured: Measured) -> Effect:
    """The fraction of the loss increase that the long run removed.

    Its error is that of the test whether more than half is removed: of the windows' gains minus half of their losses.
    """
    first, *_, last = curve(measured)
    windows = list(zip(first["losses"], last["losses"], dense(measured)["losses"], strict=True))
    lost = fmean(cut - whole for cut, _, whole in windows)
    beyond_half = of_samples([(cut + whole) / 2 - end for cut, end, whole in windows])
    return Effect(value=0.5 + beyond_half.value / lost, error=beyond_half.error / abs(lost), n=beyond_half.n)


def refit_gains(measured: Measured) -> dict[str, Effect]:
    """By how much a refit lowers the loss of the narrower model, right after the cut and after learning."""
    learnt = ways(measured)["neurons"]
    steps = max(learnt)
    refits = {row["steps"]: row for row in rows(measured, "refit", setting=BEST) if row["damping"] == 1.0}
    return {
        "right after pruning": log_gap(refits[0], scored(measured, ("neurons", 1126))),
        f"{steps} steps later": log_gap(refits[steps], learnt[steps]),
    }


def still_best(measured: Measured) -> dict[str, Effect]:
    """By model: by how much the best other shape has a higher loss, after its steps, than the one that led at first."""
    effects = {}
    for order in rows(measured, "search_order"):
        led, *others = sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_before"])
        rival = min(others, key=lambda row: row["after"])
        pairs = zip(led["losses_after"], rival["losses_after"], strict=True)
        effects[order["model"]] = of_samples([other - leader for leader, other in pairs])
    return effects


def accuracy_gained(measured: Measured, better: tuple[str, int], worse: tuple[str, int]) -> Effect:
    """By how much one model answers more than another, the mean over tasks on which the dense model has a signal."""
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    tasks = [row["task"] for row in rows(measured, "zero_shot", model="dense") if has_signal(row)]
    return mean_of([accuracy_gap(by_cell[*better, task], by_cell[*worse, task]) for task in tasks])


def looks(measured: Measured, alone: Measured, run: str) -> Pairs:
    """After equal compute: what learns by KL, and a run without a teacher."""
    others = [row for row in curve(alone, run) if row["step"]]
    return [
        (teacher, other)
        for teacher in curve(measured)
        for other in others
        if abs(other["flops"] - teacher["flops"]) <= TOLERANCE * other["flops"]
    ]


def than_teacher(pairs: Pairs) -> list[Effect]:
    """By how many nats per token the loss without a teacher is higher, at each look."""
    return [log_gap(teacher, other) for teacher, other in pairs]
