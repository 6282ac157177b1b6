"""The figures and verdicts of lesson 08 that read the measured.json of lesson 07, made by `course reproduce kv`."""

import math
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import reach
from course_lib.lessons.common.style import figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured, load_published, origin, rows
from course_lib.lessons.common.verdicts import of_independent, verdict
from course_lib.lessons.sinks import tables
from course_lib.measure.paired import mean_and_error

NAMES = ("0 sinks", "1 sink", "2 sinks", "4 sinks", "4 newlines")
EVERYTHING = "everything kept"
FLAT = 1.25  # the second half of a stream may take that many times as long a token: clocks are not quiet


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
    less, error = one_instead_of_four(measured)
    back = _way_back(here[0], here[1], here[4])
    label(
        right,
        f"Here: one sink is {back:.0f} % of the way from 0 to 4,\nand {100 * less:.2f} ± {100 * error:.2f} % above 4",
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


def one_instead_of_four(measured: dict[str, Any]) -> tuple[float, float]:
    """How much more log-perplexity one sink costs than four, and its standard error over blocks of the same text."""
    one, four = by_block(measured, NAMES[1], NAMES[3])
    return mean_and_error(one - four)


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
    """The claims on a long stream: it does not collapse, in constant memory, at a constant time a token."""
    return "\n".join(_claims(measured or results()))


def _claims(measured: dict[str, Any]) -> list[str]:
    """Block by block of the same text, of as much of it as the caches of a claim have read."""
    window, full, one = by_block(measured, "0 sinks", EVERYTHING, "1 sink")
    newlines, sinks, none = by_block(measured, "4 newlines", "4 sinks", "0 sinks")
    return [*tables.collapse_claims(window, full, one), tables.newline_claim(newlines, sinks, none), _flat(measured)]


def by_block(measured: dict[str, Any], *names: str) -> list[Float[Tensor, "n"]]:
    """The log-perplexities of the blocks that the caches of these names have all read, once those are full."""
    found = [rows(measured, "streaming", name=name)[0] for name in names]
    key = "compared_losses" if EVERYTHING in names else "losses"
    if all(key in row for row in found):
        return [torch.tensor(row[key], dtype=torch.float64) for row in found]
    curves = [rows(measured, "streaming_curves", name=name)[0]["perplexity"][1:] for name in names]
    shortest = min(len(curve) for curve in curves)
    return [torch.tensor(curve[:shortest], dtype=torch.float64).log() for curve in curves]


def _flat(measured: dict[str, Any], name: str = "4 sinks") -> str:
    """Whether a token of the second half of a stream takes as long as one of the first, from the parts of each."""
    (row,) = rows(measured, "streaming_curves", name=name)
    times = torch.tensor(row["milliseconds_per_token"], dtype=torch.float64).log()
    first, second = (mean_and_error(half) for half in (times[: len(times) // 2], times[len(times) // 2 :]))
    longer = of_independent(second, first, -math.log(FLAT))  # the first half, FLAT times as long, above the second
    ratio = math.exp(second[0] - first[0])
    return (
        f"Claim: the time of a token stays what it is, within {FLAT} times: second half over first {ratio:.2f} "
        f"± {100 * longer.error:.0f} %: {verdict(longer)}"
    )


def provenance() -> str:
    """What was run, where and when."""
    measured = results()
    sizes = measured["sizes"]
    amounts = f"one text of {sizes['stream']:,} tokens, {sizes['budget']} slots, {sizes['chunk']} tokens a pass"
    return origin(measured, amounts)
