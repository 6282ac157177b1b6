"""Experts, balance and other routers: verdicts and the numbers next to them, from the committed measurements.

Functions about other routers take two results, of `course reproduce moe` and of `moe_routers`.
"""

from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.table import Table, percent
from course_lib.lessons.moe import claims
from course_lib.lessons.moe.pairs import busiest, joined, of_seeds

Both = tuple[Measured, Measured]


def experts(measured: Measured) -> str:
    """What more weights bring at equal FLOP, and two small experts compared with a large one."""
    return report((claims.ONE_OF_EIGHT, claims.TWO_OF_EIGHT, claims.TWO_SMALL_EXPERTS), measured)


def balancing(measured: Measured) -> str:
    """What the balance loss does to the loss of the text."""
    return report((claims.BALANCED_TOP_1, claims.BALANCED_TOP_2), measured)


def jitter(both: Both) -> str:
    """Noise on what the router reads."""
    return str(claims.JITTER.judge(*both))


def z_loss(both: Both) -> str:
    """What the z-loss does to logits, and what it costs."""
    return report((claims.Z_LOG_SUM, claims.Z_SMALLER, claims.Z_LOWERS_LOSS, claims.Z_CHEAP), *both)


BALANCES = ("top-2, sigmoid", "top-2, sigmoid, bias", "top-2", "top-2, balanced")


def bias_table(both: Both) -> Table:
    """How even loads become with a bias and with a balance loss."""
    heading, found = "choices of the busiest expert", joined(*both)
    return Table(
        [{"model": name, heading: fmean(of_seeds(found, name, busiest).values())} for name in BALANCES],
        caption="How even the loads are: means over blocks and seeds",
        formats={heading: percent},
    )


def bias(both: Both) -> str:
    """A bias compared with a balance loss: how even loads become, and what that costs."""
    return report((claims.BIAS_EVENS, claims.BIAS_EVENS_MORE, claims.BIAS_CHEAPER), *both)


def expert_choice(both: Both) -> str:
    """Experts that choose their bytes, read as they learnt and with each byte choosing."""
    found = joined(*both)
    read = {way: rows(found, "future", read_by=way) for way in ("experts choose", "bytes choose")}
    moved = percent(fmean(row["moved"] for row in read["experts choose"]))
    losses = ", ".join(f"{fmean(row['loss'] for row in its):.3f} where {way}" for way, its in read.items())
    return (
        f"Another last byte moves {moved} of the bytes before it.\nThe same weights, nats per byte: {losses}.\n"
        f"{report((claims.EXPERT_CHOICE, claims.EXPERT_CHOICE_ALONE), *both)}"
    )
