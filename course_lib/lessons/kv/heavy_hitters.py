"""Figures and verdicts on heavy hitters, from heavy.json, which `course reproduce heavy` measured."""

import math
from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import load_measured, origin, rows
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.table import Table, percent, plus_minus
from course_lib.lessons.common.verdicts import ERRORS, Effect, of_samples
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import (
    HEAVIEST,
    RANDOM,
    SPARED,
    SUFFICE,
    Measured,
    above_full,
    by_budget,
    suffices,
    sum_minus_mean,
)

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
    five = suffices(measured)
    title = f"{100 * SUFFICE:.0f} % of the tokens: {math.exp(above_full(five).value):.2f} times the perplexity;\n"
    title += f"{percent(fmean(five['same']))} of the next tokens the same, n = {len(five['losses'])} texts"
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
    """The claim that 5 % of the tokens are enough, chosen anew for each query."""
    return str(claims.FIVE_PER_CENT.judge(measured or results()))


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
    return report((claims.MASKED, claims.MASKED_BUT_FIRST), measured or results())


def heads_verdict(measured: Measured | None = None) -> str:
    """Whether the heads of a layer differ, judged on other texts than those that chose the heads."""
    measured = measured or results()
    return f"{len(measured['tables']['heads'])} texts\n{claims.HEADS_DIFFER.judge(measured)}"


def bias(measured: Measured | None = None) -> Figure:
    """Where the heavy hitters of a prompt lie, by the sum and by the mean, and what the mean changes."""
    measured = measured or results()
    fig, (where, what) = figure(2, width=4.6, height=3.4)
    for index, score in enumerate(("sum", "mean")):
        table = by_budget(measured, "bias", score=score)
        effects = [of_samples(row["first_quarter"]) for row in table]
        at, errors = [100 * effect.value for effect in effects], [100 * ERRORS * effect.error for effect in effects]
        shares = [100 * row["budget"] for row in table]
        where.errorbar(shares, at, yerr=errors, capsize=3, label=f"by the {score}", **line_style(index))
    where.axhline(25, color="black", linewidth=0.8, linestyle=":", label="an even share")
    where.set_ylim(0, 100)
    where.legend(frameon=False, fontsize=9)
    early, lower = (list(sum_minus_mean(measured, column).values()) for column in ("first_quarter", "losses"))
    kept = [100 * row["budget"] for row in by_budget(measured, "bias", score="sum")]
    errors = [ERRORS * effect.error for effect in lower]
    what.errorbar(kept, [effect.value for effect in lower], yerr=errors, capsize=3, **line_style(2))
    what.axhline(0, color="black", linewidth=0.8, linestyle=":")
    more = ", ".join(f"{100 * effect.value:.0f}" for effect in early)
    label(
        where, f"The sum keeps more old tokens,\nby {more} points", "kept of the prompt (%)", "in the first quarter (%)"
    )
    words = claims.MEANS_READ_BETTER.judge(measured).words.replace(" (", "\n(")
    label(what, f"The mean is better: {words}", "kept of the prompt (%)", "log-perplexity lower by")
    return fig
