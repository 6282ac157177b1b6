"""Claims about experts, balance and other routers, from `course reproduce moe` and `moe_routers`."""

from statistics import fmean

from course_lib.lessons.common.table import Table, percent
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.moe.tables.measured import claim, lower, page
from course_lib.lessons.moe.tables.pairs import busiest, costs_more, falls, gains, of_seeds

COST = 0.01  # nats a byte that an aid may cost


def experts(measured: Measured) -> str:
    """What more weights bring at equal FLOP, and two small experts beside a large one."""
    return page(
        claim(measured, "one of 8 experts reads better than as many FLOP without", "top-1", "dense"),
        claim(measured, "so do two of 8, each half as large", "top-2", "dense"),
        claim(measured, "two small experts read better than a large one", "top-2", "top-1"),
    )


def balancing(measured: Measured) -> str:
    """What the balance loss does to the loss of the text."""
    pairs = [(f"balancing lowers the loss of {name}", f"{name}, balanced", name) for name in ("top-1", "top-2")]
    return page(*(claim(measured, *pair, larger_models=True) for pair in pairs))


def jitter(found: Measured) -> str:
    """Noise on what the router reads."""
    said = "jitter lowers the loss"
    return page(claim(found, said, "top-1, balanced, jitter", "top-1, balanced", larger_models=True))


def z_loss(found: Measured) -> str:
    """What the z-loss does to logits, and what it costs."""
    name, twin = "top-2, balanced, z-loss", "top-2, balanced"
    lines = []
    for key, what in (("log_sum_exp", "log Σ exp h"), ("largest_logit", "the largest |h|")):
        with_it, without = (fmean(of_seeds(found, each, key).values()) for each in (name, twin))
        lines.append(f"{what}: {with_it:.2f} with the z-loss, {without:.2f} without; means over blocks and seeds.")
        lines.append(f"Claim: the z-loss makes {what} smaller: {verdict(falls(found, name, twin, key))}")
    cost = lower(found, name, twin, threshold=-COST)
    lines.append(claim(found, "the z-loss lowers the loss", name, twin))
    return page(*lines, f"Claim: it costs less than {COST} nats a byte: {verdict(cost)}")


BALANCES = ("top-2, sigmoid", "top-2, sigmoid, bias", "top-2", "top-2, balanced")


def bias_table(found: Measured) -> Table:
    """How even loads become with a bias and with a balance loss."""
    heading = "choices of the busiest expert"
    return Table(
        [{"model": name, heading: fmean(of_seeds(found, name, busiest).values())} for name in BALANCES],
        caption="How even the loads are: means over blocks and seeds",
        formats={heading: percent},
    )


def bias(found: Measured) -> str:
    """A bias compared with a balance loss: how even loads become, and what that costs."""
    free, name, plain, balanced = BALANCES
    saved = [of_samples(gained) for gained in costs_more(found, (plain, balanced), (free, name))]
    effects = ", ".join(f"{each.value:+.3f} ± {each.error:.3f}" for each in saved)
    return page(
        f"Claim: the bias evens loads: {verdict(falls(found, name, free, busiest))}",
        f"Claim: more than the balance loss does: {verdict(falls(found, name, balanced, busiest))}",
        f"The bias costs {effects} nats a byte less than the balance loss ({len(saved)} seeds).",
        f"Claim: balance by a bias costs less: {verdict(saved, larger_models=True)}",
    )


def expert_choice(found: Measured) -> str:
    """Experts that choose their bytes, read as they learnt and with each byte choosing."""
    name, twin = "expert choice", "top-2, balanced"
    read = {way: rows(found, "future", read_by=way) for way in ("experts choose", "bytes choose")}
    moved = percent(fmean(row["moved"] for row in read["experts choose"]))
    alone = [of_samples(gained) for gained in gains(rows(found, "models", model=twin), read["bytes choose"])]
    losses = ", ".join(f"{fmean(row['loss'] for row in its):.3f} where {way}" for way, its in read.items())
    return page(
        claim(found, "experts that choose read better", name, twin),
        f"Another last byte moves {moved} of the bytes before it.",
        f"The same weights, nats a byte: {losses}.",
        f"Claim: where each byte chooses, they read worse than {twin}: {verdict(alone)}",
    )
