"""The tables of lesson 12: what parts cost, which recipes no other beats, drafts, and wall-clock time."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor

from course_lib.compose.challenge.budget import BUDGET
from course_lib.lessons.capstone import comparisons, estimates, timings
from course_lib.lessons.capstone.challenge import Try
from course_lib.lessons.capstone.estimates import DENSE, DOMAINS, PARTS, find, loss_increase, n_bytes, rows_of
from course_lib.lessons.capstone.experiments.recipes import FIVE
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, origin
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.verdicts import NOT_MEASURED, WORDS, Effect
from course_lib.measure.paired import mean_and_error

SUMMARY = Path(__file__).parent / "verdicts.json"  # `course claims` writes it
NO_LESSON = "without a lesson"
NATS, TIMES = plus_minus(2, sign=True), number(2, "x")


def provenance(measured: Measured | None = None) -> str:
    """Return what was run, where, when, and with how much text."""
    measured = measured or estimates.parts_results()
    if not rows_of(measured, "subsets"):
        return f"{NOT_MEASURED}: `course reproduce capstone`"
    sizes = measured["sizes"]
    return origin(
        measured, f"{sizes['windows']} × {sizes['length']} tokens per domain, the second half of each is scored"
    )


def _effect(name: str, effect: Effect) -> dict[str, float]:
    """Two cells, which NATS joins."""
    return {name: effect.value, f"error, {name}": effect.error}


def _joined(*names: str) -> dict[tuple[str, str], Any]:
    return {(name, f"error, {name}"): NATS for name in names}


def part_costs(measured: Measured | None = None, domain: str = "wikipedia") -> Table:
    """Show what each part costs alone, in the mean over all orders, and when it is added last."""
    measured = measured or estimates.parts_results()
    kinds = {
        "alone": estimates.alone,
        "Shapley value": estimates.shapley_values,
        "added last": estimates.added_last,
    }
    effects = {kind: function(measured, domain) for kind, function in kinds.items()}
    table = []
    for part in FIVE:
        row = {"part": PARTS[part]}
        for kind in kinds:
            row |= _effect(kind, effects[kind][part])
        table.append(row)
    total = sum(effect.value for effect in effects["Shapley value"].values())
    table.append({"part": "all five"} | {"Shapley value": total})
    return Table(
        table,
        caption=f"Loss increase of five parts, nats per token, {DOMAINS[domain]}",
        formats=_joined(*kinds),
        note="± one standard error over windows. The five Shapley values add up to the loss increase of all five.",
    )


def orders(measured: Measured | None = None) -> Table:
    """Compare pruning first, rounding first, and one sweep."""
    measured = measured or estimates.parts_results()
    dense, table = find(estimates.recipes(measured), DENSE), []
    for row in rows_of(measured, "orders"):
        cells = {"order": row["order"], "zeros": row["sparsity"]}
        for domain, name in DOMAINS.items():
            cells |= _effect(name, loss_increase(row, dense, domain))
        table.append(cells)
    return Table(
        table,
        caption="50 % of the weights pruned, the others on 3 bits: loss increase, nats per token",
        formats={"zeros": percent} | _joined(*DOMAINS.values()),
        note="± one standard error over windows.",
    )


def pareto_front(recipes: Sequence[Row] | None = None, domain: str = "wikipedia", read: bool = False) -> Table:
    """List the recipes that no other beats, the smallest first, with their numbers in the figure."""
    recipes = estimates.recipes() if recipes is None else recipes
    dense, table = find(recipes, DENSE), []
    for place, point in enumerate(estimates.pareto_set(recipes, domain, read), 1):
        row = find(recipes, point.name)
        cells = {"": place, "recipe": point.name, "bytes": n_bytes(row, read) / n_bytes(dense, read)}
        for name, title in DOMAINS.items():
            cells |= _effect(title, loss_increase(row, dense, name))
        table.append(cells)
    return Table(
        table,
        caption=f"The Pareto front by bytes {'read per token' if read else 'in memory'}",
        formats={"": number(0), "bytes": percent} | _joined(*DOMAINS.values()),
        note="Bytes: fraction of the dense model's. Others: loss increase, nats per token, ± one standard error.",
    )


def published_sizes(recipes: Sequence[Row] | None = None) -> Table:
    """Compare how many times smaller recipes are with what their papers report."""
    recipes = estimates.recipes() if recipes is None else recipes
    table = [
        {"recipe": size.name, "published": size.published, "ours": size.ours} | _effect("loss increase", size.cost)
        for size in comparisons.sizes(recipes)
    ]
    return Table(
        table,
        caption="Times smaller than in 16 bits",
        formats={"published": number(0), "ours": number(1)} | _joined("loss increase"),
        note="Loss increase here in nats per token ± one standard error; the papers report none.",
    )


def drafts(kind: str = comparisons.RUNNING, measured: Measured | None = None) -> Table:
    """Show tokens per pass of the dense model and bytes saved, by draft."""
    table = []
    for draft in comparisons.all_drafts(kind, measured):
        mean, error = mean_and_error(draft.tokens_per_pass)
        cells = {"draft": draft.name, "sampling": draft.how, "tokens per pass": mean, "error": error}
        table.append(cells | {"passes for 100 tokens": 100 / mean, "bytes": fmean(draft.times_fewer_bytes)})
    return Table(
        table,
        caption=f"Speculative decoding with k = 4, {kind}",
        formats={
            ("tokens per pass", "error"): plus_minus(2),
            "passes for 100 tokens": number(0),
            "bytes": number(2, "x fewer"),
        },
        note="Bytes per token include what the draft itself reads. The oracle chooses its neurons with the help of the "
        "full computation, so it saves nothing; it shows what a perfect predictor would reach.",
    )


def bytes_and_time() -> Table:
    """Show what fewer bytes promise and the measured time: for each way, its contests with most and fewest bytes."""
    table = []
    for way in timings.WAYS:
        found = timings.timed(way)
        for each in dict.fromkeys((found[0], found[-1])):
            row = {"one token on a CPU": way.name, "bytes": each.fraction, "promised": 1 / each.fraction}
            table.append(row | {"measured": each.speedup, "what takes the time": way.reason})
    return Table(
        table,
        caption="Speedup over the dense computation: promised by the bytes, and measured",
        formats={"bytes": percent, "promised": number(1, "x"), "measured": TIMES},
        note="Bytes: fraction of what the dense computation reads.",
    )


def timed_recipes() -> Table:
    """Show tokens per second of whole recipes, and the speedup of texts with drafts."""
    table = []
    for each in timings.timed_recipes() + timings.timed_recipes(drafts=True):
        if each.side != "no draft":
            is_step = each.contest.startswith("1 step")
            row = {"recipe": each.side, "task": "one token" if is_step else each.contest}
            row |= {"tokens per second": each.tokens_per_second if is_step else None}
            table.append(row | {"speedup": each.speedup, "promised": each.fewer})
    return Table(
        table,
        caption="Whole recipes after a text of 1,024 tokens, and 32 tokens with a draft",
        formats={"tokens per second": number(1), "speedup": TIMES, "promised": TIMES},
        note="Promised: how many times fewer bytes are read than by the dense model without a draft.",
    )


def tries(found: Sequence[Try]) -> Table:
    """Show your recipes: bytes compared with the budget, and the loss increase, or why a recipe could not be built."""
    table = []
    for place, each in enumerate(found, 1):
        row = {"": place, "recipe": each.name, "held": None, "read": None, "loss increase": None, "error": None}
        if each.judged is not None:
            loss, error = each.judged.worse[1]
            row |= {"held": each.held, "read": each.read, "loss increase": loss, "error": error}
        table.append(row | {"budget": each.problem or ("kept" if each.is_within else "exceeded")})
    return Table(
        table,
        caption="Your recipes on two windows of Wikipedia",
        formats={
            "": number(0),
            "held": number(1, "%", 100),
            "read": number(1, "%", 100),
            ("loss increase", "error"): plus_minus(3, sign=True),
        },
        note=f"Fractions of the dense model's bytes: a recipe may hold {percent(BUDGET.held, 1)} and read "
        f"{percent(BUDGET.read, 1)} per token. Loss increase in nats per token ± one standard error.",
    )


def own_recipe(row: Mapping[str, Any], dense: Mapping[str, Any]) -> Table:
    """Show where the bytes of your recipe are, compared with the dense model's."""
    parts = {part: size for part, size in row["by_part"].items() if size} | {"cache": row["cache"]}
    table = [{"part": part, "MB": size / 1e6} for part, size in parts.items()]
    for name, read in (("held in all", False), ("read per token", True)):
        table.append(
            {"part": name, "MB": n_bytes(row, read) / 1e6, "of dense": n_bytes(row, read) / n_bytes(dense, read)}
        )
    return Table(
        table,
        caption="What your recipe stores, with a cache of 1,024 tokens",
        formats={"MB": number(1), "of dense": percent},
    )


def levels(names: Sequence[str], grids: Sequence[str], sizes: Tensor, losses: Tensor, chosen: Sequence[int]) -> Table:
    """Show the level of each part, its megabytes, and its loss increase on each grid over the finest one."""
    table = []
    for part, name in enumerate(names):
        level = int(chosen[part])
        row = {"part": name, "level": grids[level], "MB": int(sizes[part, level]) / 1e6}
        table.append(row | {grid: float(losses[part, at] - losses[part, -1]) for at, grid in enumerate(grids[:-1])})
    return Table(
        table,
        caption=f"Levels that your split chooses, and the loss increase of each part alone over {grids[-1]}",
        formats={"MB": number(1)} | dict.fromkeys(grids[:-1], number(3, sign=True)),
    )


# The claims of all documents.


class Judged(NamedTuple):
    """A statement of a document in our words, its verdict, and the number of the lesson that judges it."""

    id: str
    says: str
    verdict: str
    lesson: str


@lru_cache(maxsize=1)
def all_claims() -> tuple[Judged, ...]:
    """Return the summary of the claims page, which is made above the lessons, in the page's order."""
    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    return tuple(Judged(row["id"], row["says"], row["verdict"], row["lesson"] or NO_LESSON) for row in summary)


def claim_counts(lesson: str | None = None) -> dict[str, int]:
    """Count the claims of each verdict, of all lessons or of one."""
    found = Counter(each.verdict for each in all_claims() if lesson in (None, each.lesson))
    return {verdict: found[verdict] for verdict in (*WORDS, NOT_MEASURED)}
