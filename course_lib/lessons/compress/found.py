"""What the measurement of lesson 10 says: its rows, and the effects on which verdicts stand.

A measurement that was stopped lacks rows; what is printed says so. Models are compared window by window on the same
windows.
"""

from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import Any

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import plus_minus
from course_lib.lessons.common.tables import Measured, load_measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.lessons.compress.experiment_prompts import EXPERIMENT, steps
from course_lib.lessons.compress.measuring.ground import WIKIPEDIA
from course_lib.measure.result_files import load
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.transfer import Ratio, paired_ratio, share_of_gain

LESSON = Path(__file__).parent
PARTS = ("prompts", "experiments/prompts_further", "experiments/prompts_rest")
CLOSE = 0.05  # nats a token: 5 % of perplexity, here the meaning of "no loss"
METHODS = {"wanda": "Wanda", "sparsegpt": "SparseGPT", "gptq": "GPTQ", "minitron": "Minitron's cut"}
AMOUNTS = {"2of4": "2:4", "50-4bit": "50 % and 4 bits"}


def results() -> Measured:
    """The committed measurements of `course reproduce` prompts, prompts_further and prompts_rest, as one."""
    return reduce(joined, (load_measured("compress", name) for name in PARTS if (LESSON / f"{name}.json").exists()))


def joined(first: Measured, further: Measured) -> Measured:
    """Steps and rows of both, under the heading of the first and both commands.

    Raises:
        ValueError: for two that were measured in other ways, whose windows are not the same.
    """
    for key in ("seed", "sizes"):
        if first[key] != further[key]:
            raise ValueError(f"got {key} {first[key]} and {further[key]}; expected the same. Measure both anew.")
    names = dict.fromkeys([*first["tables"], *further["tables"]])
    tables = {name: [row for each in (first, further) for row in some(each, name)] for name in names}
    both = {"command": f"{first['command']}; {further['command']}", "steps": first["steps"] | further["steps"]}
    return first | both | {"tables": tables}


def at(path: Path) -> Measured:
    """Another one, such as that of a quick run, or of one that was stopped."""
    return load(Path(path))


def missing(measured: Measured) -> list[str]:
    """The steps of the whole measurement that this one has not reached."""
    planned = (step.name for step in steps(EXPERIMENT.sizes))
    return [name for name in planned if name not in measured["steps"]]


def some(measured: Measured, table: str, **wanted: Any) -> list[Row]:
    """The rows of that kind; none where the table was not reached."""
    return rows(measured, table, **wanted) if table in measured["tables"] else []


def one(measured: Measured, table: str, **wanted: Any) -> Row | None:
    """The only row of that kind; None where it was not measured."""
    found = some(measured, table, **wanted)
    return found[0] if found else None


def models(measured: Measured) -> list[str]:
    """Those that were measured, the dense one first."""
    return [row["model"] for row in some(measured, "models")]


def called(name: str) -> str:
    """A model as it is printed: "Wanda 62.5 %" for wanda-62.5."""
    method, _, amount = name.partition("-")
    if method not in METHODS:
        return name
    if method == "gptq":
        return f"GPTQ {amount} bits"
    return f"{METHODS[method]} {AMOUNTS.get(amount, f'{amount} %')}"


def wins(better: Row, worse: Row, threshold: float = 0.0) -> Effect:
    """By how many nats a token `better` reads better than `worse`, measured from a threshold."""
    return of_samples(differences(better, worse), threshold)


def differences(better: Row, worse: Row) -> list[float]:
    return [high - low for low, high in zip(better["losses"], worse["losses"], strict=True)]


def pair(measured: Measured, name: str) -> tuple[Row, Row] | None:
    """A model alone, and with its own prompt."""
    alone, own = one(measured, "models", model=name), one(measured, "own", model=name)
    return (alone, own) if alone and own else None


def gain(measured: Measured, name: str) -> Effect | None:
    """What a model's own prompt wins on it."""
    found = pair(measured, name)
    return wins(found[1], found[0]) if found else None


def beyond(measured: Measured, name: str) -> Effect | None:
    """What it wins beyond what the dense model's own prompt wins on the dense model."""
    found, control = pair(measured, name), pair(measured, DENSE)
    return more_than(found, control) if found and control else None


def more_than(found: tuple[Row, Row], control: tuple[Row, Row]) -> Effect:
    """By how many nats a prompt wins more on one model than on another, each given without and with it."""
    own, other = (differences(prompted, alone) for alone, prompted in (found, control))
    return of_samples([mine - theirs for mine, theirs in zip(own, other, strict=True)])


def ratio(prompted: Row, alone: Row) -> Ratio:
    """Of perplexities, paired."""
    return paired_ratio(prompted["losses"], alone["losses"])


def moved(measured: Measured, source: str, to: str) -> Row | None:
    """A model with the prompt of another, or with its own."""
    if source == to:
        return one(measured, "own", model=to)
    return one(measured, "moved", model=to, source=source, text=WIKIPEDIA)


def share(measured: Measured, source: str, to: str) -> Ratio | None:
    """How much of what a model's own prompt wins, beyond the dense model's gain, another's prompt wins."""
    found, control, foreign = pair(measured, to), pair(measured, DENSE), moved(measured, source, to)
    if not found or not control or not foreign:
        return None
    alone, own = found
    lists = (foreign["losses"], own["losses"], alone["losses"])
    return share_of_gain(*lists, (control[0]["losses"], control[1]["losses"]))


def shown(perplexity: float) -> str:
    """Two decimals below 1,000, none above."""
    return f"{perplexity:,.2f}" if perplexity < 1000 else f"{perplexity:,.0f}"


def mean_of(rows: list[Row]) -> Row:
    """The losses of several rows, averaged window by window."""
    return {"losses": [fmean(losses) for losses in zip(*(row["losses"] for row in rows), strict=True)]}


NATS, BEYOND = "nats gained", "nats beyond the dense model's gain"
PAIRS = {("ratio", "ratio: error"): plus_minus(3)} | {
    (name, f"{name}: error"): plus_minus(3, sign=True) for name in (NATS, BEYOND)
}
GAIN_FORMATS = {"alone": shown, "with a prompt": shown} | PAIRS  # of the columns below


def gain_columns(pair: tuple[Row, Row], more: Effect | None) -> dict[str, float | None]:
    """A model alone and with a prompt: perplexities, their ratio, and nats per token, also beyond the dense model's."""
    alone, own = pair
    of_both, won = ratio(own, alone), wins(own, alone)
    return (
        {"alone": alone["perplexity"], "with a prompt": own["perplexity"]}
        | {"ratio": of_both.value, "ratio: error": of_both.standard_error}
        | {NATS: won.value, f"{NATS}: error": won.error}
        | {BEYOND: more and more.value, f"{BEYOND}: error": more and more.error}
    )
