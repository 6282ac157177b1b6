"""The drawings of lesson 09: weights in memory, missing keys, the predictor, and the bytes that a token reads."""

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_lib.lessons.common.style import COLOURS, figure, label

PALE, SAND = "#e3e7ec", "#f6e7c4"
ARROW = {"arrowstyle": "->", "linewidth": 1.4, "color": COLOURS[0], "shrinkA": 0, "shrinkB": 0}

WIDTH, NEURONS, KEY_VALUE, BLOCKS, TOKENS, HEAD = 576, 1536, 192, 30, 49_152, 64  # of SmolLM2-135M
RANK = 64  # of a predictor

Number = float | int
Point = tuple[Number, Number]


def blank(axes: Axes, x: Point, y: Point) -> Axes:
    """Remove frame and grid and set the limits."""
    axes.axis("off")
    axes.set(xlim=x, ylim=y)
    return axes


def box(axes: Axes, corner: Point, size: Point, text: str = "", fill: str = "white", fontsize: Number = 11) -> None:
    """Draw a rounded box from its lower left corner with a text in its middle, white on dark."""
    (left, low), (width, height) = corner, size
    axes.add_patch(
        FancyBboxPatch(
            corner, width, height, boxstyle="round,pad=0,rounding_size=0.08", facecolor=fill, edgecolor=COLOURS[0]
        )
    )
    ink = "white" if fill == COLOURS[0] else "black"
    axes.text(left + width / 2, low + height / 2, text, ha="center", va="center", fontsize=fontsize, color=ink)


def cell(axes: Axes, corner: Point, size: Point, fill: str, text: str = "", **look: object) -> None:
    """Draw a rectangle with a thin edge."""
    (left, low), (width, height) = corner, size
    axes.add_patch(
        Rectangle(corner, width, height, facecolor=fill, **({"edgecolor": COLOURS[0], "linewidth": 0.6} | look))
    )
    if text:
        ink = "white" if fill == COLOURS[0] else "black"
        axes.text(left + width / 2, low + height / 2, text, ha="center", va="center", fontsize=10.5, color=ink)


def arrow(axes: Axes, start: Point, end: Point, **look: object) -> None:
    """Draw an arrow between two points."""
    axes.annotate("", end, start, arrowprops=ARROW | look, zorder=1)


DRAWN_WIDTH, DRAWN_NEURONS = 6, 10
CHOSEN = (1, 4, 5, 8)


def pieces(entries: list[int]) -> int:
    """Count the contiguous pieces of memory that these addresses form."""
    return 1 + sum(later != place + 1 for place, later in pairwise(sorted(entries)))


def neuron_major() -> Figure:
    """Draw up (F, D), down (D, F) and down transposed (F, D), row by row in memory; the chosen neurons are dark."""
    width, n_neurons = DRAWN_WIDTH, DRAWN_NEURONS
    fig, (axes,) = figure(width=10.0, height=4.2)
    blank(axes, (-1.2, 33.5), (-2.4, n_neurons + 2.3))
    in_rows = [neuron * width + channel for neuron in CHOSEN for channel in range(width)]
    in_columns = [channel * n_neurons + neuron for neuron in CHOSEN for channel in range(width)]
    shown = (
        ("gate, up: one row per neuron", 0.0, n_neurons, width, in_rows),
        ("down: one column per neuron", 11.5, width, n_neurons, in_columns),
        ("down, transposed: one row", 26.0, n_neurons, width, in_rows),
    )
    for name, left, n_rows, n_columns, dark in shown:
        for place in range(n_rows * n_columns):
            row, column = divmod(place, n_columns)
            low = n_neurons - 1 - row - (n_neurons - n_rows) / 2
            cell(axes, (left + column, low), (1, 1), COLOURS[0] if place in dark else PALE)
        axes.text(left + n_columns / 2, n_neurons + 0.6, name, ha="center", fontsize=11)
        axes.text(left + n_columns / 2, -1.3, f"{pieces(dark)} pieces of memory", ha="center", fontsize=11)
    arrow(axes, (22.3, n_neurons / 2), (25.4, n_neurons / 2))
    axes.text(23.8, n_neurons / 2 + 0.4, "once", ha="center", fontsize=10.5)
    title = (
        f"{len(CHOSEN)} of {n_neurons} neurons: {pieces(in_rows)} pieces of memory where neurons are rows, "
        f"{pieces(in_columns)} where they are columns"
    )
    axes.set_title(title, loc="left", fontsize=12)
    return fig


CHOSEN_HEADS = ((0, 1), (0, 2), (0, 1), (1, 2), (0, 2), (1, 2))  # which of three heads each of six tokens chose
REQUESTED = 2  # one of the heads that the newest token chose


def missing_key() -> Figure:
    """Draw three heads and six tokens: keys and values where a head was chosen, and a stored input where not."""
    fig, (axes,) = figure(width=9.6, height=4.3)
    n_tokens = len(CHOSEN_HEADS)
    blank(axes, (-2.6, 14.4), (-2.3, 4.4))
    for token, heads in enumerate(CHOSEN_HEADS):
        axes.text(2 * token + 0.9, 3.75, f"token {token}", ha="center", fontsize=10.5)
        for head in range(3):
            fill, text = (COLOURS[0], "k, v") if head in heads else ("white", "x")
            cell(axes, (2 * token, 2.4 - 1.15 * head), (1.8, 0.95), fill, text)
    for head in range(3):
        axes.text(-0.3, 2.85 - 1.15 * head, f"head {head}", ha="right", va="center", fontsize=11)
    recomputed = missing(REQUESTED)
    for token in recomputed:
        arrow(axes, (2 * token + 0.9, 0.05), (2 * token + 0.9, -1.0), linestyle="--")
        cell(axes, (2 * token - 0.05, -1.95), (1.9, 0.9), SAND, f"k, v at {token}")
    newest = n_tokens - 1
    axes.text(2 * newest + 2.0, 0.57, "attends here", va="center", fontsize=11)
    cell(axes, (2 * newest - 0.12, -0.02), (2.04, 1.19), "none", edgecolor=COLOURS[1], linewidth=2.4)
    axes.set_title(
        f"Token {newest} chooses head {REQUESTED}: {len(recomputed)} of {newest} keys are computed from x, at their "
        f"positions (x: {WIDTH} numbers, k and v: {2 * HEAD})",
        loc="left",
        fontsize=11.5,
    )
    return fig


def missing(head: int) -> list[int]:
    """The tokens before the newest for which this head was not chosen."""
    return [token for token, heads in enumerate(CHOSEN_HEADS[:-1]) if head not in heads]


SCALE = 1 / 250
CHOSEN_ROWS = (0.06, 0.21, 0.29, 0.52, 0.63, 0.86, 0.93)  # as fractions of the height


def predictor() -> Figure:
    """Draw the two small matrices next to the three large ones, to scale, and the rows that they choose."""
    fig, (axes,) = figure(width=9.6, height=4.2)
    blank(axes, (-2.0, 17.2), (-1.6, 8.6))
    tall, wide, thin = NEURONS * SCALE, WIDTH * SCALE, RANK * SCALE
    box(axes, (-1.8, 3.0), (1.1, 0.9), "x", fontsize=13)
    cell(axes, (1.0, 3.0), (wide, thin), COLOURS[1])
    axes.text(1.0 + wide / 2, 3.6, f"A: {RANK} × {WIDTH}", ha="center", fontsize=10.5)
    cell(axes, (4.8, 0.0), (thin, tall), COLOURS[1])
    axes.text(4.9, tall + 0.3, f"B: {NEURONS} × {RANK}", ha="center", fontsize=10.5)
    box(axes, (6.0, 2.65), (1.9, 1.0), "top k", SAND)
    for start, end in (((-0.6, 3.3), (0.9, 3.13)), ((1.05 + wide, 3.13), (4.7, 3.13)), ((5.15, 3.13), (5.9, 3.13))):
        arrow(axes, start, end)
    for place, name in enumerate(("gate", "up", "down, transposed")):
        left = 9.2 + place * (wide + 0.35)
        cell(axes, (left, 0.0), (wide, tall), PALE)
        for row in CHOSEN_ROWS:
            cell(axes, (left, row * tall), (wide, 0.09), COLOURS[0], linewidth=0)
        axes.text(left + wide / 2, tall + 0.3, name, ha="center", fontsize=10.5)
    for row in CHOSEN_ROWS:
        arrow(axes, (7.95, 3.15), (9.15, row * tall + 0.05), linewidth=0.8)
    axes.annotate(
        "", (9.2, 7.6), (-1.25, 4.0), arrowprops={"arrowstyle": "->", "connectionstyle": "angle,angleA=90,angleB=0"}
    )
    axes.text(2.5, 7.8, "the same x, for the chosen rows only", fontsize=10.5)
    fraction = RANK * (WIDTH + NEURONS) / (3 * WIDTH * NEURONS)
    axes.set_title(
        f"To scale: a predictor of rank {RANK} has {100 * fraction:.1f} % of the MLP's weights", loc="left", fontsize=12
    )
    return fig


# (where the predictor reads, what it chooses): places on the stream and parts, block k first.
VARIANTS = {
    "Figure 2": (("x, before attention k", "MLP k"), ("x', before MLP k", "heads k + 1")),
    "section 4.3": (("x, before attention k", "heads k + 1"), ("x, before attention k", "MLP k + 1")),
    "authors' code": (("x, before attention k", "heads k + 1"), ("x', before MLP k", "MLP k + 1")),
}
PLACES = {"x, before attention k": 0.6, "x', before MLP k": 4.6}
PARTS = {"heads k": 1.5, "MLP k": 5.5, "heads k + 1": 9.5, "MLP k + 1": 13.5}


def lookahead() -> Figure:
    """Draw two blocks on the residual stream, and where three versions of the method read it."""
    fig, (axes,) = figure(width=10.4, height=4.3)
    blank(axes, (-0.6, 19.0), (-2.9, 6.2))
    arrow(axes, (-0.4, 0), (18.8, 0), linewidth=2.2)
    axes.text(18.7, 0.2, "residual stream", ha="right", fontsize=10.5)
    for name, left in PARTS.items():
        box(axes, (left, -2.4), (2.2, 1.1), name, PALE, fontsize=11.5)
        arrow(axes, (left - 0.2, 0), (left + 0.2, -1.25), linewidth=0.9)
        arrow(axes, (left + 2.0, -1.25), (left + 2.4, -0.05), linewidth=0.9)
    for index, reads in enumerate(VARIANTS.values()):
        for number, (place, part) in enumerate(reads):
            start, end = PLACES[place] + 0.12 * index, PARTS[part] + 0.75 + 0.35 * index
            _draw_reading(axes, start, end, 1.1 + index * 1.7 + 0.75 * number, index)
    handles = [
        Line2D([], [], color=COLOURS[i], linestyle=("-", "--", "-.")[i], label=name) for i, name in enumerate(VARIANTS)
    ]
    axes.legend(handles=handles, frameon=False, fontsize=10.5, loc="upper left", bbox_to_anchor=(0.0, 1.03), ncols=3)
    early = [parts_between(place, part) for reads in VARIANTS.values() for place, part in reads]
    axes.set_title(
        f"Three versions of one method: {sum(n >= 2 for n in early)} of {len(early)} choices are made a whole block "
        "or more before they are needed",
        loc="left",
        fontsize=12,
    )
    return fig


def parts_between(place: str, part: str) -> int:
    """Count the parts (an attention or an MLP) that write to the stream between the reading and the use."""
    parts, position = list(PARTS), {"x, before attention k": 0, "x', before MLP k": 1}
    return parts.index(part) - position[place]


def _draw_reading(axes: Axes, start: float, end: float, height: float, index: int) -> None:
    look = {"color": COLOURS[index], "linestyle": ("-", "--", "-.")[index], "linewidth": 1.6}
    axes.plot((start, start, end), (0, height, height), **look)
    axes.plot(start, 0, "o", color=COLOURS[index], markersize=5)
    arrow(axes, (end, height), (end, -1.25), **look)


DENSITIES = (1.0, 0.5, 0.2, 0.1, 0.0)
SIZES = {
    "attention": BLOCKS * (2 * WIDTH * WIDTH + 2 * WIDTH * KEY_VALUE),
    "MLP": BLOCKS * 3 * WIDTH * NEURONS,
    "predictor": BLOCKS * RANK * (WIDTH + NEURONS),
    "LM head": WIDTH * TOKENS,
}


def weights_read(density: float) -> dict[str, float]:
    """The weights of each part that one token reads at this density; a dense model has no predictor."""
    scale = {"attention": 1.0, "MLP": density, "predictor": float(density < 1), "LM head": 1.0}
    return {name: size * scale[name] for name, size in SIZES.items()}


def token_bytes() -> Figure:
    """Draw as stacked bars what a decoded token reads at five densities, and how many times less that is."""
    _, (axes,) = figure(width=8.8, height=4.0)
    dense = sum(weights_read(1.0).values())
    colours = (COLOURS[4], COLOURS[0], COLOURS[1], PALE)
    for place, density in enumerate(DENSITIES):
        low = 0.0
        for (name, size), colour in zip(weights_read(density).items(), colours, strict=True):
            look = {"color": colour, "edgecolor": "black", "hatch": "//" if name == "predictor" else ""}
            axes.bar(place, size / dense, 0.62, low, label="" if place else name, **look)
            low += size / dense
        axes.text(place, low + 0.02, f"{1 / low:.2f} ×", ha="center", fontsize=11)
    axes.set_ylim(0, 1.12)
    axes.set_xticks(range(len(DENSITIES)), [f"{100 * density:g} %" for density in DENSITIES])
    axes.legend(frameon=False, fontsize=10.5, loc="upper right", ncols=2)
    fraction, limit = SIZES["MLP"] / dense, dense / sum(weights_read(0.0).values())
    title = f"MLPs are {100 * fraction:.0f} % of what a token of SmolLM2 reads: the speedup is at most {limit:.2f}"
    return label(axes, title, "density of neurons", "weights read, fraction of dense").figure


WINDOW, SCORED = 2560, 512  # tokens; of TEAL's evaluation


def exact_keys() -> float:
    """The mean fraction of the keys that a scored token reads and that were computed without sparsity."""
    first = WINDOW - SCORED
    fractions = [min(WINDOW // 2, position + 1) / (position + 1) for position in range(first, WINDOW)]
    return sum(fractions) / len(fractions)


def half_window() -> Figure:
    """Draw a window of TEAL's evaluation: where it is dense, where it is sparse, and which tokens are scored."""
    fig, (axes,) = figure(width=9.2, height=2.4)
    blank(axes, (-0.05 * WINDOW, 1.02 * WINDOW), (-1.6, 2.4))
    for name, start, stop, fill in (
        ("dense, whatever the setting", 0, WINDOW // 2, PALE),
        ("sparse", WINDOW // 2, WINDOW, SAND),
    ):
        cell(axes, (start, 0), (stop - start, 1.2), fill, name)
    cell(axes, (WINDOW - SCORED, -0.12), (SCORED, 1.44), "none", edgecolor=COLOURS[1], linewidth=2.4)
    axes.text(WINDOW - SCORED / 2, -0.7, f"scored: {SCORED} tokens", ha="center", fontsize=11)
    for at in (0, WINDOW // 2, WINDOW):
        axes.text(at, 1.5, f"{at:,}", ha="center", fontsize=10)
    title = f"Scored tokens are sparse; {100 * exact_keys():.0f} % of the keys that they read are exact"
    axes.set_title(title, loc="left", fontsize=12)
    return fig
