"""Effects (for verdicts) from rows that several lessons measure: perplexity, accuracy, fractions and bench times."""

import math
from statistics import fmean
from typing import Any

from scipy.special import ndtri

from course_lib.lessons.common.verdicts import Effect, of_independent, of_samples
from course_lib.measure.paired import error_of_paired_shares, error_of_share, error_of_shares

Row = dict[str, Any]
MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)  # standard error of the median over that of the mean, for normal samples


def log_gap(better: Row, worse: Row, threshold: float = 0.0) -> Effect:
    """Return the loss of row `worse` minus that of `better`, in nats per token, measured from a threshold.

    Where both rows store the `losses` of the same windows, the differences are paired by window. Otherwise the error
    comes from both standard errors and is too wide: some windows are harder for both models, which cancels in pairs.
    """
    if better.get("losses") and worse.get("losses"):
        pairs = zip(better["losses"], worse["losses"], strict=True)
        return of_samples([high - low for low, high in pairs], threshold)
    # loss = ln(perplexity), with the error σ(ln p) ≈ σ(p) / p
    logs = [(math.log(row["perplexity"]), row["standard_error"] / row["perplexity"]) for row in (better, worse)]
    return of_independent(*logs, threshold)


def n_windows(row: Row) -> int:
    """Return the number of windows of a row; without `losses`, windows have 512 tokens, of which 511 are predicted."""
    return len(row["losses"]) if row.get("losses") else row["n_tokens"] // 511


def of_repetitions(row: Row, times: float = 1.0) -> Effect:
    """Return the log speedup of a bench's side over its anchor, minus log `times`.

    The error is that of the median of n repetitions: √(π/2) σ / √n, with n − 1 degrees of freedom. A row stores only
    the 10 % and 90 % points of the repetitions, so σ is their distance over the one expected of n normal samples.
    Rows without `repetitions` get σ itself as the error, which is too wide.
    """
    low, middle, high = (math.log(row[f"times_anchor{end}"]) for end in ("_low", "", "_high"))
    n = row.get("repetitions")
    if not n:
        return Effect(value=middle - math.log(times), error=(high - low) / 2.56)  # 2 Φ⁻¹(0.9) = 2.56
    deviation = (high - low) / _distance_of_deciles(n) if n > 1 else math.inf
    return Effect(value=middle - math.log(times), error=MEDIAN_OVER_MEAN * deviation / math.sqrt(n), n=n)


def _distance_of_deciles(n: int) -> float:
    """Return the expected distance of the 10 % and 90 % points of n normal samples, in standard deviations.

    For example, 1.81 for n = 5 and 2.56 for n → ∞. The expected i-th order statistic is Φ⁻¹((i − 3/8) / (n + 1/4)).

    Source: Blom (1958), Statistical Estimates and Transformed Beta-Variables.
    """
    position = 0.1 * (n - 1)  # as `statistics.quantiles` interpolates between the samples
    rank = math.floor(position)
    lower, upper = (float(ndtri((rank + step - 0.375) / (n + 0.25))) for step in (1, 2))
    return -2 * (lower + (position - rank) * (upper - lower))


def side_by_side(row: Row, other: Row) -> Effect:
    """Return the log speedup of one side of a contest over another; both rows are relative to the same anchor."""
    speedup, baseline = of_repetitions(row), of_repetitions(other)
    n = None if None in (speedup.n, baseline.n) else min(speedup.n, baseline.n)
    return Effect(value=speedup.value - baseline.value, error=math.hypot(speedup.error, baseline.error), n=n)


def accuracy_gap(better: Row, worse: Row, key: str = "accuracy") -> Effect:
    """Return the accuracy of `better` minus that of `worse` on a task, paired by question where both store `right`."""
    if better.get("right") and worse.get("right"):
        error = error_of_paired_shares(better["right"], worse["right"])
        return Effect(value=better[key] - worse[key], error=error, n=better["n"])
    return share_gap(better[key], worse[key], better["n"])


def share_above(n_held: int, n: int, threshold: float) -> Effect:
    """Return the fraction of n independent trials, such as networks with other seeds, minus a threshold."""
    return Effect(value=n_held / n - threshold, error=error_of_share(n_held, n), n=n)


def share_gap(share: float, other: float, n: int) -> Effect:
    """Return one fraction of n questions minus another of n questions, without pairs."""
    return Effect(value=share - other, error=error_of_shares(round(share * n), round(other * n), n), n=n)


def mean_of(effects: list[Effect]) -> Effect:
    """Average independent effects with equal weights; the sample size is the sum of theirs.

    The error of the mean of m effects is √(Σ eᵢ²) / m, with Welch and Satterthwaite's degrees of freedom:
    (Σ eᵢ²)² / Σ (eᵢ⁴ / νᵢ).
    """
    if not effects:
        raise ValueError("got no effect; expected at least one to take the mean of.")
    sizes = [effect.n for effect in effects]
    n = None if None in sizes else sum(sizes)
    error = math.hypot(*(effect.error for effect in effects)) / len(effects)
    value = fmean(effect.value for effect in effects)
    return Effect(value=value, error=error, n=n, freedom=_pooled_freedom(effects))


def _pooled_freedom(effects: list[Effect]) -> float:
    """Return Welch and Satterthwaite's degrees of freedom; infinite where no effect has an error."""
    if any(math.isinf(effect.error) for effect in effects):
        return math.inf  # an unknown error allows no verdict, whatever its degrees of freedom
    squares = [effect.error**2 for effect in effects]
    total = sum(square**2 / effect.degrees_of_freedom for square, effect in zip(squares, effects, strict=True))
    return sum(squares) ** 2 / total if total else math.inf
