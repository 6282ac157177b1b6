"""VFlowOpt on the small model: ways to choose visual tokens, compared question by question."""

from collections.abc import Iterable

from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.lessons.sparse_attention.experiments.visual_tokens import ALL, METHOD

BY_HAND = "settings by hand"
PARTS = ("recycling", "stages", "entropy", "attention", "a score")


def shares(measured: Measured) -> list[float]:
    """Of the tokens, from many to few; all of them are not among these."""
    return sorted({row["share"] for row in rows(measured, "answers") if row["method"] != ALL}, reverse=True)


def dense(measured: Measured) -> Row:
    """All tokens."""
    return rows(measured, "answers", method=ALL)[0]


def questions(found: Iterable[Row]) -> list[float]:
    """Return, for each question, the mean of its answers (1 right, 0 wrong) over random trials or calibrations."""
    answers = [row["right"] for row in found]
    return [sum(map(int, each)) / len(answers) for each in zip(*answers, strict=True)]


def gap(better: list[Row], worse: list[Row]) -> Effect:
    """By how much more is answered rightly, question by question."""
    if len(better) == len(worse) == 1:
        return accuracy_gap(better[0], worse[0])
    return of_samples([one - other for one, other in zip(questions(better), questions(worse), strict=True)])


def at(measured: Measured, method: str, share: float) -> list[Row]:
    """The rows of a way to choose at a share: several where it was drawn or calibrated several times."""
    return rows(measured, "answers", method=method, share=share)


def ahead(measured: Measured, of: str, first: bool = False) -> dict[float, Effect]:
    """By share: how much more VFlowOpt answers than another way; its first calibration, or the mean of all."""
    effects = {}
    for share in shares(measured):
        own = at(measured, METHOD, share)
        effects[share] = gap(own[:1] if first else own, at(measured, of, share))
    return effects


def parts(measured: Measured) -> dict[str, dict[float, Effect]]:
    """What each part adds, by share: the first calibration, with it and without it."""
    return {part: ahead(measured, f"without {part}", first=True) for part in PARTS}


def kept(measured: Measured, method: str = METHOD) -> Effect:
    """Right answers with the fewest tokens over those with all tokens.

    The error is that of the ratio of two means on the same questions, by linearization.
    """
    own, whole = (questions(found) for found in (at(measured, method, min(shares(measured))), [dense(measured)]))
    fraction = sum(own) / sum(whole)
    mean = sum(whole) / len(whole)
    off = of_samples([(one - fraction * other) / mean for one, other in zip(own, whole, strict=True)])
    return Effect(value=fraction, error=off.error, n=off.n)


def by_share(effects: dict[float, Effect]) -> dict[str, Effect]:
    return {f"{100 * share:.0f} % of the tokens": effect for share, effect in effects.items()}


def mean_accuracy(measured: Measured, method: str, share: float) -> float:
    """Accuracy, the mean of draws and calibrations."""
    right = questions(at(measured, method, share))
    return sum(right) / len(right)
