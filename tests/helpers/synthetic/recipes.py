"""A made-up class of the challenge of which the right order is known, to see whether the grader finds it.

All round the table and the weights alike, and differ in two things: the fewer neurons a token computes with, and the
fewer slots the cache keeps, the more should be lost. So of two recipes, one of which has no less of either, the order
is known; of the others nothing is.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from synthetic.classroom import SUBMISSIONS, TRUTH

from course_lib.grading import store

ON_4_BITS = {"bits": 4, "group": 32}


@dataclass(frozen=True)
class Known:
    """What a made-up recipe spares.

    Args:
        density: share of the neurons that a token computes with. budget: share of the tokens that the cache keeps.
    """

    density: float
    budget: float

    @property
    def recipe(self) -> dict[str, Any]:
        """As it is handed in."""
        return {
            "embedding": ON_4_BITS,
            "weights": ON_4_BITS | {"rounding": "nearest"},
            "neurons": {"selector": "CATS", "density": self.density},
            "cache": {"policy": "StreamingLLM", "budget": self.budget, "bits": 4, "residual": 16},
        }

    def covers(self, other: "Known") -> bool:
        """Whether it can lose no more than another: no less of either, and not the same."""
        return self != other and self.density >= other.density and self.budget >= other.budget


@dataclass(frozen=True)
class Order:
    """Pairs of recipes whose order is known: how many, and of these the ones graded against it, or alike."""

    pairs: int
    inverted: int
    alike: int


def a_class(densities: tuple[float, ...], budgets: tuple[float, ...], seed: int) -> dict[str, Known]:
    """Every density with every budget, under names that say nothing of the order."""
    known = [Known(*pair) for pair in product(densities, budgets)]
    numbers = random.Random(seed).sample(range(len(known)), len(known))
    return {f"student{number:02}": each for number, each in sorted(zip(numbers, known, strict=True), key=_first)}


def _first(pair: tuple[int, Known]) -> int:
    return pair[0]


def make(folder: Path, known: Mapping[str, Known]) -> None:
    """Write a class into folder/submissions for `course grade-challenge`, and what is known into folder/truth.json."""
    for student, each in known.items():
        store.write(folder / SUBMISSIONS / student / "recipe.json", json.dumps(each.recipe))
    store.write(folder / TRUTH, store.as_json({student: asdict(each) for student, each in known.items()}))


def order_found(folder: Path, out: Path) -> Order:
    """Of the class that `make` wrote into a folder, as `course grade-challenge --out` graded it."""
    known = json.loads((folder / TRUTH).read_text(encoding="utf-8"))
    rows = json.loads((out / "challenge.json").read_text(encoding="utf-8"))["rows"]
    return order({name: Known(**each) for name, each in known.items()}, {row["student"]: row["points"] for row in rows})


def order(known: Mapping[str, Known], points: Mapping[str, float]) -> Order:
    """Points of students held against what is known of their recipes.

    Raises:
        ValueError: a student of the class without points.
    """
    if missing := sorted(known.keys() - points.keys()):
        raise ValueError(f"got no points for {', '.join(missing)}; expected them for everybody. Grade the whole class.")
    gaps = [points[better] - points[worse] for better, worse in _pairs(known)]
    return Order(len(gaps), sum(gap < 0 for gap in gaps), sum(gap == 0 for gap in gaps))


def _pairs(known: Mapping[str, Known]) -> Iterator[tuple[str, str]]:
    """Of which the first can lose no more than the second."""
    for one, other in combinations(known, 2):
        if known[one].covers(known[other]):
            yield one, other
        elif known[other].covers(known[one]):
            yield other, one
