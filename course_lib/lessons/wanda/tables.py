"""The tables of lesson 04, from the stored results and the published numbers."""

import math
from collections.abc import Mapping
from typing import Any

from course_lib.lessons.common.benchmarks import amounts
from course_lib.lessons.common.effects import log_gap, n_windows
from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured, load_published, origin, rows, spaced
from course_lib.lessons.common.table import Table, count, number, plus_minus
from course_lib.lessons.wanda.experiments.layer_sparsity import EQUAL, Attempt, stored
from course_lib.lessons.wanda.plots import METHODS, NAMES

Results = Mapping[str, Any]


def provenance(results: Results | None = None) -> str:
    """Return what was run, where, when, and with how much text."""
    results = results or load_measured("wanda")
    return origin(results, amounts(results["sizes"]))


def method_name(method: str, pattern: str) -> str:
    """Return a method with its pattern, such as "Wanda 2:4"."""
    return method if method == "dense" else f"{NAMES[method]} {spaced(pattern)}"


def perplexity_ratios(results: Results | None = None) -> Table:
    """Compare the ratio of pruned to dense perplexity of our model with the published ones."""
    results = results or load_measured("wanda")
    ours = {(row["method"], row["pattern"]): row for row in rows(results, "perplexity", corpus="wikipedia")}
    dense = ours.pop(("dense", "dense"))
    published: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows(load_published("wanda"), "perplexity"):
        published.setdefault(row["model"], {})[row["method"], row["pattern"]] = row["perplexity"]
    table = []
    for pattern in ("50%", "4:8", "2:4"):
        for method in METHODS:
            row = ours[method, pattern]
            ratios = {"times dense, 135M": math.exp(log_gap(dense, row).value)}
            for model, perplexities in published.items():
                ratios[f"times dense, {model}"] = perplexities[method, pattern] / perplexities["dense", "dense"]
            table.append({"": method_name(method, pattern), "perplexity, 135M": row["perplexity"]} | ratios)
    n = n_windows(dense)
    note = (
        f"135M: our model, {n} windows of Wikipedia; dense perplexity {dense['perplexity']:.1f}. LLaMA-2: from the "
        "README of the authors' code, WikiText-2. As in the paper, magnitude ranks over whole layers at 50 %."
    )
    formats = dict.fromkeys(ratios, number(2)) | {"perplexity, 135M": number(1)}
    return Table(table, caption="Perplexity, and its ratio to that of the dense model", formats=formats, note=note)


def cost(results: Results | None = None) -> Table:
    """Show where the seconds of pruning go."""
    results = results or load_measured("wanda")
    table = [
        {
            "": method_name(row["method"], row["pattern"]),
            "calibration tokens": row["calibration_tokens"] if row["forward"] > 1 else 0,
            "forward passes": row["forward"],
            "norms": row["gram"],
            "score and mask": row["factorise"] + row["solve"],
        }
        for row in rows(results, "seconds")
    ]
    return Table(
        table,
        caption="Seconds to prune our model on a CPU with two cores",
        formats={"calibration tokens": count} | dict.fromkeys(("forward passes", "norms", "score and mask"), number(1)),
        note="Magnitude pruning needs no calibration and no forward pass.",
    )


def layer_sparsity(attempt: Attempt | None = None, ideas: Mapping[str, Attempt] | None = None) -> Table:
    """Compare ideas for the open task with equal sparsity; your attempt comes last."""
    ideas = ideas or stored(rows(load_measured("wanda", "layer_sparsity"), "ideas"))
    table = []
    for name, each in {**ideas, **({"yours": attempt} if attempt else {})}.items():
        lower, error = against(each.losses, ideas[EQUAL].losses) if each is not ideas[EQUAL] else (None, None)
        row = {"rule": name, "sparsity": each.sparsity, "perplexity": each.losses.mean().exp().item()}
        table.append(row | {"lower log-perplexity": lower, "standard error": error})
    return Table(
        table,
        caption="Rules that choose the sparsity of each layer",
        formats={
            "sparsity": number(2, "%", 100),
            "perplexity": number(1),
            ("lower log-perplexity", "standard error"): plus_minus(3),
        },
        note="The last column is the difference to equal sparsity, window by window; positive numbers are better.",
    )
