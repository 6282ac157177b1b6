"""What the drawings of lesson 06 share: boxes, arrows, an empty page, and the eight probabilities of one token."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from course_lib.lessons.common.style import COLOURS

PALE = "#e3e7ec"
SAND = "#f6e7c4"
ARROW = {"arrowstyle": "->", "linewidth": 1.4, "color": COLOURS[0], "shrinkA": 0, "shrinkB": 0}
LOGITS = (0.2, 1.9, -0.5, 0.4, 1.2, -1.0, 0.1, -0.3)  # of one token, for eight experts

Number = float | int
Point = tuple[Number, Number]


def blank(axes: Axes, x: Point, y: Point) -> Axes:
    """No frame, no grid, these limits."""
    axes.axis("off")
    axes.set(xlim=x, ylim=y)
    return axes


def box(
    axes: Axes,
    corner: Point,
    size: Point,
    text: str = "",
    fill: str = "white",
    dashed: bool = False,
    fontsize: int = 11,
) -> None:
    """A rounded box, its lower left corner given, with a text in its middle: white on dark."""
    (left, low), (width, height) = corner, size
    look = {"facecolor": fill, "edgecolor": COLOURS[0], "linestyle": "--" if dashed else "-"}
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.08", **look))
    ink = "white" if fill == COLOURS[0] else "black"
    axes.text(left + width / 2, low + height / 2, text, ha="center", va="center", fontsize=fontsize, color=ink)


def arrow(axes: Axes, start: Point, end: Point, **look: object) -> None:
    """From one place to another."""
    axes.annotate("", end, start, arrowprops=ARROW | look, zorder=1)


def row(tokens: int) -> list[str]:
    """Names of tokens: a, b, c and so on."""
    return [chr(ord("a") + number) for number in range(tokens)]


def signed(value: Number) -> str:
    """Two digits, with a minus sign as long as a plus."""
    return f"{value:.2f}".replace("-", "−")
