"""Names of points that are close together: each is placed where it covers no other text and stays inside the axes.

adjustText 1.4 leaves names on the markers and on each other in these figures, and takes longer.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

SIDES = ((7, -14, "left"), (7, 5, "left"), (-7, -14, "right"), (-7, 5, "right"))  # points, from best to worst
LINE, LETTER = 1.25, 0.62  # of the size of the type: height of a line and width of a letter
FURTHEST = 12  # lines that a name may move away
DOT = 3.0  # points: radius around a marker that a name stays out of
Spot = tuple[float | int, float | int]
Box = tuple[float, float, float, float]  # left, bottom, right, top in pixels


def name_points(
    axes: Axes,
    spots: Sequence[Spot],
    names: Sequence[str],
    size: float = 9.0,
    around: Sequence[Spot] = (),
    **look: Any,
) -> None:
    """Annotate each point; a name that had to move gets a line to its point. The axes must have their final limits.

    Args:
        around: further points that a name should not cover.
    """
    axes.figure.draw_without_rendering()
    taken = [_dot(axes, spot) for spot in (*spots, *around)]
    taken += [tuple(map(float, text.get_window_extent().extents)) for text in axes.texts]
    for spot, name in zip(spots, names, strict=True):
        places = [(dx, dy, side, 0) for dx, dy, side in SIDES]
        places += [
            (2 * dx, dy + (1 if dy > 0 else -1) * lines * LINE * size, side, lines)
            for lines in range(1, FURTHEST)
            for dx, dy, side in SIDES
        ]
        boxes = [(_box(axes, spot, name, size, place), place) for place in places]
        box, (dx, dy, side, moved) = next((each for each in boxes if _fits(axes, each[0], taken)), boxes[0])
        taken.append(box)
        arrow = {"arrowstyle": "-", "linewidth": 0.6, "color": look.get("color", "black")} if moved else None
        axes.annotate(
            name, spot, (dx, dy), textcoords="offset points", ha=side, fontsize=size, arrowprops=arrow, **look
        )


def _dot(axes: Axes, spot: Spot) -> Box:
    (x, y), radius = axes.transData.transform(spot), DOT * axes.figure.dpi / 72
    return x - radius, y - radius, x + radius, y + radius


def _box(axes: Axes, spot: Spot, name: str, size: float, place: tuple[float | int, float | int, str, int]) -> Box:
    """Estimate where the name would be from the number of its letters."""
    dx, dy, side, _ = place
    point = axes.figure.dpi / 72
    x, y = axes.transData.transform(spot)
    width = LETTER * size * len(name) * point
    left = x + dx * point - (width if side == "right" else 0)
    return left, y + dy * point, left + width, y + (dy + LINE * size) * point


def _fits(axes: Axes, box: Box, taken: Sequence[Box]) -> bool:
    frame = axes.bbox
    inside = frame.x0 <= box[0] and box[2] <= frame.x1 and frame.y0 <= box[1] and box[3] <= frame.y1
    return bool(inside) and not any(
        box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken
    )
