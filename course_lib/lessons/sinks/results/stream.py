"""The figures and verdicts of lesson 08 that read the measured.json of lesson 07, made by `course reproduce kv`."""

import math
from typing import Any

from matplotlib.figure import Figure

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.dots import reach
from course_lib.lessons.common.results import load_measured, load_published, origin, rows
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.sinks import claims
from course_lib.lessons.sinks.estimates import EVERYTHING, by_block, one_minus_four

NAMES = ("0 sinks", "1 sink", "2 sinks", "4 sinks", "4 newlines")


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("kv")


def by_sinks(measured: dict[str, Any] | None = None) -> Figure:
    """Perplexity with so many sinks among the slots: as published, and here with two standard errors."""
    measured = measured or results()
    fig, (left, right) = figure(2, width=4.9, height=3.2)
    published = {row["sinks"]: row["perplexity"] for row in load_published("sinks")["tables"]["sinks"]}
    left.plot(range(len(published)), list(published.values()), **line_style(1) | {"linestyle": "none"})
    for place, value in enumerate(published.values()):
        left.annotate(f"{value:,.2f}", (place, value), (0, 6), textcoords="offset points", ha="center", fontsize=9)
    left.set_xticks(range(len(published)), [f"{n}" for n in published])
    for place, name in enumerate(NAMES):
        (row,) = rows(measured, "streaming", name=name)
        below, above = reach(row["perplexity"], row["standard_error"])
        right.errorbar(place, row["perplexity"], yerr=[[below], [above]], capsize=3, **line_style(0))
        at = (place, row["perplexity"] + above)
        right.annotate(f"{row['perplexity']:.2f}", at, (0, 3), textcoords="offset points", ha="center", fontsize=9)
    right.set_xticks(range(len(NAMES)), [name.removesuffix(" sinks").removesuffix(" sink") for name in NAMES])
    for panel in (left, right):
        log_scale(panel, "y")
        panel.margins(x=0.12, y=0.2)
    back = _way_back(published[0], published[1], published[8])
    label(
        left,
        f"Published (Llama-2-7B): one sink is {back:.0f} % of\n"
        f"the way from 0 to 8, and {_more(published):.0f} % above 8",
    )
    here = {
        n: rows(measured, "streaming", name=name)[0]["perplexity"]
        for n, name in ((0, NAMES[0]), (1, NAMES[1]), (4, NAMES[3]))
    }
    more = one_minus_four(measured)
    above = f"{100 * more.value:.2f} ± {100 * more.error:.2f} % above 4"
    back = _way_back(here[0], here[1], here[4])
    label(
        right,
        f"Here: one sink is {back:.0f} % of the way from 0 to 4,\nand {above}",
    )
    for panel in (left, right):
        panel.set_xlabel("first tokens kept")
    left.set_ylabel("perplexity (log scale)")
    return fig


def _way_back(none: float, one: float, most: float) -> float:
    """What one sink does of what many do, in percent of the log-perplexity."""
    return 100 * math.log(none / one) / math.log(none / most)


def _more(published: dict[int, float]) -> float:
    """By how many percent perplexity with one sink is above that with the most."""
    return 100 * (published[1] / published[max(published)] - 1)


def compared(measured: dict[str, Any]) -> dict[str, float]:
    """The perplexity of the tokens that all caches have read, by name."""
    return {
        row["name"]: row["compared"] for name in (*NAMES, EVERYTHING) for row in rows(measured, "streaming", name=name)
    }


def long_stream(measured: dict[str, Any] | None = None) -> Figure:
    """Perplexity along the whole stream, and the time of a token in each part of it."""
    measured = measured or results()
    fig, (left, right) = figure(2, width=4.8, height=3.5)
    for index, name in enumerate(("0 sinks", "1 sink", "4 sinks")):
        (row,) = rows(measured, "streaming_curves", name=name)
        middle = [row["block"] * (i + 0.5) / 1000 for i in range(len(row["perplexity"]))]
        left.plot(middle, row["perplexity"], label=name, markersize=3, **line_style(index))
        times, length = row["milliseconds_per_token"], middle[-1]
        parts = [length * (i + 0.5) / len(times) for i in range(len(times))]
        right.plot(parts, times, label=name, markersize=4, **line_style(index))
    log_scale(left, "y")
    right.set_ylim(0, None)
    left.legend(frameon=False, fontsize=9)
    (row,) = rows(measured, "streaming", name="4 sinks")
    one, four = by_block(measured, "1 sink", "4 sinks")
    title = f"{row['n_tokens']:,} tokens in {row['peak_bytes'] / 1e6:.0f} MB:\n"
    title += f"1 sink has {(one - four).mean().exp():.3f} times the perplexity of 4"
    label(left, title, "thousand tokens read")
    left.set_ylabel(f"perplexity, {measured['tables']['streaming_curves'][0]['block']} tokens a point")
    title = f"Slowest part over fastest: {unevenness(measured):.2f} with 4 sinks"
    label(right, title, "thousand tokens read", "milliseconds a token")
    return fig


def unevenness(measured: dict[str, Any], name: str = "4 sinks") -> float:
    """The slowest part of the stream over the fastest, by time a token."""
    (row,) = rows(measured, "streaming_curves", name=name)
    return max(row["milliseconds_per_token"]) / min(row["milliseconds_per_token"])


def gaps(measured: dict[str, Any] | None = None) -> Figure:
    """Perplexity with four sinks that are so many positions away, by how positions are counted."""
    measured = measured or results()
    fig, (axes,) = figure(width=7.2)
    worst = {}
    for index, positions in enumerate(("original", "rolling")):
        points = sorted(rows(measured, "gaps", positions=positions), key=lambda row: row["gap"])
        axes.plot(
            range(len(points)),
            [row["perplexity"] for row in points],
            label=f"{positions} positions",
            **line_style(index),
        )
        axes.set_xticks(range(len(points)), [f"{row['gap']:,}" for row in points])
        worst[positions] = max(row["perplexity"] for row in points)
    log_scale(axes, "y")
    axes.legend(frameon=False)
    title = (
        f"At worst {worst['original']:.0f} with positions of the text, {worst['rolling']:.1f} with places in the cache"
    )
    label(axes, title, "positions between the sinks and the rest of the text", "perplexity")
    return fig


def stream_verdict(measured: dict[str, Any] | None = None) -> str:
    """The claims on a long stream: it does not collapse, in constant memory, at a constant time per token."""
    return report(claims.STREAM_CLAIMS, measured or results())


def provenance() -> str:
    """What was run, where and when."""
    measured = results()
    sizes = measured["sizes"]
    amounts = f"one text of {sizes['stream']:,} tokens, {sizes['budget']} slots, {sizes['chunk']} tokens a pass"
    return origin(measured, amounts)
