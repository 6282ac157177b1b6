"""A claim of a paper as a record: its text, how a lesson's results measure it, and the value that its authors report.

Notebook, deck and claims page read the same record. A claim names the result files that it needs; `judge` loads them,
calls `measure`, compares the estimates with the threshold, and returns a `Judgement`.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from course_lib import kernels
from course_lib.lessons.common.results import COLUMNS, result_file
from course_lib.lessons.common.verdicts import NOT_MEASURED, Effect, Effects, verdict, word_of
from course_lib.measure.result_files import load

BENCH = "bench/"  # prefix of results that `course bench` or `make gpu` wrote
MOST_LISTED = 3  # cases; of more cases, only the smallest and the largest value are shown
LARGE = 100  # larger ratios are shown as "over 100"
SKEWED = 0.2  # standard error of a log ratio above which we show an interval: that of the ratio is not symmetric


# Thresholds for words such as "no loss": one per kind of statement, with its reason and other common thresholds.
# Claims take them as `above=` or `below=`, `because=` and `other_thresholds=`.

NO_LOSS = 0.05  # nats per token: the logarithm of a ratio of perplexities
WHY_NO_LOSS = "no loss means less than 5 % more perplexity (0.05 nats per token), about the spread between texts"
OTHER_LOSSES = (0.01, 0.02)

HARMED = math.log(1.5)  # logarithm of a ratio of perplexities
WHY_HARMED = "1.5 times is the course's mark of a harmed model"
OTHER_HARMS = (math.log(1.25), math.log(2), math.log(3))

MOST = 0.5
WHY_MOST = "most means more than half"
OTHER_MAJORITIES = (0.75, 0.9)

COMPARABLE = 0.03  # of the answers
WHY_COMPARABLE = "comparable means at most 3 percentage points fewer right answers"
OTHER_DISTANCES = (0.01, 0.05)

DECENT = 0.9  # of the accuracy of the dense model
WHY_DECENT = "decent means nine tenths of the dense model's accuracy; the source names no number"
OTHER_FRACTIONS = (0.8, 0.95)

WHY_OWN_NUMBER = "the source's own number"


@dataclass(frozen=True)
class Unit:
    """How an estimate is written: `Unit("%", scale=100)` shows 0.52 ± 0.02 as "52 ± 2 %".

    Attributes:
        name: text after the number.
        scale: factor between the estimate and the number that is shown.
        is_log: whether the estimate is a logarithm and shown as its exponential, 0.405 as "1.50 times".
        signed: whether positive numbers show their sign, for differences.
    """

    name: str
    scale: int | float = 1
    is_log: bool = False
    signed: bool = False

    def __call__(self, estimate: Effect) -> str:
        """Format value ± standard error with the unit, or the value alone where all cases were counted.

        Ratios with a large error are shown with their 95 % interval, which is not symmetric: "22 times (95 %: 7 to
        73)".
        """
        text = f"{self._number(estimate)} {self.name}".rstrip()
        if not self._is_skewed(estimate):
            return text
        ends = (math.exp(min(estimate.value + side * estimate.margin, math.log(2 * LARGE))) for side in (-1, 1))
        return f"{text} (95 %: {' to '.join(map(_ratio, ends))})"

    def threshold(self, value: int | float) -> str:
        """Format a threshold with the unit and without a sign."""
        number = f"{math.exp(value):.3g}" if self.is_log else f"{value * self.scale:.4g}"
        return f"{'1.0' if number == '1' and self.is_log else number} {self.name}".rstrip()

    def several(self, estimates: Mapping[str, Effect]) -> str:
        """Format up to three estimates with the names of their cases; of more, the smallest and the largest."""
        if len(estimates) <= MOST_LISTED:
            return ", ".join(f"{self(estimate)} ({name})" for name, estimate in estimates.items())
        low, high = (end(estimates.values(), key=lambda estimate: estimate.value) for end in (min, max))
        return f"{self._number(low)} to {self._number(high)} {self.name}".rstrip() + f" in {len(estimates)} cases"

    def _is_skewed(self, estimate: Effect) -> bool:
        is_wide = self.is_log and estimate.error > SKEWED and math.isfinite(estimate.margin)
        return is_wide and estimate.value - estimate.margin < math.log(LARGE)

    def _number(self, estimate: Effect) -> str:
        value, error = estimate.value * self.scale, estimate.error * self.scale
        if self.is_log:
            value = math.exp(estimate.value)
            error = value * estimate.error  # delta method: σ(exp x) ≈ exp(x) σ(x)
            if self._is_skewed(estimate) or value > LARGE:
                return _ratio(value)
        return with_error(value, error, self.signed)


def _ratio(value: float) -> str:
    """Format a ratio with two significant digits, since its interval is wide; ratios above LARGE as "over 100"."""
    if value > LARGE:
        return f"over {LARGE}"
    return f"{value:.{max(1 - math.floor(math.log10(value)), 0)}f}"


def with_error(value: int | float, error: int | float, signed: bool = False) -> str:
    """Format a number ± its standard error, both rounded to two significant digits of the error."""
    sign = "+" if signed else ""
    if error == 0 or math.isinf(error):
        return f"{value:{sign}.3g}" + (" (error not known)" if error else "")
    digits = min(max(1 - math.floor(math.log10(error)), 0), 5)
    return f"{value:{sign}.{digits}f} ± {error:.{digits}f}"


PERCENT = Unit("%", scale=100)
POINTS = Unit("percentage points", scale=100, signed=True)
NATS = Unit("nats per token", signed=True)
TIMES = Unit("times", is_log=True)  # of estimates that are logarithms of ratios
NUMBER = Unit("")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim: its statement, its source, and how results decide it.

    Attributes:
        id: LESSON-NAME, such as "wanda-accuracy"; its anchor on the claims page.
        text: the claim in one sentence, without a full stop.
        source: the paper or talk that makes the claim.
        results: the result files that `measure` needs, as LESSON/NAME or bench/NAME without ".json".
        basis: how a claim without result files is decided.
        from_source: whether the numbers of the source's own tables decide it; nothing is then measured here.
        measure: takes the loaded results in that order; returns one estimate or a mapping from case to estimate.
        above, below: the threshold. The claim is right where every estimate is above (or below) it. Without either,
            the claim is right where the estimate is above 0.
        because: the reason for the threshold: the source's own words, or a convention of the field.
        criterion: replaces the threshold's text where the estimate says little, such as a distance from a tolerance.
        other_thresholds: thresholds that another reader could reasonably choose; the page says at which of them the
            verdict would change.
        unit: how estimates are written.
        quantity: meaning of the number that is shown, such as "perplexity over the dense model's".
        refuted: the outcome that would refute the claim.
        published: the number that the source reports, in the claim's unit, with the model that it was measured on; a
            function where it is computed from the lesson's published.json.
        larger_models: whether the claim is about larger models than the one measured.
        shown: returns the text that is shown as our value, where the estimate itself says little.
    """

    id: str
    text: str
    measure: Callable[..., Effects]
    quantity: str
    refuted: str
    results: tuple[str, ...] = ()
    basis: str = "counted from shapes"
    from_source: bool = False
    source: str = ""
    above: int | float | None = None
    below: int | float | None = None
    because: str = ""
    criterion: str = ""
    other_thresholds: tuple[int | float, ...] = ()
    unit: Unit = NATS
    published: str | Callable[[], str] = ""
    larger_models: bool = False
    shown: Callable[..., str] | None = None

    def __post_init__(self) -> None:
        if self.above is not None and self.below is not None:
            raise ValueError(f"claim {self.id}: got above={self.above} and below={self.below}; expected one threshold.")

    @property
    def threshold(self) -> int | float:
        return self.below if self.below is not None else self.above or 0.0

    @property
    def counts_as(self) -> str:
        """The condition under which the claim is right, with its reason: "less than 1.01 times: ..."."""
        if self.criterion:
            return self.criterion
        side = "less" if self.below is not None else "more"
        return f"{side} than {self.unit.threshold(self.threshold)}" + (f": {self.because}" if self.because else "")

    @property
    def lesson(self) -> str:
        """The folder of the lesson that judges the claim."""
        return self.id.partition("-")[0]

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(map(result_path, self.results))

    @property
    def published_value(self) -> str:
        return self.published() if callable(self.published) else self.published

    def judge(self, *results: dict[str, Any] | None) -> "Judgement":
        """Judge the claim by these results (or by one that joins them); without arguments, by the stored results.

        Raises:
            ValueError: a result is missing, incomplete or of another version.
        """
        loaded = tuple(result for result in results if result is not None)
        if not loaded:
            return _judge_committed(self)
        if len(loaded) not in (1, len(self.results)):
            raise ValueError(f"claim {self.id}: got {len(loaded)} results; expected {', '.join(self.results)}.")
        return self._judged(loaded)

    def _judged(self, results: tuple[dict[str, Any], ...]) -> "Judgement":
        estimates = self.measure(*results) if self.results else self.measure()
        by_case = {"": estimates} if isinstance(estimates, Effect) else dict(estimates)
        effects = {name: self._effect(estimate) for name, estimate in by_case.items()}
        if not effects:
            return Judgement(self, {}, {}, NOT_MEASURED, "–")
        evidence = effects[""] if isinstance(estimates, Effect) else effects
        ours = self.shown(*results) if self.shown else self._ours(estimates)
        return Judgement(self, by_case, effects, verdict(evidence, self.larger_models), ours)

    def _effect(self, estimate: Effect, threshold: int | float | None = None) -> Effect:
        threshold = self.threshold if threshold is None else threshold
        return estimate.below(threshold) if self.below is not None else estimate.above(threshold)

    def _ours(self, estimates: Effects) -> str:
        return self.unit(estimates) if isinstance(estimates, Effect) else self.unit.several(estimates)


@dataclass(frozen=True)
class Judgement:
    """A claim with our estimates, their distances from the threshold (`effects`), and the verdict.

    The result of a run that was stopped early may contain no case of a claim; the verdict is then "not measured".
    """

    claim: Claim
    estimates: Mapping[str, Effect]
    effects: Mapping[str, Effect]
    words: str  # the verdict with its details
    ours: str  # our value in the claim's unit

    @property
    def verdict(self) -> str:
        """One of the words of `verdicts.WORDS`, without details."""
        return word_of(self.words)

    @property
    def n(self) -> str:
        """The number of independent samples per case; an en dash where it is not known."""
        sizes = sorted({effect.n for effect in self.effects.values() if effect.n is not None})
        if not sizes or any(effect.n is None for effect in self.effects.values()):
            return "–"
        return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"

    @property
    def flips(self) -> dict[str, str]:
        """The verdict at each of the claim's other thresholds (in its unit) at which it would change."""
        words = {}
        for threshold in self.claim.other_thresholds:
            effects = {name: self.claim._effect(estimate, threshold) for name, estimate in self.estimates.items()}
            words[self.claim.unit.threshold(threshold)] = verdict(effects.get("", effects), self.claim.larger_models)
        return {threshold: word for threshold, word in words.items() if word_of(word) != self.verdict}

    def __str__(self) -> str:
        published = f"; published: {value}" if (value := self.claim.published_value) else ""
        quantity = "" if self.claim.shown else f", {self.claim.quantity}"
        first = f"Claim: {self.claim.text}"
        place = "In the source's own table" if self.claim.from_source else "Here"
        details = (f"{place}{quantity}: {self.ours}{published}", f"Verdict: {self.words}")
        return "\n".join([_wrapped(first, ""), *(_wrapped(line, "    ") for line in details)])

    __repr__ = __str__


def result_path(name: str) -> Path:
    """Return the path of a result: LESSON/NAME of `course reproduce`, bench/NAME of `course bench` or `make gpu`."""
    if name.startswith(BENCH):
        return Path(kernels.__path__[0]) / "bench" / "results" / f"{name.removeprefix(BENCH)}.json"
    return result_file(*name.split("/", 1))


def _wrapped(line: str, indent: str) -> str:
    return textwrap.fill(line, COLUMNS, initial_indent=indent, subsequent_indent=indent + "    ")


def report(claims: Iterable[Claim], *results: dict[str, Any] | None) -> str:
    """Format each claim with our value and the verdict, judged by these results or by the stored ones."""
    return "\n".join(str(claim.judge(*results)) for claim in claims)


@lru_cache(maxsize=512)
def _judge_committed(claim: Claim) -> Judgement:
    results = tuple(map(load, claim.paths))
    try:
        return claim._judged(results)
    except (KeyError, IndexError, TypeError, AttributeError, StopIteration, ValueError) as error:
        commands = ", ".join(result.get("command", "course reproduce") for result in results)
        raise ValueError(
            f"claim {claim.id} cannot be computed from {', '.join(map(str, claim.paths))} ({type(error).__name__}: "
            f"{error}). The result is incomplete or of another version: measure it again ({commands} --no-resume)."
        ) from error
