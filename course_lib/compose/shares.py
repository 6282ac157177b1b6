"""The contribution of each part of a recipe: Shapley values over all subsets, and the interaction of two parts.

Dimension key: n windows.
"""

from collections.abc import Mapping
from itertools import combinations
from math import factorial

import torch
from jaxtyping import Float
from torch import Tensor

Subset = frozenset[str]


def subsets(names: tuple[str, ...]) -> list[Subset]:
    """Return all 2^n subsets, the smaller ones first."""
    return [frozenset(chosen) for size in range(len(names) + 1) for chosen in combinations(names, size)]


def shapley(values: Mapping[Subset, Float[Tensor, "n"]], names: tuple[str, ...]) -> dict[str, Float[Tensor, "n"]]:
    """φ_i = Σ_S |S|! (m − |S| − 1)! / m! · (v(S ∪ i) − v(S)) over the subsets S without i: the mean over all orders.

    Shapley, A value for n-person games, 1953. We compute it per window, so the contributions are paired samples; in
    each window they sum to v(all) − v(none).

    Raises:
        ValueError: a subset is missing.
    """
    _check(values, names)
    m = len(names)
    found = {}
    for name in names:
        others = tuple(other for other in names if other != name)
        found[name] = sum(
            factorial(len(s)) * factorial(m - len(s) - 1) / factorial(m) * (values[s | {name}] - values[s])
            for s in subsets(others)
        )
    return found


def interaction(
    values: Mapping[Subset, Float[Tensor, "n"]], names: tuple[str, ...], one: str, other: str
) -> Float[Tensor, "n"]:
    """v({i, j}) − v({i}) − v({j}) + v(∅): if above 0, two parts cost more together than the sum of their costs."""
    _check(values, names)
    none = frozenset()
    return values[none | {one, other}] - values[none | {one}] - values[none | {other}] + values[none]


def _check(values: Mapping[Subset, Tensor], names: tuple[str, ...]) -> None:
    if missing := [subset for subset in subsets(names) if subset not in values]:
        raise ValueError(
            f"got values of {len(values)} subsets, without {'+'.join(sorted(missing[0])) or 'the empty one'}; expected "
            f"all {2 ** len(names)} of {', '.join(names)}. Finish the measurement first."
        )


def as_values(losses: Mapping[Subset, list[float]]) -> dict[Subset, Float[Tensor, "n"]]:
    """Return the losses of windows as tensors."""
    return {subset: torch.tensor(row, dtype=torch.float64) for subset, row in losses.items()}
