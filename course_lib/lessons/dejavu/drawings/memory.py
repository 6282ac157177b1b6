"""Drawings of memory: how the weights of a neuron lie, and what a head's cache holds of tokens that passed it by.

Dimension key: D width, F neurons.
"""

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.dejavu.drawings.parts import PALE, SAND, arrow, blank, cell

D, F = 6, 10
CHOSEN = (1, 4, 5, 8)
# Which of three heads each of six tokens chose.
CHOSEN_HEADS = ((0, 1), (0, 2), (0, 1), (1, 2), (0, 2), (1, 2))
ASKED = 2  # of the heads that the newest token chose
WIDTH, HEAD = 576, 64  # of SmolLM2-135M


def pieces(entries: list[int]) -> int:
    """How many stretches of memory these places are, in the order in which they are stored."""
    return 1 + sum(later != place + 1 for place, later in pairwise(sorted(entries)))


def neuron_major() -> Figure:
    """Up (F, D), down (D, F) and down turned (F, D), row after row in memory; the chosen neurons dark."""
    fig, (axes,) = figure(width=10.0, height=4.2)
    blank(axes, (-1.2, 33.5), (-2.4, F + 2.3))
    rows = [neuron * D + channel for neuron in CHOSEN for channel in range(D)]
    columns = [channel * F + neuron for neuron in CHOSEN for channel in range(D)]
    shown = (
        ("gate, up: a neuron is a row", 0.0, F, D, rows),
        ("down: a neuron is a column", 11.5, D, F, columns),
        ("down, turned: a row again", 26.0, F, D, rows),
    )
    for name, left, n_rows, n_columns, dark in shown:
        for place in range(n_rows * n_columns):
            row, column = divmod(place, n_columns)
            low = F - 1 - row - (F - n_rows) / 2
            cell(axes, (left + column, low), (1, 1), COLOURS[0] if place in dark else PALE)
        axes.text(left + n_columns / 2, F + 0.6, name, ha="center", fontsize=11)
        axes.text(left + n_columns / 2, -1.3, f"{pieces(dark)} pieces of memory", ha="center", fontsize=11)
    arrow(axes, (22.3, F / 2), (25.4, F / 2))
    axes.text(23.8, F / 2 + 0.4, "once", ha="center", fontsize=10.5)
    title = (
        f"{len(CHOSEN)} of {F} neurons: {pieces(rows)} pieces to read where neurons are rows, "
        f"{pieces(columns)} where they are columns"
    )
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def missing_key() -> Figure:
    """Three heads, six tokens: keys and values where a head was chosen, and one x for the heads that were not."""
    fig, (axes,) = figure(width=9.6, height=4.3)
    n_tokens = len(CHOSEN_HEADS)
    blank(axes, (-2.6, 14.4), (-2.3, 4.4))
    for token, heads in enumerate(CHOSEN_HEADS):
        axes.text(2 * token + 0.9, 3.75, f"token {token}", ha="center", fontsize=10.5)
        for head in range(3):
            here = head in heads
            cell(
                axes,
                (2 * token, 2.4 - 1.15 * head),
                (1.8, 0.95),
                COLOURS[0] if here else "white",
                "k, v" if here else "x",
            )
    for head in range(3):
        axes.text(-0.3, 2.85 - 1.15 * head, f"head {head}", ha="right", va="center", fontsize=11)
    made = missing(ASKED)
    for token in made:
        arrow(axes, (2 * token + 0.9, 0.05), (2 * token + 0.9, -1.0), linestyle="--")
        cell(axes, (2 * token - 0.05, -1.95), (1.9, 0.9), SAND, f"k, v at {token}")
    _newest(axes, n_tokens - 1)
    axes.set_title(
        f"Token {n_tokens - 1} chooses head {ASKED}: {len(made)} of {n_tokens - 1} keys are made from x, at their "
        f"positions (x: {WIDTH} numbers, k and v: {2 * HEAD})",
        loc="left",
        fontsize=11.5,
    )
    return fig


def missing(head: int) -> list[int]:
    """The tokens before the newest at which this head was not chosen."""
    return [token for token, heads in enumerate(CHOSEN_HEADS[:-1]) if head not in heads]


def _newest(axes: Axes, token: int) -> None:
    axes.text(2 * token + 2.0, 0.57, "asks here", va="center", fontsize=11)
    cell(axes, (2 * token - 0.12, -0.02), (2.04, 1.19), "none", edgecolor=COLOURS[1], linewidth=2.4)
