"""Drawings of what a model reads behind a prompt, who sees whom, and what it should say at each place.

Dimension key: B texts, T tokens, P vectors of the prompt, N = P + T places.
"""

import torch
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.compress.steps.inputs import NOT_SCORED, targets, with_prompt

PALE, SAND = "#e3e7ec", COLOURS[3]  # tell prompt and text apart in greyscale as well
WORDS = ("The", "river", "runs", "to", "the", "sea")
PROMPT = 3
LOOK = {"arrowstyle": "->", "linewidth": 1.6, "color": COLOURS[1]}

Number = float | int


def title_picture() -> Figure:
    """Vectors before a text; the slope of the loss goes back through a frozen model to the vectors alone."""
    fig, (axes,) = figure(width=6.6, height=3.2)
    n_places = PROMPT + len(WORDS)
    _blank(axes, (-0.2, n_places + 0.2), (-0.9, 4.2))
    _row(axes, 0, [f"$e_{i + 1}$" for i in range(PROMPT)] + list(WORDS), [SAND] * PROMPT + [PALE] * len(WORDS))
    _cell(axes, (0, 2), n_places - 0.08, COLOURS[0], "compressed and frozen model", height=1.0)
    axes.annotate("", (PROMPT / 2, 0.95), (PROMPT / 2, 1.95), arrowprops=LOOK)
    axes.annotate("", (PROMPT / 2, 3.05), (PROMPT / 2, 3.9), arrowprops=LOOK)
    axes.text(PROMPT / 2 + 0.15, 3.5, "slope of the loss", va="center", fontsize=11, color=COLOURS[1])
    axes.text(PROMPT / 2, -0.5, "learned", ha="center", fontsize=11)
    return fig


def idea() -> Figure:
    """The title picture under a sentence that says what it shows."""
    fig = title_picture()
    fig.axes[0].set_title(
        "The slope passes through every weight and moves the vectors before the text alone", loc="left", fontsize=11
    )
    return fig


def batch(n_left: int = 2) -> tuple[Bool[Tensor, "B N"], list[list[int]]]:
    """Of two texts, one filled up on the left: what is seen, and the position of each place."""
    real = torch.ones(2, len(WORDS), dtype=torch.bool)
    real[1, :n_left] = False
    _, seen, positions = with_prompt(torch.zeros(PROMPT, 1), torch.zeros(2, len(WORDS), 1), real)
    return seen, positions.tolist()


def positions_and_mask() -> Figure:
    """The positions of two texts behind one prompt, and whom each place of the second sees."""
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.4)
    seen, positions = batch()
    n_places = seen.shape[1]
    _blank(left, (-0.2, n_places), (-0.6, 3.4))
    for low, row, sees in zip((1.8, 0.2), positions, seen.tolist(), strict=True):
        texts = [str(position) if real else "–" for position, real in zip(row, sees, strict=True)]
        fills = [SAND if place < PROMPT else PALE if real else "white" for place, real in enumerate(sees)]
        _row(left, low, texts, fills)
    said = ", ".join(str(row[-1]) for row in positions)
    left.set_title(f"Last tokens at positions {said}; –: padding", loc="left", fontsize=11)
    allowed = (seen[1] & torch.ones(n_places, n_places, dtype=torch.bool).tril()).tolist()
    _blank(right, (-0.2, n_places), (-0.2, n_places))
    for place, row in enumerate(allowed):
        fills = [COLOURS[0] if sees else "white" for sees in row]
        _row(right, n_places - 1 - place, [""] * n_places, fills)
    most = sum(allowed[-1])
    right.set_title(f"The second text's last token sees {most} of {n_places} places", loc="left", fontsize=11)
    return fig


def labelled() -> list[int]:
    """The label of each place, as the number of a word; NOT_SCORED where there is none."""
    ids = torch.arange(len(WORDS))[None]
    return targets(ids, torch.ones_like(ids, dtype=torch.bool), PROMPT)[0].tolist()


def labels() -> Figure:
    """What stands at each place, and below it what the model should say there."""
    fig, (axes,) = figure(width=9.4, height=2.6)
    wanted = labelled()
    n_places = len(wanted)
    _blank(axes, (-1.3, n_places), (-0.2, 2.6))
    reads = [f"$e_{i + 1}$" for i in range(PROMPT)] + list(WORDS)
    says = ["–" if label == NOT_SCORED else WORDS[label] for label in wanted]
    _row(axes, 1.5, reads, [SAND] * PROMPT + [PALE] * len(WORDS))
    _row(axes, 0.1, says, ["white" if label == NOT_SCORED else PALE for label in wanted])
    for low, name in ((1.95, "reads"), (0.55, "label")):
        axes.text(-0.15, low, name, ha="right", va="center", fontsize=11)
    scored = sum(label != NOT_SCORED for label in wanted)
    title = f"{scored} of {n_places} places have a label; the first word's place is the prompt's last vector"
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def _blank(axes: Axes, x: tuple[Number, Number], y: tuple[Number, Number]) -> None:
    axes.axis("off")
    axes.set(xlim=x, ylim=y)


def _row(axes: Axes, low: Number, texts: list[str], fills: list[str]) -> None:
    """Cells of width 1 from left to right."""
    for place, (text, fill) in enumerate(zip(texts, fills, strict=True)):
        _cell(axes, (place, low), 0.92, fill, text)


def _cell(axes: Axes, corner: tuple[Number, Number], width: Number, fill: str, text: str, height: Number = 0.9) -> None:
    axes.add_patch(Rectangle(corner, width, height, facecolor=fill, edgecolor=COLOURS[0], linewidth=0.7))
    ink = "white" if fill == COLOURS[0] else "black"
    at = (corner[0] + width / 2, corner[1] + height / 2)
    axes.text(*at, text, ha="center", va="center", fontsize=11, color=ink)
