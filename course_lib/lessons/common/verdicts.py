"""The words that a lesson says of a claim, from an effect and its error: never from an estimate alone."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.measure.paired import mean_and_error

WORDS = ("holds", "holds partly", "does not hold", "not at this scale", "cannot tell")
FAILS = WORDS[2]
ERRORS = 2.0  # so many standard errors from the threshold decide
NOT_MEASURED = "not measured"
_OUT_OF_REACH = 100  # times the sample: beyond that, its size says nothing


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How far a measurement lies on the claim's side of the claim's own threshold, and how well that is known.

    Of "at least 1.5 times" the value is the log ratio less log 1.5. The error is the standard error of the value, from
    paired samples where there are pairs; 0 where all cases that exist were counted, such as the layers of a model;
    infinite where it is not known. n is the number of independent samples behind it: say it beside the verdict where it
    is below 20, for the error of so few is known roughly at best.
    """

    value: float
    error: float
    n: int | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value) or not self.error >= 0 or (self.n is not None and self.n < 1):
            raise ValueError(
                f"got value={self.value}, error={self.error}, n={self.n}; expected a finite value, an error of 0 or "
                "more (infinite where it is not known), and a sample of at least one or None."
            )

    @property
    def holds(self) -> bool:
        return self.value > ERRORS * self.error

    @property
    def fails(self) -> bool:
        return self.value < -ERRORS * self.error or (self.error == 0 and self.value <= 0)

    @property
    def undecided(self) -> bool:
        return not self.holds and not self.fails


@dataclass(frozen=True)
class Said:
    """A verdict that was given: its words, and the effects of the claim's cases on which it stands."""

    words: str
    effects: tuple[Effect, ...]


_HEARD: ContextVar[list[Said] | None] = ContextVar("heard", default=None)


@contextmanager
def overheard() -> Iterator[list[Said]]:
    """The verdicts that are given while inside, in their order, for whoever wants a line's numbers with the line."""
    heard: list[Said] = []
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def of_samples(samples: Float[Tensor, "n"] | Sequence[int | float], threshold: float = 0.0) -> Effect:
    """The mean of independent samples, of paired differences for example, measured from a threshold."""
    mean, error = mean_and_error(samples)
    return Effect(value=mean - threshold, error=error, n=len(samples))


def of_count(n_held: int, of: int, more_than: float) -> Effect:
    """A share of all cases that exist, such as the layers of a model, that must exceed a threshold: exact."""
    return Effect(value=n_held / of - more_than, error=0.0, n=of)


def of_independent(better: tuple[float, float], worse: tuple[float, float], threshold: float = 0.0) -> Effect:
    """`worse` above `better`, both with their standard errors, measured from a threshold.

    For results without pairs. On the same windows or questions the errors partly cancel, and this one is too wide.
    """
    value = worse[0] - better[0] - threshold
    return Effect(value=value, error=math.hypot(better[1], worse[1]))


def verdict(effects: Effect | Iterable[Effect], larger_models: bool = False) -> str:
    """What is said of a claim, from its effect or from those of several cases that the claim names.

    - "holds": the value is more than two errors above 0; of several cases in all of them.
    - "holds partly (3 of 4)": in some of several cases.
    - "does not hold": the value is more than two errors below 0, or exactly counted and not above 0; of several cases,
      none holds and some fail like this. Where the others are undecided, with the count: "does not hold (fails in 2 of
      6)". "not at this scale" instead, where the claim is about larger models.
    - "cannot tell": otherwise. Where n is known, with the sample that could: an error falls with its root.

    Raises:
        ValueError: no effect at all.
    """
    cases = [effects] if isinstance(effects, Effect) else list(effects)
    if not cases:
        raise ValueError("got no effect; expected one, or one for each case of the claim.")
    words = _words(cases, larger_models)
    if (heard := _HEARD.get()) is not None:
        heard.append(Said(words, tuple(cases)))
    return words


def _words(cases: list[Effect], larger_models: bool) -> str:
    n_held = sum(case.holds for case in cases)
    if n_held == len(cases):
        return "holds"
    if n_held:
        return f"holds partly ({n_held} of {len(cases)})"
    n_failed = sum(case.fails for case in cases)
    if n_failed:
        word = "not at this scale" if larger_models else "does not hold"
        return word if n_failed == len(cases) else f"{word} (fails in {n_failed} of {len(cases)})"
    return "cannot tell" + _sample_that_could(cases)


def said(effect: Effect, digits: int = 3) -> str:
    """Value and error as they are printed."""
    return f"{effect.value:+.{digits}f} ± {effect.error:.{digits}f}"


def claim(text: str, effects: Effect | Iterable[Effect], larger_models: bool = False) -> str:
    """The line of a claim and its verdict; without an effect, that nothing was measured."""
    cases = [effects] if isinstance(effects, Effect) else list(effects)
    return f"Claim: {text}: {verdict(cases, larger_models) if cases else NOT_MEASURED}"


def _sample_that_could(undecided: list[Effect]) -> str:
    """(2 · error / value)² times the sample brings two errors down to the value; the hardest case counts."""
    if any(case.n is None or math.isinf(case.error) for case in undecided):
        return ""
    times, n = max((_times(case), case.n) for case in undecided)
    if times > _OUT_OF_REACH:
        return f" (not with {_OUT_OF_REACH} times the sample, n = {n})"
    return f" (about {_rounded(times)} times the sample would: n = {math.ceil(times * n)})"


def _times(case: Effect) -> float:
    return (ERRORS * case.error / case.value) ** 2 if case.value else math.inf


def _rounded(times: float) -> str:
    return f"{times:.0f}" if times >= 3 else f"{times:.1f}"
