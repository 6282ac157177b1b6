"""What follows from the measured tables: shares of five parts, pairs that hurt each other, the order, the front.

Every verdict is one of an effect and its paired error; the samples are windows.
"""

from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.compose.front import Point, front
from course_lib.compose.shares import Subset, as_values, interaction, shapley
from course_lib.lessons.capstone.recipes import FIVE
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.measure.paired import mean_and_error


def values_of(result: Measured, domain: str) -> dict[Subset, Float[Tensor, "n"]]:
    """The losses of each subset's windows."""
    return as_values({frozenset(row["parts"]): row[domain] for row in rows(result, "subsets")})


def shares(result: Measured, domain: str) -> dict[str, tuple[float, float]]:
    """What each part costs in nats a token, the mean over all orders of adding it (Shapley), and its error."""
    return {name: mean_and_error(each) for name, each in shapley(values_of(result, domain), FIVE).items()}


def alone(result: Measured, domain: str) -> dict[str, tuple[float, float]]:
    """What each part costs without the others."""
    values = values_of(result, domain)
    return {name: mean_and_error(values[frozenset({name})] - values[frozenset()]) for name in FIVE}


def hurt(result: Measured, domain: str) -> dict[tuple[str, str], Effect]:
    """Of each pair, by how much both together cost more than their costs alone add up to."""
    values = values_of(result, domain)
    return {pair: of_samples(interaction(values, FIVE, *pair)) for pair in combinations(FIVE, 2)}


def better(result: Measured, domain: str, one: str, other: str) -> Effect:
    """By how much one order loses less than another."""
    (first,), (second,) = (rows(result, "orders", order=name) for name in (one, other))
    return of_samples(torch.tensor(second[domain]).double() - torch.tensor(first[domain]).double())


def best(result: Measured, domain: str, read: bool = False) -> list[Point]:
    """The recipes of the grid that none beats: by bytes held, weights and cache together, or by bytes read a token."""
    return front(
        [
            Point(
                name=row["name"],
                cost=row["read"] if read else row["stored"] + row["cache"],
                losses=tuple(row[domain]),
            )
            for row in rows(result, "grid")
        ]
    )
