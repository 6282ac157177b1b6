"""Drawings for the deck of lesson 00 that measure nothing: patterns, phases, layers in time, the plan of the course."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.tables import percent
from course_lib.lessons.start.block import arrow
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Unstructured, sparsity_of

PATTERNS: dict[str, Pattern] = {
    "unstructured": Unstructured(0.5, per="layer"),
    "2:4": NofM(2, 4),
    "blocks of 4 × 4": Block(4, 4, 0.5),
    "columns": Columns(0.5),
}

# (what is left out, its lessons): number, title, and whether it is there.
PLAN: tuple[tuple[str, tuple[tuple[str, str, bool], ...]], ...] = (
    (
        "weights: fixed\nfor every input",
        (
            ("01", "patterns\nand formats", True),
            ("02", "OBD\nand OBS", True),
            ("03", "SparseGPT", True),
            ("04", "Wanda", True),
            ("05", "Minitron:\nwidth, depth", True),
        ),
    ),
    (
        "weights: chosen\nby the input",
        (("06", "mixtures\nof experts", True), ("09", "Deja Vu:\nneurons", True)),
    ),
    ("tokens in\nthe cache", (("07", "KV eviction", True), ("08", "attention\nsinks", True))),
    ("tokens of\nthe prompt", (("10", "compress,\nthen prompt", True), ("11", "sparse\nattention", True))),
    ("everything", (("00", "time and\nmemory", True), ("12", "capstone", True))),
)


def plan_of_the_course() -> Figure:
    """A row for each thing that can be left out: filled lessons are there, dashed ones are to come."""
    fig, (axes,) = figure(width=9.6, height=4.6)
    _blank(axes, (-0.1, 11.6), (-0.2, len(PLAN) + 0.35))
    for row, (what, lessons) in enumerate(PLAN):
        y = len(PLAN) - row - 0.5
        axes.text(0, y, what, va="center", fontsize=11)
        for column, (number, title, there) in enumerate(lessons):
            x = 2.25 + 1.87 * column
            look = {"facecolor": COLOURS[0] if there else "white", "linestyle": "-" if there else "--"}
            shape = {"boxstyle": "round,pad=0,rounding_size=0.08", "edgecolor": COLOURS[0]}
            axes.add_patch(FancyBboxPatch((x, y - 0.38), 1.72, 0.76, **shape, **look))
            ink = "white" if there else COLOURS[0]
            axes.text(x + 0.1, y, number, va="center", fontsize=12, weight="bold", color=ink)
            axes.text(x + 0.46, y, title, va="center", fontsize=9, color=ink)
    n_there = sum(there for _, lessons in PLAN for *_, there in lessons)
    n_all = sum(len(lessons) for _, lessons in PLAN)
    axes.set_title(f"{n_all} lessons by what is left out; {n_there} are there, the dashed ones are to come", loc="left")
    return fig


def four_patterns() -> Figure:
    """The largest weights of one random matrix that each pattern keeps."""
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    fig, axes = figure(n_columns=len(PATTERNS), width=2.45, height=2.9)
    norm, shares = weight.square().sum(), {}
    for panel, (name, pattern) in zip(axes, PATTERNS.items(), strict=True):
        keep = pattern.keep(weight.abs())
        shares[name] = (weight[keep].square().sum() / norm).item()
        panel.imshow(keep, cmap="Greys", vmin=0, vmax=1.3, interpolation="nearest")
        panel.grid(visible=False)
        panel.set(xticks=[], yticks=[])
        panel.set_title(name, fontsize=11)
        zeros = percent(sparsity_of(keep.float()))
        panel.set_xlabel(f"{zeros} zeros; {percent(shares[name])}\nof the squares stay", fontsize=10)
    best = max(shares, key=shares.get)
    fig.suptitle(f"Half of the same 256 random weights: {best} keeps the most of their squares", x=0.01, ha="left")
    return fig


def title_picture() -> Figure:
    """Four masks in a square: the ways to keep half of a matrix."""
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    fig, axes = figure(n_columns=2, n_rows=2, width=2.6, height=2.4)
    for panel, (name, pattern) in zip(axes, PATTERNS.items(), strict=True):
        panel.imshow(pattern.keep(weight.abs()), cmap="Blues", vmin=0, vmax=1.15, interpolation="nearest")
        panel.grid(visible=False)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.set_title(name, fontsize=12)
    return fig


def two_phases() -> Figure:
    """Prefill: all tokens of a prompt in one pass. Decode: a pass for every token of the answer."""
    fig, axes = figure(n_columns=2, width=5.4, height=3.6)
    prompt, answer = ("The", "capital", "of", "Italy", "is"), ("Rome", ",", "a", "city")
    _blank(axes[0], (-0.6, 5.2), (-1.0, 4.0))
    _stack(axes[0], -0.4, 4.9)
    for x, word in enumerate(prompt):
        axes[0].text(x, -0.55, word, ha="center", fontsize=11)
        arrow(axes[0], (x, -0.2), (x, 0.75))
    arrow(axes[0], (4, 2.25), (4, 3.1))
    axes[0].text(4, 3.3, answer[0], ha="center", fontsize=11, weight="bold")
    axes[0].set_title(f"Prefill: {len(prompt)} tokens, the weights are read once", loc="left", fontsize=11)
    _blank(axes[1], (-0.6, 6.2), (-1.0, 4.0))
    n_steps = len(answer) - 1
    for x in range(n_steps):
        place = 2.05 * x
        _stack(axes[1], place - 0.4, place + 1.1)
        axes[1].text(place + 0.35, -0.55, answer[x], ha="center", fontsize=11)
        arrow(axes[1], (place + 0.35, -0.2), (place + 0.35, 0.75))
        arrow(axes[1], (place + 0.35, 2.25), (place + 0.35, 3.1))
        axes[1].text(place + 0.35, 3.3, answer[x + 1], ha="center", fontsize=11, weight="bold")
    axes[1].set_title(f"Decode: {n_steps} tokens, the weights are read {n_steps} times", loc="left", fontsize=11)
    return fig


def _stack(axes: Axes, left: float | int, right: float | int) -> None:
    """The model as a box."""
    axes.add_patch(Rectangle((left, 0.75), right - left, 1.5, facecolor=COLOURS[0], edgecolor=COLOURS[0]))
    axes.text((left + right) / 2, 1.5, "all weights", ha="center", va="center", color="white", fontsize=10)


def _blank(axes: Axes, x: tuple[float | int, float | int], y: tuple[float | int, float | int]) -> None:
    axes.axis("off")
    axes.set(xlim=x, ylim=y)


def pass_by_hand() -> Figure:
    """Two layers on a machine of 100 GFLOP/s and 10 GB/s: one waits for arithmetic, the next for memory."""
    flops, n_bytes = (2e11, 2e10), (1e9, 1e10)
    computing, reading = [f / 1e11 for f in flops], [b / 1e10 for b in n_bytes]
    fig, (axes,) = figure(width=8.4, height=2.9)
    start = 0.0
    for index, (compute, read) in enumerate(zip(computing, reading, strict=True), 1):
        for place, (time, colour) in enumerate(((compute, COLOURS[0]), (read, COLOURS[4]))):
            axes.barh(place, time, left=start, color=colour, edgecolor="white")
            inside = time > 0.5
            x, align, ink = (time / 2, "center", "white") if inside else (time + 0.02, "left", "black")
            axes.text(start + x, place, f"{time:g} s", va="center", ha=align, color=ink, fontsize=11)
        axes.text(start + 0.02, -0.62, f"layer {index}", fontsize=10)
        start += max(compute, read)
        axes.axvline(start, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks([0, 1], ["arithmetic", "memory"])
    axes.set_ylim(1.5, -0.85)
    axes.set_xlim(0, start * 1.08)
    overlapping = max(sum(computing), sum(reading))
    title = f"Layer by layer {start:g} s; as one heap of work it would be {overlapping:g} s"
    label(axes, title, "time (s)")
    return fig


def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]], places: tuple[float | int, ...]) -> Figure:
    """Texts in columns that begin at these places from 0 to 1: what is computed goes onto a slide as a figure."""
    heights = [1 + max(text.count("\n") for text in row) for row in rows]
    fig, (axes,) = figure(width=10.4, height=0.75 + 0.27 * (1.5 + sum(heights) + 0.5 * len(rows)))
    total = sum(heights) + 0.5 * len(rows)
    _blank(axes, (0, 1), (0, total + 1.4))
    for place, text in zip(places, head, strict=True):
        axes.text(place, total + 0.5, text, fontsize=11.5, weight="bold", va="center")
    axes.axhline(total, color=COLOURS[0], linewidth=1.5)
    y = total
    for height, row in zip(heights, rows, strict=True):
        y -= height + 0.5
        for place, text in zip(places, row, strict=True):
            axes.text(place, y + (height + 0.5) / 2, text, fontsize=11, va="center", linespacing=1.25)
        axes.axhline(y, color=COLOURS[4], linewidth=0.6)
    axes.set_title(title, loc="left", fontsize=12)
    return fig
