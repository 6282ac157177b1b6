"""Read windows of text under a rule of sparse prefill, and record their losses and the rule's decisions.

Dimension key: n windows, c of them with the coverage of all queries, r with that of the last; L layers, H heads.
"""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.measure.perplexity import window_losses


@dataclass(frozen=True, eq=False)
class Reading:
    """Losses of n windows, and a rule's decisions in each; there are none for dense attention."""

    losses: list[float]
    density: Float[Tensor, "n L H"] | None = None
    query_aware: Float[Tensor, "n L H"] | None = None
    coverage: Float[Tensor, "c L H"] | None = None  # of the first c windows, all queries
    seen: Float[Tensor, "r L H"] | None = None  # of the others, the last block of queries

    def shares(self) -> Row:
        if self.density is None:
            return {"densities": [1.0] * len(self.losses), "coverage": 1.0, "seen": 1.0, "query_aware": 0.0}
        means = {"coverage": self.coverage, "seen": self.seen, "query_aware": self.query_aware}
        by_window = {"densities": [round(float(each.mean()), 4) for each in self.density]}
        return by_window | {name: round(float(values.mean()), 4) for name, values in means.items()}

    def by_head(self) -> list[Row]:
        """Return one row per layer."""
        parts = {"density": self.density, "query_aware": self.query_aware, "coverage": self.coverage}
        means = {
            name: [[round(x, 4) for x in row] for row in values.mean(0).tolist()] for name, values in parts.items()
        }
        return [{"layer": i} | {name: rows[i] for name, rows in means.items()} for i in range(self.density.shape[1])]


@cache
def read(length: int, n: int, covered: int, rule: SparsePrefill | None, seed: int) -> Reading:
    """Read n windows under a rule, each in a `with` block of its own; None is dense attention.

    The result is cached for rules that get the density of another rule.
    """
    windows = article_windows(n, length, seed)
    if rule is None:
        return Reading(window_losses(loaded()[0], windows, 1, progress=False).tolist())
    losses, watches = [], []
    for i, window in enumerate(windows):
        with prefilling(loaded()[0], rule, "all" if i < covered else "last") as watch:
            losses += window_losses(loaded()[0], window[None], progress=False).tolist()
        watches.append(watch)
    density, aware, coverage = (
        torch.stack([getattr(watch, name) for watch in watches]) for name in ("density", "query_aware", "coverage")
    )
    return Reading(losses, density, aware, coverage[:covered], coverage[covered:])
