"""Compute the numbers for the charts that templates/charts.html draws."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from course_lib.grading.report.text import number

_STEPS = (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000)
_MOST_BARS = 20
_TICK = 28  # least distance between two numbers below the bars, in units of the drawing


@dataclass(frozen=True)
class Histogram:
    """The number of submissions by points; every bar is `step` points wide."""

    heights: list[int]
    step: float
    of: float | int

    @property
    def in_words(self) -> str:
        """Describe the histogram for people who cannot see it."""
        edges = [number(min(index * self.step, self.of)) for index in range(len(self.heights) + 1)]
        return ", ".join(f"{edges[i]} to {edges[i + 1]}: {n}" for i, n in enumerate(self.heights) if n)

    def place(self, points: float | int) -> float:
        """Return the position of a score, in bars from the left. The last bar may cover fewer points."""
        index = min(int(points / self.step + 1e-9), len(self.heights) - 1)
        low, high = index * self.step, min((index + 1) * self.step, self.of)
        return index + (points - low) / (high - low) if high > low else 0.0


def histogram(totals: Sequence[float | int], of: float | int) -> Histogram:
    """Make the histogram of the totals of a class, out of `of` points."""
    return Histogram(bars(totals, of), bar_width(of), of)


def bar_width(of: float | int) -> float:
    """Return the width of a bar of the histogram, in points: a round number that gives at most 20 bars."""
    return float(next((step for step in _STEPS if of / step <= _MOST_BARS), of / _MOST_BARS))


def bars(totals: Sequence[float | int], of: float | int) -> list[int]:
    """Count the totals in each bar. A bar includes its lower end; the last one its upper end too."""
    width = bar_width(of)
    heights = [0] * max(math.ceil(of / width - 1e-9), 1)
    for total in totals:
        heights[min(max(int(total / width + 1e-9), 0), len(heights) - 1)] += 1
    return heights


def tick_every(pitch: float, n_bars: int) -> int:
    """Return the number of bars per tick label, for bars that are `pitch` apart in the drawing."""
    return next((step for step in (1, 2, 5, 10) if step * pitch >= _TICK), n_bars)


def segments(sizes: Iterable[float | int]) -> list[tuple[float, float]]:
    """Return the start and width of each segment of a stacked bar, in percent."""
    sizes = list(sizes)
    whole, left, parts = sum(sizes) or 1, 0.0, []
    for size in sizes:
        parts.append((left, 100 * size / whole))
        left += 100 * size / whole
    return parts
