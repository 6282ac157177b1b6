"""Lesson 08 on models trained with a sink: verdicts from sink_pretraining.json, and figures for the deck."""

import math
from statistics import fmean
from typing import Any

from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.lessons.sinks.claims import training

HIGH = 3.0  # medians: norms above that are called high, as in the measurement
DEARER = 0.01  # of the perplexity: less is no difference worth a slot
MOST = 0.9  # of what all first slots bring


def pretraining_verdict(measured: dict[str, Any]) -> str:
    """The paper's three claims, each a difference against its own standard error, documents compared in pairs."""
    needs = [_dearer(measured, variant, 0) for variant in training.VARIANTS]
    one, own = _dearer(measured, "vanilla", 1), own_slot(measured)
    threshold = f"by over {100 * DEARER:.0f} %"
    return "\n".join(
        [
            f"Claim: without any first slot each of the {len(needs)} is worse {threshold}: "
            f"{verdict(needs, larger_models=True)}",
            f"Claim: with one first slot the vanilla model is still worse {threshold}: "
            f"{verdict(one, larger_models=True)}",
            f"Claim: one slot, its own, does over {100 * MOST:.0f} % of what more do for the learnable sink: "
            f"{verdict(own, larger_models=True)}",
        ]
    )


def _dearer(measured: dict[str, Any], variant: str, sinks: int) -> Effect:
    """By how many nats a model that keeps so many first slots is worse than with the most, document by document."""
    losses = training.losses_by_sinks(measured, variant)
    pairs = zip(losses[sinks], losses[max(losses)], strict=True)
    return of_samples([less - most for less, most in pairs], math.log(1 + DEARER))


def own_slot(measured: dict[str, Any]) -> Effect:
    """What the first slot alone brings the learnable sink, against its share of what all first slots bring."""
    losses = training.losses_by_sinks(measured, "learnable sink")
    triples = zip(losses[0], losses[1], losses[max(losses)], strict=True)
    return of_samples([(none - one) - MOST * (none - most) for none, one, most in triples])


def registers_verdict(measured: dict[str, Any]) -> str:
    """Whether patches stand out without registers, and whether registers take that over."""
    highest = {n: _peaks(measured, n) for n in sorted({row["registers"] for row in measured["tables"]["registers"]})}
    without, *_, with_most = highest.values()
    stands_out = of_samples([math.log(peak / HIGH) for peak in without])
    pairs = zip(without, with_most, strict=True)
    taken_over = of_samples([math.log(before / after) for before, after in pairs], math.log(2))
    peaks = ", ".join(
        f"{fmean(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) with {n}" for n, ratios in highest.items()
    )
    claim = (
        f"Claim: patches stand out without registers, over {HIGH:g} medians, and less than half as much with them: "
        f"{verdict([stands_out, taken_over], larger_models=True)}"
    )
    return f"Largest patch norm over the median, {len(without)} trainings: {peaks} registers\n{claim}"


def _peaks(measured: dict[str, Any], registers: int) -> list[float]:
    """Of each training, the largest patch norm over the median in the layer where that is highest."""
    norms = rows(measured, "registers", registers=registers)
    return [
        max(row["largest"] / row["median"] for row in norms if row["seed"] == seed)
        for seed in sorted({row["seed"] for row in norms})
    ]
