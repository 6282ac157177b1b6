"""Tables and verdicts from what `course reproduce moe` and `moe_upcycling` measured.

Dimension key: L blocks, E experts.
"""

from statistics import fmean, stdev

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.moe import claims

COLLAPSE = {("top-1", 1): claims.COLLAPSE, ("top-2", 2): claims.COLLAPSE_TOP_2}
UPCYCLED = (claims.UPCYCLED, claims.UPCYCLED_NOISE, claims.UPCYCLED_REDRAWN, claims.UPCYCLED_TOP_1)


def ends(measured: Measured) -> Table:
    """For every kind of model: weights, FLOP of learning from a byte, seconds, and the loss over the seeds."""
    frame = []
    for name in dict.fromkeys(row["model"] for row in rows(measured, "models")):
        found = rows(measured, "models", model=name)
        losses = [row["loss"] for row in found]
        busiest = [max(block["load"]) for row in found for block in row["blocks"]]
        frame.append(
            {"model": name, "weights": found[0]["parameters"], "FLOP per byte": found[0]["flops_a_byte"]}
            | {"processor time (s)": _seconds(measured, name), "loss (nats per byte)": fmean(losses)}
            | {"deviation": stdev(losses) if len(losses) > 1 else None}
            | {"busiest expert": max(busiest) if busiest else None}
        )
    return Table(
        frame,
        caption="The models after training",
        formats={
            "weights": number(),
            "FLOP per byte": number(),
            "processor time (s)": number(),
            ("loss (nats per byte)", "deviation"): plus_minus(3),
            "busiest expert": percent,
        },
        note="FLOP and time are those of training. Loss: mean ± standard deviation over the seeds. Busiest expert: the "
        "largest fraction of a block's choices that one expert has.",
    )


def _seconds(measured: Measured, name: str) -> float:
    """Of the processor for all steps, the mean over seeds."""
    found = rows(measured, "held_out", model=name)
    last = max(row["step"] for row in found)
    return fmean(row["processor_seconds"] for row in found if row["step"] == last)


def collapse(measured: Measured, name: str, k: int) -> str:
    """In how many blocks of each seed the k busiest experts of a model have more than half of all choices."""
    return str(COLLAPSE[name, k].judge(measured))


def specialisation(measured: Measured, name: str) -> Table:
    """By block: how much of the expert the byte determines, compared with the same for bytes in random order."""
    found = rows(measured, "models", model=name)
    frame = []
    for at in range(len(found[0]["blocks"])):
        of_block = [row["blocks"][at] for row in found]
        known, chance = (fmean(block[key] for block in of_block) for key in ("known", "by_chance"))
        frame.append({"block": f"block {at}", "determined by the byte": known, "by chance": chance})
    return Table(
        frame,
        caption=f"{name}: how much of the choice of expert the byte alone determines",
        formats=dict.fromkeys(("determined by the byte", "by chance"), percent),
    )


def copies(measured: Measured) -> Table:
    """Perplexity of the default model with its MLPs copied, by router."""
    heading = "largest difference of a logit"
    return Table(
        [
            {"router": row["router"], "perplexity": row["perplexity"], heading: row["largest_difference"]}
            for row in rows(measured, "copies")
        ],
        caption="SmolLM2 with four copies of each MLP",
        formats={"perplexity": number(1), heading: "{:.1e}".format},
    )


def first_gradients(measured: Measured) -> Table:
    """The gradient of the gates at the start of training, compared with that of the experts; means over seeds."""
    frame = []
    for name in dict.fromkeys(row["model"] for row in rows(measured, "gradients")):
        found = rows(measured, "gradients", model=name)
        ratio = fmean(row["gate_gradient"] / row["expert_gradient"] for row in found)
        frame.append({"model": name, "gradient of the gates (%)": 100 * ratio})
    return Table(
        frame,
        caption="At the start: the gradient of the gates in per cent of that of the experts",
        formats={"gradient of the gates (%)": "{:.2g}".format},
    )


def trained_on(measured: Measured) -> str:
    """Copies trained on, compared with the dense model trained on over the same bytes."""
    return report(UPCYCLED, measured)
