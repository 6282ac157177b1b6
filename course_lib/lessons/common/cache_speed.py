"""Figures and a table of `course bench kv` on a CPU, from its stored result: decoding steps, prompts and streams."""

import re
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.results import load_bench
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.table import Table

EVERYTHING = "nothing evicted"  # the side with the course's own cache and no eviction
Row = dict[str, Any]


def results() -> dict[str, Any]:
    """Load the stored measurement."""
    return load_bench("cpu_kv")


def _contests(measured: dict[str, Any], name: str) -> dict[tuple[int, ...], list[Row]]:
    """Return the rows of the contests whose names match, by shape (sequences, tokens)."""
    by_shape: dict[tuple[int, ...], list[Row]] = {}
    for row in measured["tables"]["sides"]:
        if re.fullmatch(name, row["contest"]):
            by_shape.setdefault(tuple(row["shape"]), []).append(row)
    return by_shape


def steps(measured: dict[str, Any] | None = None) -> Figure:
    """Plot the decoding speed of each cache relative to transformers' DynamicCache, one panel per batch size.

    The title counts the caches with 20 % of the tokens whose whole range of speeds (10 to 90 % of the repetitions) is
    above the range of the cache without eviction.
    """
    by_shape = _contests(measured or results(), r"\d+ steps of \d+ at \d+ tokens")
    fig, axes = figure(len(by_shape), width=5.0, height=4.2)
    for panel, ((n_sequences, n_tokens), rows) in zip(axes, by_shape.items(), strict=True):
        sides = [row for row in reversed(rows) if row["side"] != row["anchor"]]
        _bars(panel, sides)
        panel.set_yticks(range(len(sides)), [row["side"] for row in sides], fontsize=8)
        panel.tick_params(axis="y", labelleft=panel is axes[0])
        (everything,) = (row for row in sides if row["side"] == EVERYTHING)
        fifths = [row for row in sides if "20 %" in row["side"] and not _stock(row)]
        clear = sum(row["times_anchor_low"] > everything["times_anchor_high"] for row in fifths)
        title = f"{n_sequences} × {n_tokens} tokens: {EVERYTHING} {_times(everything):.2f} times;\n"
        title += f"clearly more with {clear} of {len(fifths)} that read 20 %"
        label(panel, title, "times as fast as transformers' DynamicCache")
    return fig


def _bars(axes: Axes, rows: list[Row]) -> None:
    """Draw one bar per side with its 10 to 90 % range; transformers' own caches are hatched."""
    times = [_times(row) for row in rows]
    below = [time - row["times_anchor_low"] for time, row in zip(times, rows, strict=True)]
    above = [row["times_anchor_high"] - time for time, row in zip(times, rows, strict=True)]
    style = {"color": COLOURS[4], "edgecolor": COLOURS[0], "hatch": ["//" if _stock(row) else "" for row in rows]}
    axes.barh(range(len(rows)), times, 0.7, xerr=[below, above], capsize=3, **style)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the numbers are unreadable on hatching
    for index, time in enumerate(times):  # at the left end of the bar, away from the error bars
        axes.annotate(f"{time:.2f}", (0, index), (4, 0), textcoords="offset points", va="center", fontsize=8, bbox=box)
    axes.axvline(1, color="black", linewidth=0.8)


def _stock(row: Row) -> bool:
    return row["side"].startswith(("DynamicCache", "StaticCache"))  # older results have no StaticCache


def _times(row: Row) -> float:
    return row["times_anchor"]


def streams(measured: dict[str, Any] | None = None) -> Figure:
    """Plot seconds per token of a stream against window size: one step with eviction, or recomputing the window."""
    by_shape = _contests(measured or results(), "a token of a stream")
    fig, (axes,) = figure(width=6.4)
    sides: dict[str, list[float]] = {}
    for rows in by_shape.values():
        for row in rows:
            sides.setdefault(row["side"], []).append(row["median_seconds"])
    windows = [shape[1] for shape in by_shape]
    for index, (name, seconds) in enumerate(sides.items()):
        axes.plot(windows, seconds, label=name, **line_style(index))
    log_scale(log_scale(axes, "x"), "y")
    axes.set_xticks(windows, [str(window) for window in windows])
    axes.legend(frameon=False)
    times = [rows[-1]["times_anchor"] for rows in by_shape.values()]
    title = f"A step is {times[0]:.1f} times as fast at {windows[0]} slots, {times[-1]:.0f} times at {windows[-1]}"
    label(axes, title, "slots (log scale)", "seconds per token (log scale)")
    return fig


def prompts(measured: dict[str, Any] | None = None) -> Table:
    """Tabulate the seconds per prompt with each cache, and their ratio to transformers' DynamicCache."""
    by_shape = _contests(measured or results(), "a prompt")
    names = [row["side"] for row in next(iter(by_shape.values()))]
    frame = [{"cache": name} for name in names]
    formats = {}
    for (_, n_tokens), rows in by_shape.items():
        seconds, times = f"{n_tokens} tokens: seconds", f"{n_tokens} tokens: times as long"
        formats[seconds, times] = "{:.2f} ({:.2f} ×)".format
        by_side = {row["side"]: row for row in rows}
        for row in frame:
            side = by_side[row["cache"]]
            row |= {seconds: side["median_seconds"], times: 1 / side["times_anchor"]}
    return Table(
        frame,
        caption="Time for one prompt",
        formats=formats,
        note="In brackets: how many times as long as with the DynamicCache of transformers.",
    )
