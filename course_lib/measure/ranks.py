"""Kendall's rank correlation, with ties: do two measurements put the same things into the same order?"""

from collections.abc import Sequence
from itertools import combinations


def kendall(one: Sequence[int | float], other: Sequence[int | float]) -> float:
    """Kendall's τ_b: (pairs in the same order − pairs in reverse order) / √(pairs untied in one · untied in the other).

    Raises:
        ValueError: fewer than two values, rows of different length, NaN, or a row in which all values are equal.
    """
    if len(one) != len(other) or len(one) < 2:
        raise ValueError(f"got {len(one)} and {len(other)} values; expected as many of both, at least two.")
    if n_nan := sum(value != value for value in (*one, *other)):
        raise ValueError(f"got {n_nan} NaN among {len(one) + len(other)} values; expected numbers that have an order.")
    signs = [(_sign(a - b), _sign(c - d)) for (a, c), (b, d) in combinations(zip(one, other, strict=True), 2)]
    untied = [sum(pair[side] != 0 for pair in signs) for side in (0, 1)]
    if not all(untied):
        raise ValueError("got a row whose values are all the same; expected some order in both.")
    return sum(a * b for a, b in signs) / (untied[0] * untied[1]) ** 0.5


def _sign(difference: int | float) -> int:
    return (difference > 0) - (difference < 0)
