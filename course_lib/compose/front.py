"""The Pareto front of bytes and loss: the models that no other model dominates, and the area that they cover.

A measured loss has an error. Two models that read the same windows have a difference in each window, and we compute the
standard error of their mean: a model is only worse if its loss is higher by more than two of these errors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from course_lib.measure.paired import mean_and_error

ERRORS = 2.0  # standard errors by which a difference has to exceed 0


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model on the plane of cost and loss.

    Args:
        cost: bytes stored, or read per token; less is better.
        losses: by window, with the same windows in the same order for all points; less is better.
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
        """The mean loss."""
        return sum(self.losses) / len(self.losses)


def ratio(point: Point, other: Point) -> tuple[float, float]:
    """Return the log of the ratio of two perplexities (the mean difference of the losses) and its standard error.

    Raises:
        ValueError: losses of different windows.
    """
    if len(point.losses) != len(other.losses) or not point.losses:
        raise ValueError(
            f"got {len(point.losses)} and {len(other.losses)} losses of {point.name} and {other.name}; expected those "
            "of the same windows, at least one."
        )
    return mean_and_error([a - b for a, b in zip(point.losses, other.losses, strict=True)])


def dominates(point: Point, other: Point) -> bool:
    """Whether it costs no more and its loss is lower by more than two errors; or it costs less for the same loss."""
    if point.cost > other.cost:
        return False
    difference, error = ratio(other, point)
    same = difference == 0 and error == 0
    return difference > ERRORS * error or (same and point.cost < other.cost)


def front(points: Sequence[Point]) -> list[Point]:
    """Select the points that are not dominated, from the cheapest to the most expensive; equal points are all kept."""
    ordered = sorted(points, key=lambda point: (point.cost, point.loss))
    return [point for point in ordered if not any(dominates(other, point) for other in points)]


def hypervolume(points: Iterable[Point], cost: int | float, loss: int | float) -> float:
    """Compute the area between a reference point and the points that dominate it as measured: a sweep from the left.

    Args:
        cost, loss: of the reference; a point that is worse in either of them adds no area.
    """
    area, best = 0.0, loss
    inside = [point for point in points if point.cost < cost and point.loss < loss]
    for point in sorted(inside, key=lambda point: (point.cost, point.loss)):
        if point.loss < best:
            # The area that it adds below the points to its left.
            area += (cost - point.cost) * (best - point.loss)
            best = point.loss
    return area
