"""The verdict on a claim, decided from effects and their standard errors with Student's t."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Float
from scipy.special import stdtr, stdtrit
from torch import Tensor

from course_lib.lessons.common.results import COLUMNS
from course_lib.measure.paired import mean_and_error

HOLDS, PARTLY, MIXED, FAILS = "holds", "holds partly", "mixed", "does not hold"
NOT_AT_THIS_SCALE, UNDECIDED = "not at this scale", "undecided"
WORDS = (HOLDS, PARTLY, MIXED, FAILS, NOT_AT_THIS_SCALE, UNDECIDED)
NOT_MEASURED = "not measured"
ERRORS = 2.0  # error bars in figures reach this many standard errors to either side
CONFIDENCE = 0.95  # two-sided: an effect of zero is called significant in at most one of 20 samples
MOST_NAMED = 4  # cases: a verdict names those of a few and counts those of many
_LONGEST = 100  # characters of the names of all cases
_OUT_OF_REACH = 10  # times the sample: beyond that, the number of samples needed is not informative


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How far a measurement lies on the claim's side of the claim's threshold, with its standard error.

    For "at least 1.5 times", for example, the value is the log ratio minus log 1.5.

    Attributes:
        value: positive where the claim is right.
        error: the standard error of the value, from paired samples where there are pairs; 0 where all existing cases
            were counted, such as the layers of a model; infinite where it is not known.
        n: number of independent samples that the value is computed from, None where it is not known.
        freedom: degrees of freedom of the error; by default n − 1, or infinite where n is not known.
    """

    value: float
    error: float
    n: int | None = None
    freedom: int | float | None = None

    def __post_init__(self) -> None:
        freedom_is_valid = self.freedom is None or self.freedom > 0
        if not math.isfinite(self.value) or not self.error >= 0 or (self.n is not None and self.n < 1):
            raise ValueError(
                f"got value={self.value}, error={self.error}, n={self.n}; expected a finite value, an error of 0 or "
                "more (infinite where it is not known), and a sample of at least one or None."
            )
        if not freedom_is_valid:
            raise ValueError(f"got freedom={self.freedom}; expected a positive number of degrees of freedom or None.")

    @property
    def degrees_of_freedom(self) -> int | float:
        if self.freedom is not None:
            return self.freedom
        return math.inf if self.n is None else max(self.n - 1, 0)

    @property
    def margin(self) -> float:
        """Half the width of the 95 % confidence interval: the t quantile times the standard error."""
        if self.error in (0, math.inf):
            return self.error
        return t_quantile(self.degrees_of_freedom) * self.error

    @property
    def p_value(self) -> float:
        """The p value of the two-sided t test of the hypothesis that the value is 0; 0 for exact counts."""
        if self.error in (0, math.inf) or self.degrees_of_freedom <= 0:
            return float(self.error != 0)
        return 2 * float(stdtr(min(self.degrees_of_freedom, 1e9), -abs(self.value) / self.error))

    @property
    def holds(self) -> bool:
        return self.value > self.margin

    @property
    def fails(self) -> bool:
        return self.value < -self.margin or (self.error == 0 and self.value <= 0)

    @property
    def undecided(self) -> bool:
        return not self.holds and not self.fails

    def above(self, threshold: int | float) -> "Effect":
        """Return the same measurement as evidence that it exceeds a threshold."""
        return Effect(value=self.value - threshold, error=self.error, n=self.n, freedom=self.freedom)

    def below(self, threshold: int | float) -> "Effect":
        """Return the same measurement as evidence that it is below a threshold."""
        return Effect(value=threshold - self.value, error=self.error, n=self.n, freedom=self.freedom)


Effects = Effect | Mapping[str, Effect]  # one effect, or one per named case of a claim


def t_quantile(freedom: int | float) -> float:
    """Return the two-sided 95 % quantile of Student's t: 12.7 for one degree of freedom, 1.96 for infinitely many."""
    if freedom <= 0:
        return math.inf
    return float(stdtrit(min(freedom, 1e9), (1 + CONFIDENCE) / 2))


def of_samples(samples: Float[Tensor, "n"] | Sequence[int | float], threshold: float = 0.0) -> Effect:
    """Return the mean of independent samples, such as paired differences, minus a threshold."""
    mean, error = mean_and_error(samples)
    return Effect(value=mean - threshold, error=error, n=len(samples))


def of_series(samples: Float[Tensor, "n"] | Sequence[int | float], threshold: float = 0.0) -> Effect:
    """Return the mean of successive samples of one series, such as the blocks of one text, minus a threshold.

    Successive samples are correlated, so they carry less information than n independent ones. With a lag-1
    autocorrelation r > 0 the effective sample size is n (1 − r) / (1 + r), which is exact for a first-order
    autoregressive series as n → ∞. The effect has this n and an error that is larger by √(n / effective n). A negative
    r counts as 0.
    """
    mean, error = mean_and_error(samples)
    n, r = len(samples), min(max(_autocorrelation(samples), 0.0), 0.99)
    effective = min(max(math.floor(n * (1 - r) / (1 + r)), 2), n)
    return Effect(value=mean - threshold, error=error * math.sqrt(n / effective), n=effective)


def _autocorrelation(samples: Float[Tensor, "n"] | Sequence[int | float]) -> float:
    """Return the lag-1 autocorrelation Σ dᵢ dᵢ₊₁ / Σ dᵢ² of the deviations d from the mean; 0 where all are equal."""
    values = [float(sample) for sample in samples]
    mean = sum(values) / len(values)
    deviations = [value - mean for value in values]
    if not (variance := sum(deviation**2 for deviation in deviations)):
        return 0.0
    return sum(a * b for a, b in pairwise(deviations)) / variance


def of_count(n_held: int, of: int, more_than: float = 0.0, n: int | None = None) -> Effect:
    """Return the fraction of all existing cases, such as the layers of a model, minus a threshold: an exact count.

    The layers, blocks or heads of one model are not a sample. Where the cases are independent, such as networks trained
    with other seeds, pass their number as `n`.
    """
    return Effect(value=n_held / of - more_than, error=0.0, n=n)


def of_examples(cases: Mapping[str, Effect]) -> Effect:
    """Return the fraction of the cases that hold, after Holm's correction: one suffices for "can" and "up to"."""
    return of_count(list(decide_cases(cases).values()).count(HOLDS), len(cases), n=len(cases))


def of_independent(better: tuple[float, float], worse: tuple[float, float], threshold: float = 0.0) -> Effect:
    """Return `worse` minus `better`, both given as (value, standard error), minus a threshold.

    This is for unpaired results. On the same windows or questions the errors partly cancel, and this error is too wide.
    """
    value = worse[0] - better[0] - threshold
    return Effect(value=value, error=math.hypot(better[1], worse[1]))


def verdict(effects: Effects | Iterable[Effect], larger_models: bool = False) -> str:
    """Decide a claim from its effect, or from the effects of all cases that the claim names.

    An effect *holds* where its 95 % interval (Student's t) lies above 0, *fails* where it lies below 0 (an exact count:
    where it is not above 0), and is undecided otherwise.

    Where every case holds (or every case fails) by its own interval, so does the claim: a claim about all cases needs
    no correction, since each case has to pass its test. Every other verdict names single cases, and the more cases
    there are, the more of them differ from 0 by chance. They are then decided with Holm's correction.

    - "holds": every case holds.
    - "holds partly (3 of 4)": no case fails and at least half of them hold.
    - "does not hold": no case holds and at least half of them fail; "not at this scale" where the claim is about larger
      models.
    - "mixed (holds in a; fails in b; undecided in c)": every other outcome in which a case holds or fails.
    - "undecided": no case holds and none fails. Where n is known, with the number of samples that would decide.

    Args:
        effects: one effect, a mapping from the name of each case to its effect, or effects without names.
        larger_models: whether the claim is about models larger than the one measured.

    Raises:
        ValueError: no effect at all.
    """
    cases = _by_name(effects)
    if not cases:
        raise ValueError("got no effect; expected one, or one for each case of the claim.")
    return _words(cases, isinstance(effects, Mapping), larger_models)


def _words(cases: dict[str, Effect], are_named: bool, larger_models: bool) -> str:
    if all(case.holds for case in cases.values()):
        return HOLDS
    decided = decide_cases(cases)
    held, failed, open_cases = ([name for name in cases if decided[name] == word] for word in (HOLDS, FAILS, UNDECIDED))
    if not held and not failed:
        return UNDECIDED + _samples_needed(list(cases.values()))
    if not failed and 2 * len(held) >= len(cases):
        return f"{PARTLY} ({len(held)} of {len(cases)})"
    if not held and 2 * len(failed) >= len(cases):
        word = NOT_AT_THIS_SCALE if larger_models else FAILS
        return word if len(failed) == len(cases) else f"{word} (fails in {len(failed)} of {len(cases)})"
    parts = {"holds in": held, "fails in": failed, "undecided in": open_cases}
    counted, named = (
        "; ".join(f"{word} {how(names)}" for word, names in parts.items() if names) for how in (len, ", ".join)
    )
    is_short = are_named and len(cases) <= MOST_NAMED and len(named) <= _LONGEST
    return f"{MIXED} ({named if is_short else counted})"


def decide_cases(cases: Mapping[str, Effect]) -> dict[str, str]:
    """Decide for each of several cases whether it holds, fails or is undecided, with Holm's correction.

    The smallest p value must be at most 5 % / m for m cases with an error, the next one at most 5 % / (m − 1), and so
    on; from the first one above its bound, all are undecided. The probability of any wrong decision is then at most
    5 %. Exact counts have no error and need no correction. If all cases fail by their own intervals, all of them fail.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6.
    """
    if all(case.fails for case in cases.values()):
        return dict.fromkeys(cases, FAILS)
    inexact = sorted((name for name in cases if cases[name].error > 0), key=lambda name: cases[name].p_value)
    significant = set(cases) - set(inexact)
    for rank, name in enumerate(inexact):
        if cases[name].p_value >= (1 - CONFIDENCE) / (len(inexact) - rank):
            break
        significant.add(name)
    words = {name: HOLDS if case.value > 0 else FAILS for name, case in cases.items()}
    return {name: words[name] if name in significant else UNDECIDED for name in cases}


def _by_name(effects: Effects | Iterable[Effect]) -> dict[str, Effect]:
    if isinstance(effects, Effect):
        return {"": effects}
    if isinstance(effects, Mapping):
        return dict(effects)
    return {str(index): effect for index, effect in enumerate(effects)}


def word_of(verdict_text: str) -> str:
    """Return a verdict without the details in brackets: one of WORDS, or "not measured"."""
    return verdict_text.partition(" (")[0]


def said(effect: Effect, digits: int = 3) -> str:
    """Format an effect as value ± error."""
    return f"{effect.value:+.{digits}f} ± {effect.error:.{digits}f}"


def claim(text: str, effects: Effects | Iterable[Effect], larger_models: bool = False) -> str:
    """Format a claim and its verdict, which is "not measured" where there is no effect."""
    evidence = effects if isinstance(effects, Effect | Mapping) else list(effects)
    line = f"Claim: {text}: {verdict(evidence, larger_models) if evidence else NOT_MEASURED}"
    return textwrap.fill(line, COLUMNS, subsequent_indent="    ")


def _samples_needed(undecided: list[Effect]) -> str:
    """Say how many samples would decide the hardest case, if its value stayed the same and its error fell as 1/√n."""
    if any(case.n is None or math.isinf(case.error) for case in undecided):
        return ""
    hardest = max(undecided, key=lambda case: (abs(case.error / case.value) if case.value else math.inf, case.n))
    if (needed := samples_needed(hardest)) is None:
        return f" (n = {hardest.n}; over {_OUT_OF_REACH} times as many samples would be needed)"
    return f" (n = {hardest.n}; about {needed} samples would decide)"


def samples_needed(effect: Effect) -> int | None:
    """Return the smallest n whose 95 % interval would exclude 0 at the same mean and spread; None above 10 times n."""
    spread = effect.error * math.sqrt(effect.n)
    low, high = effect.n, _OUT_OF_REACH * effect.n

    def decides(n: int) -> bool:
        return abs(effect.value) > t_quantile(n - 1) * spread / math.sqrt(n)

    if not decides(high):
        return None
    while high - low > 1:  # the interval shrinks as n grows, so bisection finds the first n that decides
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
