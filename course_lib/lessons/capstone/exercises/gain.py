"""The exercise capstone.gain, "What a draft is worth": its cases and its named mistakes."""

from functools import partial
from typing import Any

import torch

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Number = int | float


def _gain(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    n = sum(acceptance**i for i in range(k + 1))
    cost = model + k * (further + draft)
    gain = model - cost / n
    return n, gain


def _gain_cases(generator: torch.Generator) -> list[Case]:
    uniform = partial(torch.rand, (), generator=generator)

    def drawn(k: int, low: float, high: float, share: float) -> tuple[Any, ...]:
        """share: of the model's cost, about that of the draft."""
        model = 10 + 90 * float(uniform())
        draft, further = (model * part * (0.6 + 0.8 * float(uniform())) for part in (share, 0.06))
        return low + (high - low) * float(uniform()), k, model, further, draft

    return [
        Case("by hand: α = ½, 2 drafted, 1 + ½ + ¼ tokens for 7 + 2 · (¼ + ¼)", (0.5, 2, 7.0, 0.25, 0.25)),
        Case("4 drafted by a cheap draft", drawn(4, 0.55, 0.85, 0.1)),
        Case("a draft of half the cost", drawn(3, 0.7, 0.95, 0.5)),
        Case("prompt lookup, which costs nothing", (*drawn(6, 0.2, 0.5, 0.1)[:4], 0.0)),
        Case("all are accepted", (1.0, *drawn(5, 0.5, 0.9, 0.2)[1:])),
        Case("none is accepted", (0.0, *drawn(4, 0.5, 0.9, 0.2)[1:])),
        Case("a single drafted token", drawn(1, 0.3, 0.9, 0.25)),
        Case("12 drafted", drawn(12, 0.6, 0.95, 0.05)),
    ]


def _library(acceptance: float, k: int, model: float, further: float, draft: float) -> tuple[float, float]:
    from course_lib.lessons.capstone.methods import tokens_and_gain

    return tokens_and_gain(acceptance, k, model, further, draft)


GAIN = Exercise(
    id="capstone.gain",
    title="What a draft is worth",
    difficulty=2,
    minutes=7,
    points=2,
    reference=_gain,
    cases=_gain_cases,
    library=_library,
    trivial=(
        Trivial(
            "all are accepted",
            lambda a, k, model, further, draft: (k + 1.0, model - (model + k * (further + draft)) / (k + 1)),
        ),
        Trivial("none is accepted", lambda a, k, model, further, draft: (1.0, -k * (further + draft))),
    ),
    mistakes=read_mistakes(globals(), steps_of=_gain),
    also_right=(
        Variant("the quotient, except for α = 1", lambda *given: _by_quotient(*given)),
        Variant("by the place of the first rejection", lambda *given: _by_first_fall(*given)),
        Variant("Horner's way", lambda *given: _horner(*given)),
    ),
    hints=(
        "The i-th drafted token is in the text if it and all before it are accepted. How probable is that, and what is "
        "the sum over i, together with the token that a pass always adds?",
        "You can add up 1 + α + … + α^k term by term. The quotient needs α ≠ 1.",
        "A pass reads k + 1 tokens and costs model + k · further; the draft costs k · draft. Divide the sum by the "
        "tokens per pass, and subtract that from model.",
    ),
)


def _by_first_fall(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    """The place of the first rejection is random; its mean is the number of tokens per pass."""
    falls_at = [acceptance**i * (1 - acceptance) for i in range(k)]
    tokens = sum((i + 1) * p for i, p in enumerate(falls_at)) + (k + 1) * acceptance**k
    return tokens, (model * tokens - model - k * (further + draft)) / tokens


def _by_quotient(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    n = k + 1 if acceptance == 1 else (1 - acceptance ** (k + 1)) / (1 - acceptance)
    return n, model - (model + k * (further + draft)) / n


def _horner(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    n = 1.0
    for _ in range(k):
        n = 1 + acceptance * n
    return n, model - (model + k * (further + draft)) / n
