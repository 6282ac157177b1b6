"""What lesson 05 prints of its committed measurement: tables, and claims with their verdicts."""

import math

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import origin, rows
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


def aggregations(measured: Measured) -> str:
    """Perplexity by cut and by how windows and tokens are folded up, and the paper's way against the other three."""
    settings = list(dict.fromkeys(row["setting"] for row in rows(measured, "cuts", method="activations")))
    lines = [f"{'over windows, over tokens':<38}" + "".join(f"{name:>12}" for name in settings)]
    for cut in results.cuts(measured):
        cells = [results.scored(measured, cut, setting=setting) for setting in settings]
        said = "".join(f"{row['perplexity']:>12.1f}" if row else f"{'':>12}" for row in cells)
        lines.append(f"{results.name_of(cut):<38}{said}")
    return "\n".join([*lines, str(claims.AGGREGATION.judge(measured))])


def heads_add_up(measured: Measured) -> str:
    """What sets of heads cost, block by block and all at once, in nats a token."""
    lines = []
    for which in dict.fromkeys(row["set"] for row in rows(measured, "heads_by_block")):
        alone = rows(measured, "heads_by_block", set=which)
        total = sum(math.log(results.times_dense(measured, row, len(row["losses"]))) for row in alone)
        (together,) = rows(measured, "heads", set=which, chosen="score")
        once = math.log(results.times_dense(measured, together, len(alone[0]["losses"])))
        lines.append(f"{which:<20} one block at a time, summed: {total:.2f} nats; in all blocks at once: {once:.2f}")
    return "\n".join(lines)


def zero_shot(measured: Measured) -> str:
    """Accuracy ± standard error in per cent by task, and the mean gaps to the dense model."""
    models = list(dict.fromkeys((row["model"], row["steps"]) for row in rows(measured, "zero_shot")))
    tasks = list(dict.fromkeys(row["task"] for row in rows(measured, "zero_shot")))
    by_cell = {(row["model"], row["steps"], row["task"]): row for row in rows(measured, "zero_shot")}
    lines = [f"{'accuracy, %':<32}" + "".join(f"{task:>17}" for task in tasks)]
    for model, steps in models:
        cells = [by_cell[model, steps, task] for task in tasks]
        said = "".join(f"{100 * row['accuracy']:>12.0f} ± {100 * row['standard_error']:>2.0f}" for row in cells)
        name = model if model == "dense" else f"{model}, {steps} steps" if steps else f"{model}, cut"
        lines.append(f"{name:<32}{said}")
    chance = "".join(f"{100 * by_cell[*models[0], task]['chance']:>12.0f}{'':5}" for task in tasks)
    lines.append(f"{'chance':<32}{chance}")
    return "\n".join(lines)


def accuracies(measured: Measured) -> str:
    """Does learning show in the answers, and does width or depth answer more?"""
    return report((claims.LEARNT_ANSWERS, claims.WIDTH_ANSWERS), measured)


def search(measured: Measured) -> str:
    """Shapes of one size before and after ten steps, and whether both orders agree."""
    lines = []
    for order in rows(measured, "search_order"):
        shapes = sorted(rows(measured, "search", model=order["model"]), key=lambda row: row["rank_after"])
        name = "byte model" if order["model"] == "byte model" else "SmolLM2"
        title = f"{name}, loss in nats a token"
        lines.append(f"{title:<48}{'cut':>8}{'after ' + str(order['steps']) + ' steps':>16}")
        for row in shapes:
            sizes = f"{row['blocks']} blocks of {row['width']}, {row['neurons']} neurons, {row['heads']} heads"
            lines.append(f"  {sizes:<46}{row['before']:>8.3f}{row['after']:>16.3f}")
        lines.append(f"  Kendall's tau of both orders: {order['tau']:+.2f}, {order['n']} shapes")
    return "\n".join(lines)


def step_cost(measured: Measured) -> str:
    """What a step of learning takes, with a teacher and without."""
    lines = []
    for row in rows(measured, "step_cost"):
        name = "from the teacher" if row["loss"] == "kl" else "from the text alone"
        peak = f", {row['peak_bytes'] / 1e9:.1f} GB of memory at the peak" if row["peak_bytes"] else ""
        lines.append(
            f"a step of {row['tokens']} tokens {name}: {row['seconds']:.1f} s, {row['processor_seconds']:.1f} of "
            f"processor time{peak}"
        )
    return "\n".join(lines)


def claims_table(measured: Measured) -> str:
    """The claims and what became of them here."""
    return report(PAPER_CLAIMS, measured)
