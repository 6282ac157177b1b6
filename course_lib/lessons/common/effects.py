"""Effects for a verdict from the rows that the lessons measure alike: perplexities, accuracies, shares of questions."""

import math
from statistics import fmean
from typing import Any

from scipy.special import ndtri

from course_lib.lessons.common.verdicts import Effect, of_independent, of_samples
from course_lib.measure.paired import error_of_paired_shares, error_of_share, error_of_shares

Row = dict[str, Any]
MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)  # the error of the median of normal samples over that of their mean


def log_gap(better: Row, worse: Row, threshold: float = 0.0) -> Effect:
    """By how many nats a token `worse` lies above `better`, two rows with `perplexity`, measured from a threshold.

    Window by window where both rows hold the `losses` of the same windows; otherwise from both standard errors, which
    is too wide, since how hard a window is does not drop out.
    """
    if better.get("losses") and worse.get("losses"):
        pairs = zip(better["losses"], worse["losses"], strict=True)
        return of_samples([high - low for low, high in pairs], threshold)
    logs = [(math.log(row["perplexity"]), row["standard_error"] / row["perplexity"]) for row in (better, worse)]
    return of_independent(*logs, threshold)


def n_windows(row: Row) -> int:
    """Of how many windows a row's perplexity is the mean; where their losses are not stored, windows of 512 tokens."""
    return len(row["losses"]) if row.get("losses") else row["n_tokens"] // 511


def of_repetitions(row: Row, times: float = 1.0) -> Effect:
    """Whether a side of a bench is more than so many times as fast as its anchor, as a logarithm.

    The error is that of the median of the repetitions, with n − 1 degrees of freedom. Of the repetitions only the 10
    and 90 % points are kept; their distance, over the one that n normal samples have, is the standard deviation of a
    single repetition. Without `repetitions` this standard deviation itself is the error, which is too wide.
    """
    low, middle, high = (math.log(row[f"times_anchor{end}"]) for end in ("_low", "", "_high"))
    n = row.get("repetitions")
    if not n:
        return Effect(value=middle - math.log(times), error=(high - low) / 2.56)
    deviation = (high - low) / _distance_of_deciles(n) if n > 1 else math.inf
    return Effect(value=middle - math.log(times), error=MEDIAN_OVER_MEAN * deviation / math.sqrt(n), n=n)


def _distance_of_deciles(n: int) -> float:
    """From the 10 to the 90 % point of n normal samples, in standard deviations: 1.81 for 5, 2.56 for very many."""
    position = 0.1 * (n - 1)  # as `statistics.quantiles` interpolates between the samples
    rank = math.floor(position)
    lower, upper = (float(ndtri((rank + step - 0.375) / (n + 0.25))) for step in (1, 2))  # Blom's order statistics
    return -2 * (lower + (position - rank) * (upper - lower))


def side_by_side(row: Row, other: Row) -> Effect:
    """Whether one side of a bench is faster than another of the same contest, as a logarithm; both have one anchor."""
    mine, its = of_repetitions(row), of_repetitions(other)
    n = None if None in (mine.n, its.n) else min(mine.n, its.n)
    return Effect(value=mine.value - its.value, error=math.hypot(mine.error, its.error), n=n)


def accuracy_gap(better: Row, worse: Row, key: str = "accuracy") -> Effect:
    """By how much `better` answers more, two rows of one task: question by question where both hold `right`."""
    if better.get("right") and worse.get("right"):
        error = error_of_paired_shares(better["right"], worse["right"])
        return Effect(value=better[key] - worse[key], error=error, n=better["n"])
    return share_gap(better[key], worse[key], better["n"])


def share_above(n_held: int, n: int, threshold: float) -> Effect:
    """By how much the share of n independent tries, such as networks from other starts, is above a threshold."""
    return Effect(value=n_held / n - threshold, error=error_of_share(n_held, n), n=n)


def share_gap(share: float, other: float, n: int) -> Effect:
    """By how much one share of n questions is above another of as many, of which nothing else is known."""
    return Effect(value=share - other, error=error_of_shares(round(share * n), round(other * n), n), n=n)


def mean_of(effects: list[Effect]) -> Effect:
    """The mean of independent effects, each weighing the same. Its sample is that of all of them.

    The degrees of freedom are Welch and Satterthwaite's: (Σ eᵢ²)² / Σ (eᵢ⁴ / νᵢ).
    """
    if not effects:
        raise ValueError("got no effect; expected at least one to take the mean of.")
    sizes = [effect.n for effect in effects]
    n = None if None in sizes else sum(sizes)
    error = math.hypot(*(effect.error for effect in effects)) / len(effects)
    value = fmean(effect.value for effect in effects)
    return Effect(value=value, error=error, n=n, freedom=_pooled_freedom(effects))


def _pooled_freedom(effects: list[Effect]) -> float:
    """Welch and Satterthwaite's degrees of freedom; infinite where no effect has an error."""
    if any(math.isinf(effect.error) for effect in effects):
        return math.inf  # no verdict follows from an error that is not known
    squares = [effect.error**2 for effect in effects]
    shares = sum(square**2 / effect.degrees_of_freedom for square, effect in zip(squares, effects, strict=True))
    return sum(squares) ** 2 / shares if shares else math.inf
