"""What the committed measurements of lesson 09 say: their rows, and the effects on which verdicts stand.

Models are compared window by window on the windows that both have read.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.tables import load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, said
from course_lib.lessons.dejavu.claims.ground import GATED, RELU

Measured = dict[str, Any]

MODELS = (GATED, RELU)
CHEAP = 0.05  # nats a token above the dense model: 5 % of perplexity, here the meaning of "no loss"
CLOSE = 0.02  # the same for a predictor on the model of bytes


def results() -> Measured:
    """The committed measurement of `course reproduce dejavu`."""
    return load_measured("dejavu")


def predictions() -> Measured:
    """That of `course reproduce dejavu_predictors`."""
    return load_measured("dejavu", "experiments/dejavu_predictors")


def dense(measured: Measured, model: str) -> Row:
    """The row of a model as it is."""
    return rows(measured, "dense", model=model)[0]


def models(measured: Measured, table: str) -> list[str]:
    """Those that a table is about, in the order of MODELS."""
    there = {row["model"] for row in rows(measured, table)}
    return [model for model in MODELS if model in there]


def one(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """The only row of that kind; None where it was not measured."""
    found = rows(measured, table, **wanted)
    return found[0] if found else None


def above_dense(measured: Measured, row: Row) -> Effect:
    """By how many nats a token it reads worse than its dense model."""
    return log_gap(dense(measured, row["model"]), row)


def cheap(measured: Measured, row: Row, most: float = CHEAP) -> Effect:
    """By how much less than `most` nats a token it costs."""
    pairs = zip(dense(measured, row["model"])["losses"], row["losses"], strict=True)
    return of_samples([most - (cut - whole) for whole, cut in pairs])


def better(measured: Measured, table: str, first: dict, second: dict) -> dict[tuple[str, float], Effect]:
    """By model and density: by how many nats a token `second` reads worse than `first`, where both were measured."""
    effects = {}
    for row in rows(measured, table, **first):
        other = one(measured, table, model=row["model"], density=row["density"], **second)
        if other:
            effects[row["model"], row["density"]] = log_gap(row, other)
    return effects


def listed_effects(effects: Iterable[Effect], digits: int = 3) -> str:
    """All of them, apart by commas."""
    return ", ".join(said(effect, digits) for effect in effects)


def densities(found: Sequence[Row]) -> list[float]:
    """From all neurons down."""
    return sorted({row["density"] for row in found}, reverse=True)
