"""The stored results of lesson 12: one row per recipe, what five parts cost, and which recipes no other beats.

All effects are paired: the samples are windows of text that every model has read.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.compose.front import Point, dominates, front
from course_lib.compose.shares import Subset, as_values, interaction, shapley
from course_lib.lessons.capstone.experiments.recipes import FIVE, five, grid, text_of
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples

DENSE = "dense"
DOMAINS = {"wikipedia": "Wikipedia", "boolq": "BoolQ"}  # and their names in tables
PARTS = {
    "prune": "SparseGPT 50 %",
    "round": "3 bits",
    "cache": "H2O 20 %, 4 bits",
    "neurons": "CATS 50 %",
    "prompt": "prompt",
}
ZEROS_FIRST = {  # by method: pruned and then rounded, and the other order
    "Wanda": ("Wanda, then GPTQ", "GPTQ, then Wanda"),
    "SparseGPT": ("SparseGPT, then GPTQ", "GPTQ, then SparseGPT"),
}
ONE_SWEEP = ("both in one sweep", "SparseGPT, then GPTQ")
NAMES = {text_of(parts): name for name, parts in grid()}  # of the grid's recipes


# Loading.


def parts_results() -> Measured:
    """Load what `course reproduce capstone` measured: all subsets of five parts, and the orders of two."""
    return load_measured("capstone")


def grid_results() -> Measured:
    """Load what `course reproduce capstone_front` measured: a grid of recipes."""
    return load_measured("capstone", "capstone_front")


def rows_of(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """Return the rows of a table; none where it was not measured."""
    tables = measured.get("tables", measured)
    return rows(measured, table, **wanted) if table in tables else []


def subset_name(chosen: Subset) -> str:
    """Return the grid's name of a subset of the five parts, or the names of its parts."""
    if known := NAMES.get(text_of(five(chosen))):
        return known
    weights = chosen & {"prune", "round"}
    others = [PARTS[name] for name in FIVE if name in chosen - weights]
    return " + ".join([subset_name(weights), *others] if weights else others)


def recipes(measured: Measured | None = None, grid_measured: Measured | None = None) -> list[Row]:
    """Return every recipe once, with its name, bytes and losses: the 32 subsets, then further ones of the grid.

    Raises:
        ValueError: one of the two results was measured on other windows than the other.
    """
    measured, grid_measured = measured or parts_results(), grid_measured or grid_results()
    for key in ("windows", "length"):
        read = [each["sizes"][key] for each in (measured, grid_measured) if "sizes" in each]
        if len(set(read)) > 1:
            raise ValueError(f"got results with {key} = {read[0]} and {read[1]}; expected the same windows for both.")
    subsets = [row | {"name": subset_name(frozenset(row["parts"]))} for row in rows_of(measured, "subsets")]
    known = {row["name"] for row in subsets}
    return subsets + [row for row in rows_of(grid_measured, "grid") if row["name"] not in known]


def find(recipes: Sequence[Row], name: str) -> Row | None:
    """Return the recipe of that name; None where it was not measured."""
    return next((row for row in recipes if row["name"] == name), None)


def n_bytes(row: Row, read: bool = False) -> int:
    """Return the memory footprint, weights and cache together, or the bytes read per token."""
    return row["read"] if read else row["stored"] + row["cache"]


def loss_increase(row: Row, other: Row, domain: str) -> Effect:
    """Estimate by how many nats per token the loss is above that of the other, on the windows that both have read."""
    n = min(len(row[domain]), len(other[domain]))
    return of_samples([a - b for a, b in zip(row[domain][:n], other[domain][:n], strict=True)])


def larger_increase(row: Row, other: Row) -> Effect:
    """Return the loss increase in the domain in which it is larger."""
    return max((loss_increase(row, other, domain) for domain in DOMAINS), key=lambda effect: effect.value)


# Five parts.


def values_of(result: Measured, domain: str) -> dict[Subset, Float[Tensor, "n"]]:
    """Return the losses of each subset's windows."""
    return as_values({frozenset(row["parts"]): row[domain] for row in rows(result, "subsets")})


def shapley_values(result: Measured, domain: str) -> dict[str, Effect]:
    """Estimate the loss increase of each part in the mean over all orders of adding it."""
    return {name: of_samples(each) for name, each in shapley(values_of(result, domain), FIVE).items()}


def alone(result: Measured, domain: str) -> dict[str, Effect]:
    """Estimate the loss increase of each part without the others."""
    values = values_of(result, domain)
    return {name: of_samples(values[frozenset({name})] - values[frozenset()]) for name in FIVE}


def added_last(result: Measured, domain: str) -> dict[str, Effect]:
    """Estimate the loss increase of each part when all the others are there already."""
    values, whole = values_of(result, domain), frozenset(FIVE)
    return {name: of_samples(values[whole] - values[whole - {name}]) for name in FIVE}


def last_minus_alone(result: Measured, domain: str) -> dict[str, Effect]:
    """Estimate by how much more each part costs when it is added last than alone."""
    values, whole, none = values_of(result, domain), frozenset(FIVE), frozenset()
    return {
        name: of_samples(values[whole] - values[whole - {name}] - values[frozenset({name})] + values[none])
        for name in FIVE
    }


def interactions(result: Measured, domain: str) -> dict[tuple[str, str], Effect]:
    """Estimate by how much each pair costs more together than the sum of the two costs alone."""
    values = values_of(result, domain)
    return {pair: of_samples(interaction(values, FIVE, *pair)) for pair in combinations(FIVE, 2)}


def order_gain(result: Measured, domain: str, first: str, second: str) -> Effect:
    """Estimate by how much the first order has a lower loss than the second."""
    (ours,), (theirs,) = (rows(result, "orders", order=name) for name in (first, second))
    return of_samples(torch.tensor(theirs[domain]).double() - torch.tensor(ours[domain]).double())


def order_gains(result: Measured, domain: str) -> dict[str, Effect]:
    """Estimate how much lower the loss is with zeros first, by method, and in one sweep; what was measured of these."""
    known = {row["order"] for row in rows_of(result, "orders")}
    pairs = {f"{method}: zeros first": pair for method, pair in ZEROS_FIRST.items()}
    pairs |= {"SparseGPT: one sweep": ONE_SWEEP}
    return {name: order_gain(result, domain, *pair) for name, pair in pairs.items() if set(pair) <= known}


# The Pareto front.


def points(recipes: Sequence[Row], domain: str, read: bool = False) -> list[Point]:
    """Return recipes by memory footprint or by bytes read per token."""
    return [Point(name=row["name"], cost=n_bytes(row, read), losses=tuple(row[domain])) for row in recipes]


def pareto_set(recipes: Sequence[Row], domain: str, read: bool = False) -> list[Point]:
    """Return those that no other beats, the smallest first."""
    return front(points(recipes, domain, read))


def beaten_by(own: Row, recipes: Sequence[Row], domain: str, read: bool = False) -> list[str]:
    """Return the names of the recipes that beat one, judged on the windows that it has read, the first of theirs."""
    n = len(own[domain])
    (point,) = points([own], domain, read)
    others = [Point(name=each.name, cost=each.cost, losses=each.losses[:n]) for each in points(recipes, domain, read)]
    return [other.name for other in others if dominates(other, point)]


def within(recipes: Sequence[Row], held: float, read: float) -> list[Row]:
    """Return the recipes that keep to both fractions of the dense model's bytes, the lowest loss increase first."""
    dense = find(recipes, DENSE)
    fit = [
        row
        for row in recipes
        if n_bytes(row) <= held * n_bytes(dense) and n_bytes(row, True) <= read * n_bytes(dense, True)
    ]
    return sorted(fit, key=lambda row: larger_increase(row, dense).value)
