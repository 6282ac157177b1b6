"""What follows from the measured tables: shares of five parts, pairs that hurt each other, the order, the front.

Every verdict is one of an effect and its paired error; the samples are windows.
"""

from collections.abc import Sequence
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.compose.front import Point, dominates, front
from course_lib.compose.shares import Subset, as_values, interaction, shapley
from course_lib.lessons.capstone.found import cost
from course_lib.lessons.capstone.recipes import FIVE
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples


def values_of(result: Measured, domain: str) -> dict[Subset, Float[Tensor, "n"]]:
    """The losses of each subset's windows."""
    return as_values({frozenset(row["parts"]): row[domain] for row in rows(result, "subsets")})


def shares(result: Measured, domain: str) -> dict[str, Effect]:
    """What each part costs in nats a token, the mean over all orders of adding it (Shapley)."""
    return {name: of_samples(each) for name, each in shapley(values_of(result, domain), FIVE).items()}


def alone(result: Measured, domain: str) -> dict[str, Effect]:
    """What each part costs without the others."""
    values = values_of(result, domain)
    return {name: of_samples(values[frozenset({name})] - values[frozenset()]) for name in FIVE}


def on_top(result: Measured, domain: str) -> dict[str, Effect]:
    """What each part costs when all the others are there."""
    values, whole = values_of(result, domain), frozenset(FIVE)
    return {name: of_samples(values[whole] - values[whole - {name}]) for name in FIVE}


def dearer(result: Measured, domain: str) -> dict[str, Effect]:
    """By how much each part costs more on top of the others than alone."""
    values, whole, none = values_of(result, domain), frozenset(FIVE), frozenset()
    return {
        name: of_samples(values[whole] - values[whole - {name}] - values[frozenset({name})] + values[none])
        for name in FIVE
    }


def hurt(result: Measured, domain: str) -> dict[tuple[str, str], Effect]:
    """Of each pair, by how much both together cost more than their costs alone add up to."""
    values = values_of(result, domain)
    return {pair: of_samples(interaction(values, FIVE, *pair)) for pair in combinations(FIVE, 2)}


def better(result: Measured, domain: str, one: str, other: str) -> Effect:
    """By how much one order loses less than another."""
    (first,), (second,) = (rows(result, "orders", order=name) for name in (one, other))
    return of_samples(torch.tensor(second[domain]).double() - torch.tensor(first[domain]).double())


def points(recipes: Sequence[Row], domain: str, read: bool = False) -> list[Point]:
    """Recipes by bytes held, weights and cache together, or by bytes read a token."""
    return [Point(name=row["name"], cost=cost(row, read), losses=tuple(row[domain])) for row in recipes]


def best(recipes: Sequence[Row], domain: str, read: bool = False) -> list[Point]:
    """Those that none beats, the cheapest first."""
    return front(points(recipes, domain, read))


def beaten_by(mine: Row, recipes: Sequence[Row], domain: str, read: bool = False) -> list[str]:
    """Which recipes beat one, judged on the windows that it has read, the first of theirs."""
    n = len(mine[domain])
    (own,) = points([mine], domain, read)
    others = [Point(name=each.name, cost=each.cost, losses=each.losses[:n]) for each in points(recipes, domain, read)]
    return [other.name for other in others if dominates(other, own)]
