"""The stored results of lesson 10, joined, and the effects that its claims, tables and figures are made of.

A measurement that was stopped lacks rows; functions return None or nothing for them. Models are compared window by
window, on the same windows.
"""

from functools import reduce
from statistics import fmean
from typing import Any

from course_lib.lessons.common.claim import NO_LOSS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.lessons.compress.experiments.prompts import EXPERIMENT, steps
from course_lib.lessons.compress.experiments.runs import WIKIPEDIA
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.transfer import Ratio, paired_ratio, share_of_gain

PARTS = ("prompts", "prompts_further", "prompts_rest")
CLOSE = NO_LOSS  # nats per token
METHODS = {"wanda": "Wanda", "sparsegpt": "SparseGPT", "gptq": "GPTQ", "minitron": "Minitron"}
AMOUNTS = {"2of4": "2:4", "50-4bit": "50 % and 4 bits"}


def load() -> Measured:
    """The committed results of `course reproduce` prompts, prompts_further and prompts_rest, as one."""
    return reduce(join, (load_measured("compress", name) for name in PARTS))


def join(first: Measured, further: Measured) -> Measured:
    """Steps and rows of both, under the heading of the first and both commands.

    Raises:
        ValueError: for two that were measured in other ways, so that their windows differ.
    """
    for key in ("seed", "sizes"):
        if first[key] != further[key]:
            raise ValueError(f"got {key} {first[key]} and {further[key]}; expected the same. Measure both again.")
    names = dict.fromkeys([*first["tables"], *further["tables"]])
    tables = {name: [row for each in (first, further) for row in rows_of(each, name)] for name in names}
    both = {"command": f"{first['command']}; {further['command']}", "steps": first["steps"] | further["steps"]}
    return first | both | {"tables": tables}


def missing(measured: Measured) -> list[str]:
    """The steps of the whole plan that this measurement has not reached."""
    planned = (step.name for step in steps(EXPERIMENT.sizes))
    return [name for name in planned if name not in measured["steps"]]


def rows_of(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """The rows of a table with these values; none where the table was not reached."""
    return rows(measured, table, **wanted) if table in measured["tables"] else []


def row_of(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """The only row with these values; None where it was not measured."""
    matches = rows_of(measured, table, **wanted)
    return matches[0] if matches else None


def models(measured: Measured) -> list[str]:
    """The measured models, the dense one first."""
    return [row["model"] for row in rows_of(measured, "models")]


def model_name(name: str) -> str:
    """A model as it is shown: "Wanda 62.5 %" for wanda-62.5."""
    method, _, amount = name.partition("-")
    if method not in METHODS:
        return name
    if method == "gptq":
        return f"GPTQ {amount} bits"
    return f"{METHODS[method]} {AMOUNTS.get(amount, f'{amount} %')}"


def differences(better: Row, worse: Row) -> list[float]:
    return [high - low for low, high in zip(better["losses"], worse["losses"], strict=True)]


def loss_gain(better: Row, worse: Row, threshold: float = 0.0) -> Effect:
    """By how many nats per token the loss of `better` is lower, measured from a threshold."""
    return of_samples(differences(better, worse), threshold)


def with_and_without(measured: Measured, name: str) -> tuple[Row, Row] | None:
    """The rows of a model without a prompt, and with its own."""
    alone, own = row_of(measured, "models", model=name), row_of(measured, "own", model=name)
    return (alone, own) if alone and own else None


def gain(measured: Measured, name: str) -> Effect | None:
    """The loss that a model gains with its own prompt."""
    pair = with_and_without(measured, name)
    return loss_gain(pair[1], pair[0]) if pair else None


def repair(measured: Measured, name: str) -> Effect | None:
    """The gain of a model beyond what the dense model gains with its own prompt."""
    pair, control = with_and_without(measured, name), with_and_without(measured, DENSE)
    return gain_difference(pair, control) if pair and control else None


def gain_difference(pair: tuple[Row, Row], control: tuple[Row, Row]) -> Effect:
    """By how many nats a prompt gains more on one model than on another, each given without and with it."""
    own, other = (differences(prompted, alone) for alone, prompted in (pair, control))
    return of_samples([ours - theirs for ours, theirs in zip(own, other, strict=True)])


def ratio(prompted: Row, alone: Row) -> Ratio:
    """The ratio of perplexities, paired by window."""
    return paired_ratio(prompted["losses"], alone["losses"])


def transferred(measured: Measured, source: str, to: str) -> Row | None:
    """A model with the prompt of another, or with its own."""
    if source == to:
        return row_of(measured, "own", model=to)
    return row_of(measured, "moved", model=to, source=source, text=WIKIPEDIA)


def transfer_rows(measured: Measured, source: str, to: str) -> tuple[Row, ...] | None:
    """The target without a prompt, with its own, with that of the source; the dense model without and with its own."""
    pair, control = with_and_without(measured, to), with_and_without(measured, DENSE)
    foreign = transferred(measured, source, to)
    return (*pair, foreign, *control) if pair and control and foreign else None


def transferred_fraction(measured: Measured, source: str, to: str) -> Ratio | None:
    """The fraction of a model's repair by its own prompt that the prompt of another model reaches."""
    given = transfer_rows(measured, source, to)
    if given is None:
        return None
    alone, own, foreign, dense, dense_own = (row["losses"] for row in given)
    return share_of_gain(foreign, own, alone, (dense, dense_own))


def format_perplexity(perplexity: float) -> str:
    """Two decimals below 1,000, none above."""
    return f"{perplexity:,.2f}" if perplexity < 1000 else f"{perplexity:,.0f}"


def mean_row(rows: list[Row]) -> Row:
    """The losses of several rows, averaged window by window."""
    return {"losses": [fmean(losses) for losses in zip(*(row["losses"] for row in rows), strict=True)]}
