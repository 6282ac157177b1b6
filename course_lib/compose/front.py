"""The models to which no other is preferable: the Pareto set of bytes and loss, and the area that it covers.

A loss is known up to its error. Two models that read the same windows differ in each of them, and the mean of these
differences has an error of its own: a model is beaten only where it loses by more than two of these.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from course_lib.measure.paired import mean_and_error

ERRORS = 2.0  # standard errors by which a difference has to exceed 0


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model.

    Args:
        cost: bytes stored, or read per token; less is better.
        losses: of the windows, the same and in the same order for all points; less is better.
    """

    name: str
    cost: int | float
    losses: tuple[float, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if self.cost != self.cost or any(loss != loss for loss in self.losses):
            raise ValueError(
                f"got NaN in the cost or the losses of {self.name}; expected numbers, which have an order."
            )

    @property
    def loss(self) -> float:
        """The mean."""
        return sum(self.losses) / len(self.losses)


def ratio(point: Point, other: Point) -> tuple[float, float]:
    """The log of the ratio of two perplexities, the mean difference of the losses, and its standard error.

    Raises:
        ValueError: losses of other windows.
    """
    if len(point.losses) != len(other.losses) or not point.losses:
        raise ValueError(
            f"got {len(point.losses)} and {len(other.losses)} losses of {point.name} and {other.name}; expected those "
            "of the same windows, at least one."
        )
    return mean_and_error([a - b for a, b in zip(point.losses, other.losses, strict=True)])


def dominates(point: Point, other: Point) -> bool:
    """Whether it costs no more and is better by more than two errors; or costs less and loses exactly as much."""
    if point.cost > other.cost:
        return False
    difference, error = ratio(other, point)
    same = difference == 0 and error == 0
    return difference > ERRORS * error or (same and point.cost < other.cost)


def front(points: Sequence[Point]) -> list[Point]:
    """Select the points that none dominates, from the cheapest to the most expensive; equal points are all kept."""
    ordered = sorted(points, key=lambda point: (point.cost, point.loss))
    return [point for point in ordered if not any(dominates(other, point) for other in points)]


def hypervolume(points: Iterable[Point], cost: int | float, loss: int | float) -> float:
    """The area between a reference point and what the points, as measured, are better than: a sweep from the left.

    Args:
        cost, loss: of the reference; a point that is worse than it in either covers nothing.
    """
    area, best = 0.0, loss
    inside = [point for point in points if point.cost < cost and point.loss < loss]
    for point in sorted(inside, key=lambda point: (point.cost, point.loss)):
        if point.loss < best:
            # The area that it adds below the points to its left.
            area += (cost - point.cost) * (best - point.loss)
            best = point.loss
    return area
