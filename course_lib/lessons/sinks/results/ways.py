"""Figures and verdicts of four_ways.json: four ways to read on, and chats in a small cache.

Made by `course reproduce four_ways`.

Dimension key: C compared predictions.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.dots import ERROR_BARS, reach
from course_lib.lessons.common.results import load_measured, load_published, origin, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.sinks import claims
from course_lib.lessons.sinks.estimates import blocks, losses, repeats
from course_lib.lessons.sinks.experiments import four_ways
from course_lib.lessons.sinks.experiments.dialogue import CACHES, EVERYTHING, NEWEST, SINKS
from course_lib.lessons.sinks.experiments.four_ways import DENSE, STREAMING, WAYS, WINDOW
from course_lib.measure.paired import mean_and_error


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("sinks", "four_ways")


def provenance(measured: dict[str, Any]) -> str:
    """What was run, where and when."""
    sizes = measured["sizes"]
    amounts = f"one text of {sizes['tokens']:,} tokens, a window of {sizes['budget']}, {sizes['compared']} predictions"
    return origin(measured, amounts + " compared")


def ways_verdict(measured: dict[str, Any]) -> str:
    """The claims of figure 1, in pairs: by block, and by prediction where a window is read again."""
    return report(claims.WAYS_CLAIMS, measured)


def along_the_text(measured: dict[str, Any] | None = None) -> Figure:
    """Perplexity along the text, and at the compared predictions with two standard errors."""
    measured = measured or results()
    fig, (left, right) = figure(2, width=4.9, height=3.7)
    for index, way in enumerate(WAYS):
        (row,) = rows(measured, "ways", way=way)
        middle = [row["block"] * (i + 0.5) / 1000 for i in range(len(row["blocks"]))]
        if middle:
            look = line_style(index) | {"marker": ""}
            left.plot(middle, [math.exp(loss) for loss in row["blocks"]], label=way, **look)
        if way != STREAMING:
            mean, error = mean_and_error(losses(measured, way) - losses(measured, STREAMING))
            below, above = reach(math.exp(mean), error * math.exp(mean))
            right.errorbar(math.exp(mean), len(WAYS) - index, xerr=[[below], [above]], capsize=3, **line_style(index))
            at = (math.exp(mean) + above, len(WAYS) - index)
            right.annotate(f"{math.exp(mean):.2f}", at, (4, 0), textcoords="offset points", va="center", fontsize=9)
    trained = rows(measured, "ways", way=DENSE)[0]["trained"]
    left.axvline(trained / 1000, color="black", linestyle=":", linewidth=1)
    left.annotate(f"{trained:,} trained ", (trained / 1000, 0.02), xycoords=("data", "axes fraction"), ha="right")
    log_scale(left, "y")
    low, high = left.get_ylim()
    left.set_ylim(low, high * (high / low) ** 0.3)  # room for the legend above the lines
    left.legend(framealpha=1, edgecolor="none", fontsize=9, loc="upper left", ncols=len(WAYS))
    times = [
        (blocks(measured, way, trained) - blocks(measured, STREAMING, trained)).mean().exp() for way in (DENSE, WINDOW)
    ]
    label(left, f"Beyond {trained:,} tokens: dense {times[0]:.2f} times,\nwindow {times[1]:.2f} times StreamingLLM")
    left.set_xlabel("thousand tokens read")
    left.set_ylabel(f"perplexity, {rows(measured, 'ways', way=DENSE)[0]['block']} tokens a point")
    right.axvline(1, color=COLOURS[4], linewidth=1)
    right.set_yticks(range(len(WAYS), 1, -1), WAYS[:-1])
    right.set_ylim(1.4, len(WAYS) + 0.6)
    log_scale(right, "x")
    right.margins(x=0.2)
    n = len(losses(measured, DENSE))
    title = f"The same {n} predictions beyond the\ntrained length, beside StreamingLLM"
    label(right, title, f"times the perplexity (log; {ERROR_BARS})")
    return fig


def beside_the_paper(measured: dict[str, Any] | None = None) -> Figure:
    """What the paper reports of Llama-2-13B, and the same four here; each on its own axis."""
    measured = measured or results()
    fig, axes = figure(2, width=4.9, height=2.9)
    published = {row["way"]: (row["perplexity"], 0.0) for row in load_published("sinks")["tables"]["ways"]}
    here = {}
    for way in WAYS:
        mean, error = mean_and_error(losses(measured, way))
        here[way] = (math.exp(mean), math.exp(mean) * error)
    for panel, values in zip(axes, (published, here), strict=True):
        for index, way in enumerate(WAYS):
            value, error = values[way]
            below, above = reach(value, error)
            panel.errorbar(value, len(WAYS) - index, xerr=[[below], [above]], capsize=3, **line_style(index))
            said = f"{value:.2f}" if value < 10 else f"{value:.0f}"
            at = (value + above, len(WAYS) - index)
            panel.annotate(said, at, (5, 0), textcoords="offset points", va="center", fontsize=9)
        panel.set_yticks(range(len(WAYS), 0, -1), WAYS)
        panel.set_ylim(0.4, len(WAYS) + 0.6)
        log_scale(panel, "x")
        panel.margins(x=0.25)
    axes[0].xaxis.set_major_locator(LogLocator(subs=(1,)))
    axes[1].tick_params(axis="y", labelleft=False)
    label(axes[0], "Published: Llama-2-13B (errors not given)", "perplexity (log scale)")
    label(
        axes[1],
        f"Here: SmolLM2-135M, n = {len(losses(measured, DENSE))}",
        f"perplexity (log; {ERROR_BARS})",
    )
    return fig


def costs(n_read: Sequence[int], counted: Mapping[str, Sequence[float]], window: int) -> Figure:
    """FLOPs for one more token over the tokens that have been read."""
    fig, (axes,) = figure(width=7.2, height=3.4)
    for index, (name, values) in enumerate(counted.items()):
        axes.plot(n_read, [value / 1e9 for value in values], label=name, **line_style(index))
    log_scale(log_scale(axes, "x"), "y")
    axes.set_xticks(list(n_read), [f"{n:,}" for n in n_read], rotation=30, fontsize=8)
    axes.legend(frameon=False, fontsize=9)
    last = {name: values[-1] / counted["streaming"][-1] for name, values in counted.items()}
    title = f"After {n_read[-1]:,} tokens dense costs {last['dense']:.0f} times a step of the stream,\n"
    title += f"a window of {window} read afresh {last['read afresh']:.0f} times"
    label(axes, title, "tokens read (log scale)", "GFLOP for one more token")
    return fig


def chat_repeats(measured: dict[str, Any] | None = None) -> Figure:
    """How much of each answer goes round in circles, each chat a mark."""
    measured = measured or results()
    fig, (axes,) = figure(width=7.2, height=3.3)
    for index, cache in enumerate(CACHES):
        for number in (1, 2):
            values = [100 * value for value in repeats(measured, cache, number)]
            places = [index + 0.3 * (number - 1.5) + 0.02 * (i - len(values) / 2) for i in range(len(values))]
            look = {"marker": "o" if number == 1 else "s", "edgecolors": COLOURS[index], "s": 36}
            axes.scatter(places, values, facecolors=COLOURS[index] if number == 1 else "none", **look)
    axes.set_xticks(range(len(CACHES)), CACHES)
    axes.set_xlim(-0.6, len(CACHES) - 0.4)
    axes.set_ylim(-4, 104)
    second = {cache: 100 * fmean(repeats(measured, cache, 2)) for cache in CACHES}
    title = f"Of the second answers {second[NEWEST]:.0f} % are repetition without sinks,\n"
    label(axes, title + f"{second[SINKS]:.0f} % with four, {second[EVERYTHING]:.0f} % with everything kept")
    axes.set_ylabel("repeated runs of 3 words (%)\n(filled: first answer, open: second)")
    return fig


def chat_verdict(measured: dict[str, Any]) -> str:
    """The claim that a chat collapses without sinks, by the second answers to the same questions."""
    return report(claims.CHAT_CLAIMS, measured)


def chat(measured: dict[str, Any], index: int = 1, width: int = 96, most: int = 330) -> str:
    """The second answers to one question, as they were written in each cache."""
    lines = []
    for cache in CACHES:
        found = rows(measured, "chats", cache=cache, round=2)
        row = found[index]
        lines += [f"{cache}:", *textwrap.wrap(" ".join(row["text"].split())[:most], width, initial_indent="  ")]
    return "\n".join([f"> {row['question']}", *lines])


def chat_figure(measured: dict[str, Any] | None = None, index: int = 1) -> Figure:
    """The same as a picture, for a slide."""
    measured = measured or results()
    fig, (axes,) = figure(width=8.6, height=4.2)
    axes.axis("off")
    rounds = rows(measured, "chats", cache=NEWEST, round=2)
    text = chat(measured, index, width=84).replace("$", r"\$")
    axes.text(0, 1, text, va="top", family="monospace", fontsize=11, transform=axes.transAxes)
    axes.set_title(f"{rounds[index]['budget']} slots, the second answer of one chat of {len(rounds)}", loc="left")
    return fig


def slide_costs() -> Figure:
    """For the deck, with the library's own count."""
    sizes = four_ways.shape(loaded()[0])
    each = [four_ways.flops_a_token(*sizes, n, four_ways.SHOWN) for n in four_ways.N_READ]
    names = ("dense", "streaming", "read afresh")
    return costs(four_ways.N_READ, dict(zip(names, zip(*each, strict=True), strict=True)), four_ways.SHOWN)
