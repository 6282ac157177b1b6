"""AutoPASTA: right answers and log-probabilities of each condition, and how often the key sentence is named."""

from statistics import fmean

from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.results import Measured
from course_lib.lessons.common.verdicts import Effect, Effects, of_samples
from course_lib.lessons.sparse_attention.estimates import rows as found
from course_lib.measure.paired import error_of_share

Condition = tuple[str, str]  # which heads, what is steered


def condition(measured: Measured, data: str, heads: str, what: str) -> Row | None:
    """One row of the answers; None where that was not asked of these questions."""
    return found.one(measured, "answers", data=data, heads=heads, steered=what)


def gain(measured: Measured, data: str, better: Condition, worse: Condition) -> Effects:
    """Right answers under one condition minus those under another; no effect where one was not measured."""
    pair = (condition(measured, data, *better), condition(measured, data, *worse))
    return accuracy_gap(*pair) if all(pair) else {}


def gain_of_likelihood(measured: Measured, data: str, better: Condition, worse: Condition) -> Effects:
    """The same in log-probability of the right answer, question by question."""
    pair = (condition(measured, data, *better), condition(measured, data, *worse))
    if not all(pair):
        return {}
    likely = zip(*(row["log_probability"] for row in pair), strict=True)
    return of_samples([one - other for one, other in likely])


def chance_of_key(row: Row) -> float:
    """How often a sentence at random is the key."""
    return fmean(1 / n for n in row["sentences"])


def named_above_chance(measured: Measured) -> dict[str, Effect]:
    """Fraction of the questions for which the model names the key sentence, minus chance, by data."""
    effects = {}
    for row in found.some(measured, "named"):
        n_right = row["right"].count("1")
        value = n_right / row["n"] - chance_of_key(row)
        effects[row["data"]] = Effect(value=value, error=error_of_share(n_right, row["n"]), n=row["n"])
    return effects
