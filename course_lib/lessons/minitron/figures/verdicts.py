"""What lesson 05 prints of its committed measurement: tables, and claims with their verdicts."""

import math

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import origin, rows
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.minitron import claims, results
from course_lib.lessons.minitron.results import Measured

PAPER_CLAIMS = (
    claims.LOTS,
    claims.GRADIENTS,
    claims.WIDTH,
    claims.REPAIRED,
    claims.REFIT,
    claims.FIRST_LEADS,
)


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    amounts = (
        f"{sizes['calibration']} windows of {sizes['length']} tokens to score with, {sizes['evaluation']} to evaluate "
        f"({sizes['draw_evaluation']} for draws by lot)"
    )
    return origin(measured, amounts)


def aggregations_table(measured: Measured) -> Table:
    """Perplexity by what is pruned and by how windows and tokens are aggregated."""
    settings = list(dict.fromkeys(row["setting"] for row in rows(measured, "cuts", method="activations")))
    frame = []
    for cut in results.cuts(measured):
        by_setting = {setting: results.scored(measured, cut, setting=setting) for setting in settings}
        values = {setting: row["perplexity"] if row else None for setting, row in by_setting.items()}
        frame.append({"what is pruned": results.name_of(cut)} | values)
    return Table(
        frame,
        caption="Perplexity by aggregation of the activations: over windows, then over tokens",
        formats=dict.fromkeys(settings, number(1)),
    )


def aggregations(measured: Measured) -> str:
    """The paper's way to aggregate against the other three."""
    return str(claims.AGGREGATION.judge(measured))


def heads_add_up(measured: Measured) -> Table:
    """What removing sets of heads costs, block by block and in all blocks at once, in nats per token."""
    frame = []
    for which in dict.fromkeys(row["set"] for row in rows(measured, "heads_by_block")):
        alone = rows(measured, "heads_by_block", set=which)
        total = sum(math.log(results.times_dense(measured, row, len(row["losses"]))) for row in alone)
        (together,) = rows(measured, "heads", set=which, chosen="score")
        once = math.log(results.times_dense(measured, together, len(alone[0]["losses"])))
        frame.append({"heads removed": which, "sum over single blocks": total, "all blocks at once": once})
    return Table(
        frame,
        caption="Loss increase without some heads (nats per token)",
        formats=dict.fromkeys(("sum over single blocks", "all blocks at once"), number(2)),
    )


def zero_shot(measured: Measured) -> Table:
    """Accuracy ± standard error in per cent by task; chance in the last row."""
    models = list(dict.fromkeys((row["model"], row["steps"]) for row in rows(measured, "zero_shot")))
    tasks = list(dict.fromkeys(row["task"] for row in rows(measured, "zero_shot")))
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    frame = []
    for model, steps in models:
        name = model if model == "dense" else f"{model}, {steps} steps" if steps else f"{model}, right after pruning"
        frame.append({"model": name})
        for task in tasks:
            row = by_cell[model, steps, task]
            frame[-1] |= {task: row["accuracy"], f"{task}: error": row["standard_error"]}
    frame.append({"model": "chance"} | {task: by_cell[*models[0], task]["chance"] for task in tasks})
    return Table(
        frame,
        caption="Accuracy (%) by task",
        formats={(task, f"{task}: error"): plus_minus(0, scale=100) for task in tasks},
        note="± one standard error.",
    )


def accuracies(measured: Measured) -> str:
    """Does learning show in the answers, and does width or depth answer more?"""
    return report((claims.LEARNT_ANSWERS, claims.WIDTH_ANSWERS), measured)


def search(measured: Measured) -> Table:
    """Shapes of one size before and after a few steps of learning, and whether both orders agree."""
    frame, notes = [], []
    for order in rows(measured, "search_order"):
        name = "byte model" if order["model"] == "byte model" else "SmolLM2"
        notes.append(
            f"{name}: {order['steps']} steps of learning; Kendall's tau of the two orders {order['tau']:+.2f}, "
            f"{order['n']} shapes."
        )
        for row in sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_after"]):
            sizes = f"{row['blocks']} blocks of {row['width']}, {row['neurons']} neurons, {row['heads']} heads"
            losses = {"right after pruning": row["before"], "after learning": row["after"]}
            frame.append({"model": name, "shape": sizes} | losses)
    return Table(
        frame,
        caption="Loss (nats per token) of shapes of one size",
        formats=dict.fromkeys(("right after pruning", "after learning"), number(3)),
        note=" ".join(notes),
    )


def step_cost(measured: Measured) -> Table:
    """What a training step takes, with a teacher and without."""
    return Table(
        [
            {"target": "the teacher" if row["loss"] == "kl" else "the text alone", "tokens": row["tokens"]}
            | {"wall-clock time (s)": row["seconds"], "processor time (s)": row["processor_seconds"]}
            | {"peak memory (GB)": row["peak_bytes"] / 1e9 if row["peak_bytes"] else None}
            for row in rows(measured, "step_cost")
        ],
        caption="What one training step costs",
        formats=dict.fromkeys(("wall-clock time (s)", "processor time (s)", "peak memory (GB)"), number(1)),
    )


def claims_table(measured: Measured) -> str:
    """The claims and what became of them here."""
    return report(PAPER_CLAIMS, measured)
