"""The stored measurements of lesson 09: their rows, and how far a row's loss is above that of the dense model.

Models are compared window by window, on windows that both have processed.
"""

from collections.abc import Sequence
from typing import Any

from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.verdicts import Effect
from course_lib.lessons.dejavu.experiments.ground import GATED, RELU

Measured = dict[str, Any]

MODELS = (GATED, RELU)


def results() -> Measured:
    """Load the committed results of `course reproduce dejavu`."""
    return load_measured("dejavu")


def predictions() -> Measured:
    """Load those of `course reproduce dejavu_predictors`."""
    return load_measured("dejavu", "experiments/dejavu_predictors")


def dense(measured: Measured, model: str) -> Row:
    """The row of the dense model."""
    return rows(measured, "dense", model=model)[0]


def models(measured: Measured, table: str) -> list[str]:
    """The models in a table, in the order of MODELS."""
    present = {row["model"] for row in rows(measured, table)}
    return [model for model in MODELS if model in present]


def one(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """The only such row; None if it was not measured."""
    matches = rows(measured, table, **wanted)
    return matches[0] if matches else None


def above_dense(measured: Measured, row: Row) -> Effect:
    """The loss increase over the dense model in nats per token."""
    return log_gap(dense(measured, row["model"]), row)


def better(measured: Measured, table: str, first: dict, second: dict) -> dict[tuple[str, float], Effect]:
    """By model and density: the loss of `second` minus that of `first`, where both were measured."""
    effects = {}
    for row in rows(measured, table, **first):
        other = one(measured, table, model=row["model"], density=row["density"], **second)
        if other:
            effects[row["model"], row["density"]] = log_gap(row, other)
    return effects


def densities(of_rows: Sequence[Row]) -> list[float]:
    """The densities of some rows, the highest first."""
    return sorted({row["density"] for row in of_rows}, reverse=True)
