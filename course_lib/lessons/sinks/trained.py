"""Lesson 08 on models trained with a sink: verdicts from sink_pretraining.json, and figures for the deck."""

from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.tables import rows, verdict
from course_lib.lessons.sinks import backcopy, training

HIGH = 3.0  # medians: norms above that are called high, as in the measurement


def pretraining_verdict(measured: dict[str, Any]) -> str:
    """The paper's three claims, each a difference against its own standard error, documents compared in pairs."""
    lines = [f"{'more perplexity than with most first slots':<46}{'none':>16}{'one':>16}"]
    costs = {}
    for variant in training.VARIANTS:
        costs[variant] = [training.cost(measured, variant, sinks) for sinks in (0, 1)]
        lines.append(f"{variant:<46}" + "".join(f"{f'{c:+.1f} ± {e:.1f} %':>16}" for c, e in costs[variant]))
    needs = [_counts(*costs[variant][0]) for variant in training.VARIANTS]
    one = _counts(*costs["vanilla"][1])
    own = _counts(*costs["learnable sink"][0]) and not _counts(*costs["learnable sink"][1])  # nothing to cure else
    several = verdict(sum(needs), len(needs))
    return "\n".join(
        [
            *lines,
            f"Claim: without any first slot all of them are worse: {sum(needs)} of {len(needs)}, {several}",
            f"Claim: one first slot is not enough for the vanilla model: {verdict(one)}",
            f"Claim: one slot, its own, is enough for the learnable sink: {verdict(own)}",
        ]
    )


def _counts(percent: float, error: float) -> bool:
    """A difference counts from one per cent on, and from two standard errors on."""
    return percent > max(1.0, 2 * error)


def idlest(measured: dict[str, Any]) -> str:
    """How much of one head's attention a sink takes, and what the model is worth with it."""
    declined = 100 * max(row["nowhere"] for row in rows(measured, "attention", variant="zero sink"))
    taken = 100 * max(row["slots"][0] for row in rows(measured, "attention", variant="learnable sink"))
    losses = {row["variant"]: row["evaluation_loss"] for row in measured["tables"]["models"]}
    listing = ", ".join(f"{variant} {losses[variant]:.3f}" for variant in training.VARIANTS)
    return (
        f"Of one head's attention the zero sink takes up to {declined:.0f} %, the learnable sink up to {taken:.0f} %\n"
        f"Nats a byte, nothing evicted: {listing} (one training each)"
    )


def registers_verdict(measured: dict[str, Any]) -> str:
    """Whether patches stand out without registers, and whether registers take that over."""
    highest = {}
    for n in sorted({row["registers"] for row in measured["tables"]["registers"]}):
        norms = rows(measured, "registers", registers=n)
        layers = sorted({row["layer"] for row in norms})
        highest[n] = max(fmean(r["largest"] / r["median"] for r in norms if r["layer"] == layer) for layer in layers)
    (without, *_), with_most = highest.values(), list(highest.values())[-1]
    held = without > HIGH and with_most < without / 2
    peaks = ", ".join(f"{ratio:.1f} with {n}" for n, ratio in highest.items())
    claim = f"Claim: registers take over from patches: {verdict(held)}"
    return f"Largest patch norm over the median: {peaks} registers\n{claim}"


def table() -> Figure:
    return training.streaming_bars(training.results())


def first_slots() -> Figure:
    return training.first_slot_by_layer(training.results())


def rates() -> Figure:
    return training.rates(training.results())


def idle_head() -> Figure:
    return backcopy.sample(backcopy.results())


def registers() -> Figure:
    return training.register_norms(training.results())
