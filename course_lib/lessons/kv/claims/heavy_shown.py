"""Figures and verdicts of heavy.json on who is enough and who is missed, which `course reproduce heavy` measured."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.table import Table, percent, plus_minus
from course_lib.lessons.common.tables import listed, load_measured, origin, rows
from course_lib.lessons.common.verdicts import ERRORS, Effect, of_samples, verdict
from course_lib.lessons.kv.claims.reading import HEAVIEST, RANDOM, SPARED

Measured = dict[str, Any]
SUFFICE = 0.05  # of the tokens: "over 95 % of the weights are negligible"
ALIKE = 0.01  # nats per token; a perplexity within 1 % counts as the same
NAMES = {HEAVIEST: "the heaviest", SPARED: "the heaviest but the first token", RANDOM: "as many at random"}


def results() -> Measured:
    """The committed measurement."""
    return load_measured("kv", "heavy")


def provenance(measured: Measured | None = None) -> str:
    """What was run, where, when, with how much."""
    measured = measured or results()
    sizes = measured["sizes"]
    amounts = (
        f"{sizes['texts']} texts of {sizes['length']} tokens, of which the second half counts; {sizes['prompts']} "
        f"prompts of {sizes['length']} tokens; {sizes['written']} prompts of {sizes['prompt']} tokens, "
        f"{sizes['new']} written after each"
    )
    return origin(measured, amounts)


def above_full(row: dict[str, Any]) -> Effect:
    """By how many nats a token a text is harder than with everything read, text by text."""
    return of_samples([loss - full for loss, full in zip(row["losses"], row["full"], strict=True)])


def _log_points(axes: Axes, points: Sequence[tuple[float, Effect]], name: str, index: int) -> None:
    """Times the perplexity of the full text, with two standard errors, over a share in per cent."""
    middle = [math.exp(effect.value) for _, effect in points]
    low = [at - math.exp(effect.value - ERRORS * effect.error) for at, (_, effect) in zip(middle, points, strict=True)]
    high = [math.exp(effect.value + ERRORS * effect.error) - at for at, (_, effect) in zip(middle, points, strict=True)]
    shares = [100 * share for share, _ in points]
    axes.errorbar(shares, middle, yerr=[low, high], capsize=3, markersize=5, label=name, **line_style(index))


def enough(measured: Measured | None = None) -> Figure:
    """Perplexity when each query reads its largest weights alone, over how many it reads."""
    fig, (axes,) = figure(width=7.2)
    enough_on(axes, measured or results())
    return fig


def enough_on(axes: Axes, measured: Measured) -> None:
    """The same on axes that there are."""
    table = sorted(measured["tables"]["enough"], key=lambda row: row["share"])
    _log_points(axes, [(row["share"], above_full(row)) for row in table], "its own largest weights", 0)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":", label="all weights")
    axes.set_ylim(bottom=0.99)
    axes.legend(frameon=False, fontsize=9, title="each query reads", alignment="left")
    (five,) = rows(measured, "enough", share=SUFFICE)
    same, times = 100 * sum(five["same"]) / len(five["same"]), math.exp(above_full(five).value)
    title = f"{100 * SUFFICE:.0f} % of the tokens: {times:.2f} times the perplexity;\n"
    title += f"{same:.0f} % of the next tokens the same, n = {len(five['losses'])} texts"
    label(axes, title, "tokens that each query reads (%)", "times the full perplexity")


def enough_table(measured: Measured | None = None) -> Table:
    """What the text loses when each query reads only its largest weights, by how many it reads."""
    frame = []
    for row in sorted((measured or results())["tables"]["enough"], key=lambda row: row["share"]):
        effect = above_full(row)
        frame.append(
            {"tokens read": row["share"], "loss increase (nats per token)": effect.value, "error": effect.error}
        )
        frame[-1]["next tokens that are the same"] = sum(row["same"]) / len(row["same"])
    return Table(
        frame,
        caption="Each query reads only its largest weights",
        formats={
            "tokens read": percent,
            ("loss increase (nats per token)", "error"): plus_minus(3, sign=True),
            "next tokens that are the same": percent,
        },
        note="± one standard error over the texts.",
    )


def enough_verdict(measured: Measured | None = None) -> str:
    """Five in a hundred tokens for the same output."""
    measured = measured or results()
    (five,) = rows(measured, "enough", share=SUFFICE)
    effect = above_full(five)
    within = Effect(value=ALIKE - effect.value, error=effect.error, n=effect.n)
    claim = f"Claim: {100 * SUFFICE:.0f} % of the tokens, chosen anew for each query, give a perplexity within 1 %"
    return f"{claim}: {verdict(within, larger_models=True)}"


def masked(measured: Measured | None = None) -> Figure:
    """Perplexity when a share of the tokens of every head is masked, over the share."""
    measured = measured or results()
    fig, (axes,) = figure(width=7.2)
    for index, (which, name) in enumerate(NAMES.items()):
        table = sorted(rows(measured, "masked", which=which), key=lambda row: row["share"])
        _log_points(axes, [(row["share"], above_full(row)) for row in table], name, index)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    for panel_axis in ("x", "y"):
        log_scale(axes, panel_axis)
    axes.legend(frameon=False, fontsize=9, title="masked", alignment="left")
    most = max(row["share"] for row in measured["tables"]["masked"])
    at_most = {which: above_full(rows(measured, "masked", which=which, share=most)[0]) for which in NAMES}
    times = {which: math.exp(effect.value) for which, effect in at_most.items()}
    title = f"{100 * most:.0f} % masked: {times[HEAVIEST]:.3g} times the perplexity; the first token spared "
    title += f"{times[SPARED]:.2f},\nat random {times[RANDOM]:.2f}; n = {at_most[RANDOM].n} texts"
    label(axes, title, "tokens masked in each head (%, log scale)", "times the full perplexity (log scale)")
    return fig


def masked_verdict(measured: Measured | None = None) -> str:
    """Heavy hitters against as many random tokens, text by text."""
    measured = measured or results()
    lines = []
    for which in (HEAVIEST, SPARED):
        gaps = []
        for row in sorted(rows(measured, "masked", which=which), key=lambda row: row["share"]):
            (chance,) = rows(measured, "masked", which=RANDOM, share=row["share"])
            pairs = zip(row["losses"], chance["losses"], strict=True)
            gaps.append(of_samples([heavy - random for heavy, random in pairs]))
        shares = listed([f"{100 * row['share']:.0f}" for row in _by_share(measured)])
        listing = ", ".join(f"{gap.value:.2f} ± {gap.error:.2f}" for gap in gaps)
        lines.append(
            f"Claim: masking {NAMES[which]} costs more than masking {NAMES[RANDOM]}. "
            f"At {shares} % log-perplexity is higher by {listing}: {verdict(gaps)}"
        )
    return "\n".join(lines)


def _by_share(measured: Measured) -> list[dict[str, Any]]:
    return sorted(rows(measured, "masked", which=RANDOM), key=lambda row: row["share"])


def bias_effects(measured: Measured | None = None) -> list[tuple[float, Effect, Effect]]:
    """By budget: how much more of the sum lies in the first quarter, and how much lower the loss by the mean is."""
    found = []
    for old in sorted(rows(measured or results(), "bias", score="sum"), key=lambda row: row["budget"]):
        (new,) = rows(measured or results(), "bias", score="mean", budget=old["budget"])
        early = [a - b for a, b in zip(old["first_quarter"], new["first_quarter"], strict=True)]
        lower = [a - b for a, b in zip(old["losses"], new["losses"], strict=True)]
        found.append((old["budget"], of_samples(early), of_samples(lower)))
    return found


def bias(measured: Measured | None = None) -> Figure:
    """Where the heavy hitters of a prompt lie, by the sum and by the mean, and what the mean changes."""
    measured = measured or results()
    fig, (where, what) = figure(2, width=4.6, height=3.4)
    for index, score in enumerate(("sum", "mean")):
        table = sorted(rows(measured, "bias", score=score), key=lambda row: row["budget"])
        effects = [of_samples(row["first_quarter"]) for row in table]
        at, errors = [100 * effect.value for effect in effects], [100 * ERRORS * effect.error for effect in effects]
        shares = [100 * row["budget"] for row in table]
        where.errorbar(shares, at, yerr=errors, capsize=3, label=f"by the {score}", **line_style(index))
    where.axhline(25, color="black", linewidth=0.8, linestyle=":", label="an even share")
    where.set_ylim(0, 100)
    where.legend(frameon=False, fontsize=9)
    found = bias_effects(measured)
    lower = [effect for _, _, effect in found]
    errors = [ERRORS * effect.error for effect in lower]
    what.errorbar(
        [100 * share for share, *_ in found], [e.value for e in lower], yerr=errors, capsize=3, **line_style(2)
    )
    what.axhline(0, color="black", linewidth=0.8, linestyle=":")
    more = ", ".join(f"{100 * early.value:.0f}" for _, early, _ in found)
    label(
        where, f"The sum keeps more old tokens,\nby {more} points", "kept of the prompt (%)", "in the first quarter (%)"
    )
    told = f"The mean is better: {verdict(lower)}".replace(" (", "\n(")
    label(what, told, "kept of the prompt (%)", "log-perplexity lower by")
    return fig
