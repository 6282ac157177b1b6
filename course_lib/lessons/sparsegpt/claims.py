"""The claims of lesson 03: what SparseGPT's paper and the lectures say, and how we measure it."""

import math
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from course_lib.lessons.common import gpu
from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.claim import (
    COMPARABLE,
    HARMED,
    OTHER_DISTANCES,
    PERCENT,
    POINTS,
    TIMES,
    WHY_COMPARABLE,
    WHY_HARMED,
    WHY_OWN_NUMBER,
    Claim,
)
from course_lib.lessons.common.effects import Row, accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.results import load_published, rows, spaced
from course_lib.lessons.common.verdicts import Effect, of_samples

Measured = dict[str, Any]
Tables = dict[str, list[dict[str, Any]]]
NAMES = {
    "magnitude": "magnitude",
    "wanda": "Wanda",
    "sparsegpt": "SparseGPT",
    "sparsegpt + refit": "SparseGPT, refitted",
}
PATTERNS = ("50%", "4:8", "2:4")
PHASES = ("forward", "gram", "factorise", "solve")
PAPERS_BLOCK = 128  # columns whose mask is chosen together
PAPERS_GAP = 20  # per cent, appendix A.1, on OPT-2.7B
WITH_WANDA = (
    "sparsegpt/experiments/sparsegpt",
    "wanda/experiments/wanda",
)  # the latter: dense, magnitude and Wanda rows
PAPER = "Frantar and Alistarh (2023), SparseGPT, arXiv:2301.00774"
WANDA_PAPER = "Sun, Liu, Bair and Kolter (2023), Wanda, arXiv:2306.11695"

_claim = partial(Claim, source=PAPER, unit=TIMES, results=WITH_WANDA)


def join_tables(*results: Measured) -> Tables:
    """Join the tables of several results; rows of the last result come first."""
    tables: Tables = {}
    for result in reversed(results):
        for name, more in result.get("tables", result).items():
            tables[name] = tables.get(name, []) + more
    return tables


def perplexity_row(tables: Tables, method: str, pattern: str) -> Row:
    """The row of one pruned model on held-out Wikipedia."""
    return rows(tables, "perplexity", method=method, pattern=pattern, corpus="wikipedia")[0]


def _against(other: str, pattern: str, *results: Measured) -> Effect:
    """SparseGPT compared with another method at one pattern."""
    tables = join_tables(*results)
    return log_gap(perplexity_row(tables, "sparsegpt", pattern), perplexity_row(tables, other, pattern))


def _published_against(other: str, pattern: str) -> str:
    published = rows(load_published("sparsegpt"), "llama", model="LLaMA-2-7B", pattern=pattern)
    by_method = {row["method"]: row for row in published}
    return f"{by_method[other]['perplexity'] / by_method['sparsegpt']['perplexity']:.3f} times (LLaMA-2-7B)"


THAN_WANDA_HALF, THAN_WANDA_2_4 = (
    _claim(
        id=f"sparsegpt-than-wanda-{name}",
        text=f"at {spaced(pattern)}, SparseGPT has a lower perplexity than Wanda",
        measure=partial(_against, "wanda", pattern),
        quantity="Wanda's perplexity over SparseGPT's",
        refuted=f"a perplexity at {spaced(pattern)} that is not below Wanda's",
        published=partial(_published_against, "wanda", pattern),
    )
    for name, pattern in (("half", "50%"), ("2-4", "2:4"))
)
THAN_MAGNITUDE = _claim(
    id="sparsegpt-than-magnitude",
    text="SparseGPT has a lower perplexity than magnitude pruning with each pattern",
    measure=lambda *results: {spaced(p): _against("magnitude", p, *results) for p in PATTERNS},
    quantity="magnitude's perplexity over SparseGPT's, by pattern",
    refuted="a pattern with which magnitude has as low a perplexity",
)


def _over_dense(method: str, *results: Measured) -> Effect:
    tables = join_tables(*results)
    return log_gap(perplexity_row(tables, "dense", "dense"), perplexity_row(tables, method, "50%"))


def _low_and_failing(*results: Measured) -> dict[str, Effect]:
    """How far SparseGPT stays below the mark of a harmed model, and how far magnitude lies above it."""
    return {
        "SparseGPT's loss": _over_dense("sparsegpt", *results).below(HARMED),
        "magnitude's loss": _over_dense("magnitude", *results).above(HARMED),
    }


def _show_over_dense(*results: Measured) -> str:
    over = {NAMES[method]: _over_dense(method, *results) for method in ("sparsegpt", "magnitude")}
    return f"{TIMES.several(over)} the dense perplexity"


def _opt(model: str, method: str) -> float:
    """The published perplexity of a model of the OPT family at 50 %."""
    (row,) = rows(
        load_published("sparsegpt"),
        "opt",
        model=model,
        method=method,
        pattern="dense" if method == "dense" else "50%",
    )
    return float(row["perplexity"])


def _published_low() -> str:
    parts = []
    for model in ("OPT-175B", "OPT-125M"):
        low, high = (_opt(model, method) / _opt(model, "dense") for method in ("sparsegpt", "magnitude"))
        parts.append(f"{low:.2f} and {high:,.0f} times ({model})")
    return "; ".join(parts)


KEEPS_LOW = _claim(
    id="sparsegpt-keeps-low",
    text="at 50 %, SparseGPT has less than 1.5 times the dense perplexity, where magnitude pruning has more",
    measure=_low_and_failing,
    shown=_show_over_dense,
    criterion=f"less than 1.5 times with SparseGPT, more with magnitude: {WHY_HARMED}",
    quantity="distance from 1.5 times the dense perplexity",
    refuted="a model that SparseGPT harms, or one that magnitude does not harm",
    published=_published_low,
)


def _steps_of_size() -> dict[str, Effect]:
    """By how much the ratio to the dense perplexity falls from each model of the OPT family to the next larger one."""
    models = [row["model"] for row in rows(load_published("sparsegpt"), "opt", method="dense")]
    ratio = {model: math.log(_opt(model, "sparsegpt") / _opt(model, "dense")) for model in models}
    return {f"{b} after {a}": Effect(value=ratio[a] - ratio[b], error=0.0) for a, b in pairwise(models)}


LARGER_LOSE_LESS = Claim(
    id="sparsegpt-published-larger",
    text="at 50 %, each larger model of the OPT family loses less with SparseGPT than the next smaller one",
    source=PAPER,
    basis="the data of the paper's figure 2, perplexity on raw WikiText-2",
    from_source=True,
    measure=_steps_of_size,
    unit=TIMES,
    quantity="perplexity over the dense one for a model, over that for the next larger one",
    refuted="a larger model that loses as much",
)


def _pattern_steps(methods: tuple[str, ...], *results: Measured) -> dict[str, Effect]:
    tables = join_tables(*results)
    return {
        f"{NAMES[method]}, {spaced(b)} after {spaced(a)}": log_gap(
            perplexity_row(tables, method, a), perplexity_row(tables, method, b)
        )
        for method in methods
        for a, b in pairwise(PATTERNS)
    }


_steps = partial(_claim, quantity="perplexity with a tighter pattern over that with the looser one, by method and step")
PATTERNS_COST = _steps(
    id="sparsegpt-patterns",
    text="with each method, unstructured costs less than 4:8, and 4:8 less than 2:4",
    measure=partial(_pattern_steps, tuple(NAMES)),
    refuted="a method with which a tighter pattern costs no more",
)
OWN_PATTERNS_COST = _steps(
    id="sparsegpt-own-patterns",
    text="with SparseGPT, unstructured costs less than 4:8, and 4:8 less than 2:4",
    measure=partial(_pattern_steps, ("sparsegpt",)),
    refuted="a tighter pattern that costs no more",
    published="8.21, 8.45 and 8.74 (perplexity of OPT-175B)",
)


def above_refit(measured: Measured) -> float:
    """SparseGPT's error over that of the least-squares weights on the same mask, median of all layers at 50 %."""
    return median(row["sparsegpt"] / row["refit"] for row in rows(measured, "layer_errors", pattern="50%"))


NEAR_THE_BEST = _claim(
    id="sparsegpt-near-the-best",
    text=f"SparseGPT's error is at most {PAPERS_GAP} % above that of the best weights on the same mask",
    results=("sparsegpt/experiments/sparsegpt_layers",),
    measure=lambda measured: Effect(value=above_refit(measured) - 1, error=0.0),
    below=PAPERS_GAP / 100,
    because=WHY_OWN_NUMBER,
    other_thresholds=(0.1, 0.4),
    unit=PERCENT,
    quantity="error above that of the least-squares refit, median of all layers",
    refuted="a median error of more than 1.2 times that of the best weights on the same mask",
    published=f"about {PAPERS_GAP} % (OPT-2.7B)",
)


def _block_sizes(measured: Measured) -> dict[str, Effect]:
    sizes = {row["block_size"]: row for row in rows(measured, "block_size")}
    usual = sizes[PAPERS_BLOCK]
    return {"1 column": log_gap(usual, sizes[min(sizes)]), "all columns": log_gap(usual, sizes[max(sizes)])}


BLOCK_SIZE = _claim(
    id="sparsegpt-block-size",
    text=f"masks for {PAPERS_BLOCK} columns at a time are better than masks for 1 column or for all columns at once",
    results=("sparsegpt/experiments/sparsegpt_choices",),
    measure=_block_sizes,
    quantity=f"perplexity with another number of columns over that with {PAPERS_BLOCK}",
    refuted="another number of columns with a perplexity as low",
    published="the lowest perplexity (figure 10, OPT-2.7B)",
)


def _late_over_early(patterns: tuple[str, ...], measured: Measured) -> dict[str, Effect]:
    patterns = patterns or tuple(dict.fromkeys(row["pattern"] for row in rows(measured, "thirds")))
    return {
        spaced(pattern): log_gap(
            *(rows(measured, "thirds", third=third, pattern=pattern)[0] for third in ("early", "late"))
        )
        for pattern in patterns
    }


_depth = partial(
    _claim,
    results=("sparsegpt/experiments/sparsegpt_choices",),
    quantity="perplexity with the last third of the blocks pruned over that with the first third pruned",
    refuted="a first third whose pruning costs as much",
    larger_models=True,
)
LATE_BLOCKS = _depth(
    id="sparsegpt-depth",
    text="pruning the last third of the blocks costs more than pruning the first third",
    measure=partial(_late_over_early, ()),
)
LATE_BLOCKS_2_4 = _depth(
    id="sparsegpt-depth-2-4",
    text="at 2:4, pruning the last third of the blocks costs more than pruning the first third",
    measure=lambda measured: _late_over_early(("2:4",), measured)["2:4"],
    published="late blocks are more sensitive (figure 7, OPT-175B)",
)


def _equal_size(measured: Measured) -> dict[str, Effect]:
    effects = {}
    for group in dict.fromkeys(row["group"] for row in rows(measured, "rounded")):
        by_name = {row["name"]: row for row in rows(measured, "rounded", group=group)}
        if {"50% + 4 bits", "3 bits"} <= set(by_name):
            name = f"one scale per {group} weights" if group else "one scale per row"
            effects[name] = log_gap(by_name["50% + 4 bits"], by_name["3 bits"])
    return effects


ROUNDED = _claim(
    id="sparsegpt-rounded",
    text="at equal size, half of the weights at 4 bits are better than all of them at 3 bits",
    results=("sparsegpt/experiments/sparsegpt_rounded",),
    measure=_equal_size,
    quantity="perplexity of all weights at 3 bits over that of half of them at 4 bits",
    refuted="all weights at 3 bits with a perplexity as low",
    published="8.68 and 8.29 (perplexity of OPT-175B)",
    larger_models=True,
)


def tasks_with_signal(tables: Tables) -> list[str]:
    """The tasks on which the dense model is clearly above chance."""
    return [row["task"] for row in rows(tables, "zero_shot", method="dense") if has_signal(row)]


def accuracy_gains(tables: Tables) -> dict[str, Effect]:
    """SparseGPT's accuracy minus Wanda's at 50 %, by task with a signal."""
    by_method = {
        method: {row["task"]: row for row in rows(tables, "zero_shot", method=method, pattern="50%")}
        for method in ("sparsegpt", "wanda")
    }
    return {
        task: accuracy_gap(by_method["sparsegpt"][task], by_method["wanda"][task]) for task in tasks_with_signal(tables)
    }


def _mean_gain(*results: Measured) -> Effect:
    return mean_of(list(accuracy_gains(join_tables(*results)).values()))


_accuracy = partial(
    _claim,
    measure=_mean_gain,
    unit=POINTS,
    quantity="SparseGPT's accuracy minus Wanda's at 50 %, mean of the tasks on which the dense model beats chance",
)
MORE_ACCURATE = _accuracy(
    id="sparsegpt-accuracy",
    text="at 50 % sparsity, SparseGPT has a higher accuracy than Wanda",
    refuted="an accuracy at 50 % that is not above Wanda's",
)
ACCURACY_CLOSE = _accuracy(
    id="sparsegpt-accuracy-close",
    text=f"at 50 % sparsity, Wanda's accuracy is at most {100 * COMPARABLE:.0f} points below SparseGPT's",
    source=WANDA_PAPER,
    below=COMPARABLE,
    because=WHY_COMPARABLE,
    other_thresholds=OTHER_DISTANCES,
    refuted=f"over {100 * COMPARABLE:.0f} points fewer right answers with Wanda",
    published="54.94 against 54.21 % (LLaMA-7B), 56.24 against 56.24 % (LLaMA-2-7B)",
)


def beyond_forward(tables: Measured, pattern: str) -> dict[str, float]:
    """Seconds beyond the forward passes, by method."""
    spent = {r["method"]: sum(r[phase] for phase in PHASES[1:]) for r in rows(tables, "seconds", pattern=pattern)}
    return {method: spent[method] for method in ("wanda", "sparsegpt")}


def _slower(measured: Measured) -> Effect:
    """Each pattern was timed once, so it is one sample."""
    spent = [beyond_forward(measured, p) for p in dict.fromkeys(row["pattern"] for row in rows(measured, "seconds"))]
    return of_samples([math.log(each["sparsegpt"] / each["wanda"]) for each in spent])


def _published_seconds() -> str:
    seconds = {row["method"]: row["seconds"] for row in rows(load_published("sparsegpt"), "metric_seconds")}
    return f"{seconds['sparsegpt']} s and {seconds['wanda']} s for the metric (LLaMA-7B)"


SLOWER = _claim(
    id="sparsegpt-slower",
    text="SparseGPT takes longer than Wanda beyond the forward passes",
    source=WANDA_PAPER,
    results=("sparsegpt/experiments/sparsegpt_seconds",),
    measure=_slower,
    quantity="SparseGPT's seconds over Wanda's",
    refuted="SparseGPT in no more seconds than Wanda",
    published=_published_seconds,
)
ON_THE_GPU = {"50 %": ("50 %", "50 % of each row"), "2:4": ("2:4", "2:4")}  # sides of SparseGPT and of Wanda


def gpu_seconds(run: Measured) -> dict[str, tuple[float, float]]:
    """Seconds to prune 32 blocks of Llama-3-8B's shape on a GPU, by pattern: with SparseGPT and with Wanda."""

    def seconds(method: str, side: str) -> float:
        (row,) = gpu.timed("pruning", [f"32 blocks, {method}"], [side], run)
        return row["median_seconds"]

    return {p: (seconds("SparseGPT", a), seconds("Wanda", b)) for p, (a, b) in ON_THE_GPU.items()}


def _slower_on_a_gpu(run: Measured) -> Effect:
    """SparseGPT was timed once with each pattern, so a pattern is one sample, as in `_slower`."""
    return of_samples([math.log(slow / fast) for slow, fast in gpu_seconds(run).values()])


def _show_on_a_gpu(run: Measured) -> str:
    times = [f"{slow:.1f} s and {fast:.3f} s ({pattern})" for pattern, (slow, fast) in gpu_seconds(run).items()]
    return f"{', '.join(times)}; SparseGPT was run once with each pattern"


SLOWER_ON_A_GPU = _claim(
    id="sparsegpt-slower-on-a-gpu",
    text="on a GPU, SparseGPT takes longer than Wanda for all blocks of a model of Llama-3-8B's shape",
    source=WANDA_PAPER,
    results=("bench/gpu_h200",),
    measure=_slower_on_a_gpu,
    shown=_show_on_a_gpu,
    quantity="seconds of SparseGPT and of Wanda, without forward passes and Gram matrices, random weights",
    refuted="SparseGPT in no more seconds than Wanda",
    published=_published_seconds,
)
PAPERS_CLAIMS = (
    THAN_WANDA_HALF,
    THAN_WANDA_2_4,
    OWN_PATTERNS_COST,
    BLOCK_SIZE,
    NEAR_THE_BEST,
    LATE_BLOCKS_2_4,
    ROUNDED,
)
