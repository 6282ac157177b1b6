"""The stored measurements of lesson 09: their rows, and how far above the dense model a row lies.

Models are compared window by window on the windows that both have read.
"""

from collections.abc import Sequence
from typing import Any

from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.verdicts import Effect
from course_lib.lessons.dejavu.experiments.steps.ground import GATED, RELU

Measured = dict[str, Any]

MODELS = (GATED, RELU)
CHEAP = 0.05  # nats per token above the dense model: 5 % of perplexity, which the lesson calls "no loss"
CLOSE = 0.02  # the same for a predictor


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
    """By how many nats per token its loss is above that of its dense model."""
    return log_gap(dense(measured, row["model"]), row)


def better(measured: Measured, table: str, first: dict, second: dict) -> dict[tuple[str, float], Effect]:
    """By model and density: by how many nats per token the loss of `second` is above that of `first`, where both were
    measured.
    """
    effects = {}
    for row in rows(measured, table, **first):
        other = one(measured, table, model=row["model"], density=row["density"], **second)
        if other:
            effects[row["model"], row["density"]] = log_gap(row, other)
    return effects


def densities(found: Sequence[Row]) -> list[float]:
    """From all neurons down."""
    return sorted({row["density"] for row in found}, reverse=True)
