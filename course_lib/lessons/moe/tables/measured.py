"""Tables and verdicts from what `course reproduce moe` and `moe_upcycling` measured.

Dimension key: L blocks, E experts.
"""

from statistics import fmean, stdev

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.moe import claims

COLLAPSE = {("top-1", 1): claims.COLLAPSE, ("top-2", 2): claims.COLLAPSE_TOP_2}
UPCYCLED = (claims.UPCYCLED, claims.UPCYCLED_NOISE, claims.UPCYCLED_REDRAWN, claims.UPCYCLED_TOP_1)


def ends(measured: Measured) -> str:
    """Of every kind of model: weights, FLOP of learning from a byte, seconds, and the loss, mean and standard
    deviation over seeds.
    """
    lines = [
        f"{'model':<26}{'weights':>11}{'FLOP a byte':>13}{'CPU s':>8}{'nats a byte':>13}{'seeds':>9}{'busiest':>9}"
    ]
    for name in dict.fromkeys(row["model"] for row in rows(measured, "models")):
        found = rows(measured, "models", model=name)
        losses = [row["loss"] for row in found]
        spread = f"± {stdev(losses):.3f}" if len(losses) > 1 else ""
        busiest = [max(block["load"]) for row in found for block in row["blocks"]]
        share = f"{100 * max(busiest):.0f} %" if busiest else ""
        size = f"{found[0]['parameters']:>11,}{found[0]['flops_a_byte']:>13,}{_seconds(measured, name):>8.0f}"
        lines.append(f"{name:<26}{size}{fmean(losses):>13.3f}{spread:>9}{share:>9}")
    said = "FLOP and seconds: of learning. Busiest: the largest share of a block's choices that one expert has."
    return "\n".join([*lines, said])


def _seconds(measured: Measured, name: str) -> float:
    """Of the processor for all steps, the mean over seeds."""
    found = rows(measured, "held_out", model=name)
    last = max(row["step"] for row in found)
    return fmean(row["processor_seconds"] for row in found if row["step"] == last)


def collapse(measured: Measured, name: str, k: int) -> str:
    """In how many blocks of each seed the k busiest experts of a model have more than half of all choices."""
    return str(COLLAPSE[name, k].judge(measured))


def specialisation(measured: Measured, name: str) -> str:
    """By block: how much of the expert the byte decides, beside the same for bytes in random order."""
    found = rows(measured, "models", model=name)
    lines = [f"{name:<20}{'the byte decides':>20}{'by chance':>12}"]
    for at in range(len(found[0]["blocks"])):
        of_block = [row["blocks"][at] for row in found]
        known, chance = (fmean(block[key] for block in of_block) for key in ("known", "by_chance"))
        lines.append(f"{f'block {at}':<20}{100 * known:>18.0f} %{100 * chance:>10.0f} %")
    return "\n".join(lines)


def copies(measured: Measured) -> str:
    """Perplexity of the default model with its MLPs copied, by router."""
    lines = [f"{'SmolLM2, four copies of each MLP':<34}{'perplexity':>12}{'largest difference of a logit':>32}"]
    for row in rows(measured, "copies"):
        lines.append(f"{row['router']:<34}{row['perplexity']:>12.1f}{row['largest_difference']:>32.1e}")
    return "\n".join(lines)


def first_gradients(measured: Measured) -> str:
    """What reaches the gates of copies at the start, in per cent of what reaches their experts; means over seeds."""
    lines = [f"{'at the start':<34}{'gradient of gates, % of that of experts':>39}"]
    for name in dict.fromkeys(row["model"] for row in rows(measured, "gradients")):
        found = rows(measured, "gradients", model=name)
        share = fmean(100 * row["gate_gradient"] / row["expert_gradient"] for row in found)
        lines.append(f"{name:<34}{share:>39.2g}")
    return "\n".join(lines)


def trained_on(measured: Measured) -> str:
    """Copies trained on, compared with the dense model trained on over the same bytes."""
    return report(UPCYCLED, measured)
