"""The exercise capstone.gain, "What a draft is worth": its cases and its named mistakes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial, Variant

Number = int | float
Answer = Callable[[Number, int, Number, Number, Number], Any]
Tokens = Callable[[Number, int], Number]
Cost = Callable[[int, Number, Number, Number], Number]  # (k, model, further, draft) -> of a pass


def _tokens(acceptance: Number, k: int) -> Number:
    return sum(acceptance**i for i in range(k + 1))


def _cost(k: int, model: Number, further: Number, draft: Number) -> Number:
    return model + k * (further + draft)


def _less(before: Number, after: Number, tokens: Number) -> Number:
    return before - after / tokens


def _with(
    tokens: Tokens = _tokens, cost: Cost = _cost, gain: Callable[[Number, Number, Number], Number] = _less
) -> Answer:
    def answer(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
        n = tokens(acceptance, k)
        return n, gain(model, cost(k, model, further, draft), n)

    return answer


def _quotient(power: int) -> Tokens:
    """By the formula, with another power; a division by zero where all stay."""
    return lambda acceptance, k: (1 - acceptance ** (k + power)) / (1 - acceptance)


def _power(power: int) -> Tokens:
    """The same where all stay too."""
    return lambda acceptance, k: sum(acceptance**i for i in range(k + power))


def _gain_cases(generator: torch.Generator) -> list[Case]:
    uniform = partial(torch.rand, (), generator=generator)

    def drawn(k: int, low: float, high: float, share: float) -> tuple[Any, ...]:
        """share: of the model's cost, about that of the draft."""
        model = 10 + 90 * float(uniform())
        draft, further = (model * part * (0.6 + 0.8 * float(uniform())) for part in (share, 0.06))
        return low + (high - low) * float(uniform()), k, model, further, draft

    return [
        Case("by hand: half stays, 2 drafted, 1 + ½ + ¼ tokens for 7 + 2 · (¼ + ¼)", (0.5, 2, 7.0, 0.25, 0.25)),
        Case("4 drafted by something cheap", drawn(4, 0.55, 0.85, 0.1)),
        Case("a draft of half the cost", drawn(3, 0.7, 0.95, 0.5)),
        Case("lookup, which costs nothing", (*drawn(6, 0.2, 0.5, 0.1)[:4], 0.0)),
        Case("all stay", (1.0, *drawn(5, 0.5, 0.9, 0.2)[1:])),
        Case("none stays", (0.0, *drawn(4, 0.5, 0.9, 0.2)[1:])),
        Case("a single drafted token", drawn(1, 0.3, 0.9, 0.25)),
        Case("12 drafted", drawn(12, 0.6, 0.95, 0.05)),
    ]


def _library(acceptance: float, k: int, model: float, further: float, draft: float) -> tuple[float, float]:
    from course_lib.lessons.capstone.steps.drafted import tokens_and_gain

    return tokens_and_gain(acceptance, k, model, further, draft)


GAIN = Exercise(
    id="capstone.gain",
    title="What a draft is worth",
    difficulty=2,
    minutes=7,
    points=2,
    reference=_with(),
    cases=_gain_cases,
    library=_library,
    trivial=(
        Trivial(
            "all stay", lambda a, k, model, further, draft: (k + 1.0, model - _cost(k, model, further, draft) / (k + 1))
        ),
        Trivial("none stays", lambda a, k, model, further, draft: (1.0, -k * (further + draft))),
    ),
    mistakes=(
        Mistake(
            "the wrong power",
            "1 + α + … + α^k has k + 1 terms, so it is (1 − α^(k+1)) / (1 − α): one token comes even where none stays.",
            _with(_power(0)),
            also=(
                _with(_quotient(0)),
                _with(_power(2)),
                _with(_quotient(2)),
                _with(_quotient(-1)),
                _with(lambda a, k: sum(a**i for i in range(1, k + 2))),
            ),
        ),
        Mistake(
            "the token behind them forgotten",
            "α + … + α^k of the drafted tokens stay, and a pass adds one more: in place of the one that fell, or "
            "behind all.",
            _with(lambda a, k: sum(a**i for i in range(1, k + 1))),
            also=(
                _with(lambda a, k: a * (1 - a**k) / (1 - a)),
                _with(lambda a, k: a * k),
                _with(lambda a, k: a**k * k),
            ),
        ),
        Mistake(
            "those behind one that fell",
            "kα + 1 counts every drafted token that would stay. Those behind the first that falls are lost: the i-th "
            "is in the text only if all before it are, with probability α^i.",
            _with(lambda a, k: 1 + a * k),
            also=(_with(lambda a, k: a * (k + 1)),),
        ),
        Mistake(
            "all or none",
            "This counts the tokens of a pass only if all of them stay. Those before the first that falls are in the "
            "text too.",
            _with(lambda a, k: 1 + k * a**k),
            also=(_with(lambda a, k: (k + 1) * a**k),),
        ),
        Mistake(
            "where all stay, 0/0",
            "At α = 1 the quotient is 0/0, and the sum is k + 1.",
            _with(_quotient(1)),
            also=(
                _with(lambda a, k: 1.0 if a == 1 else _tokens(a, k)),
                _with(lambda a, k: float(k) if a == 1 else _tokens(a, k)),
                _with(lambda a, k: float("inf") if a == 1 else _tokens(a, k)),
                _with(lambda a, k: float("nan") if a == 1 else _tokens(a, k)),
            ),
        ),
        Mistake(
            "cost of the draft forgotten",
            "The draft was had for nothing. It is read once for each token that it drafts, k times a pass.",
            _with(cost=lambda k, model, further, draft: model + k * further),
            also=(_with(cost=lambda k, model, further, draft: model),),
        ),
        Mistake(
            "the draft paid once",
            "The draft writes token by token: k of them cost k times as much as one.",
            _with(cost=lambda k, model, further, draft: model + k * further + draft),
            also=(_with(cost=lambda k, model, further, draft: model + further + draft),),
        ),
        Mistake(
            "not k drafted tokens",
            "k tokens are drafted for a pass, and the draft is paid for each of them: k times, not k + 1 or k − 1 "
            "times.",
            _with(cost=lambda k, model, further, draft: model + k * further + (k + 1) * draft),
            also=(
                _with(cost=lambda k, model, further, draft: model + k * further + (k - 1) * draft),
                _with(cost=lambda k, model, further, draft: model + (k + 1) * (further + draft)),
                _with(cost=lambda k, model, further, draft: model + (k - 1) * (further + draft)),
            ),
        ),
        Mistake(
            "not k further tokens",
            "A pass reads k + 1 tokens: the newest one of the text and the k drafted ones. One over a single token "
            "costs `model`, and each of the k others adds `further`.",
            _with(cost=lambda k, model, further, draft: model + k * draft),
            also=(
                _with(cost=lambda k, model, further, draft: model + further + k * draft),
                _with(cost=lambda k, model, further, draft: model + (k + 1) * further + k * draft),
                _with(cost=lambda k, model, further, draft: model + (k - 1) * further + k * draft),
            ),
        ),
        Mistake(
            "a pass of the model for every drafted token",
            "The model reads all drafted tokens in one pass. That is what makes it pay.",
            _with(cost=lambda k, model, further, draft: (k + 1) * model + k * draft),
            also=(
                _with(cost=lambda k, model, further, draft: k * (model + draft)),
                _with(cost=lambda k, model, further, draft: (k + 1) * (model + draft)),
                _with(cost=lambda k, model, further, draft: (k + 1) * model + k * (further + draft)),
            ),
        ),
        Mistake(
            "cost of a pass for that of a token",
            "A pass gives more than one token. Divide its cost by how many before it is compared with a token's cost, "
            "or the gain is one of a pass, not of a token.",
            _with(gain=lambda before, after, n: before - after),
            also=(
                _with(gain=lambda before, after, n: before * n - after),
                _with(gain=lambda before, after, n: before - after * n),
            ),
        ),
        Mistake(
            "a ratio",
            "This is a ratio of both costs, or the part of a token's cost that is saved. Asked for is the difference, "
            "which is below 0 where the draft costs more than it saves.",
            _with(gain=lambda before, after, n: before * n / after),
            also=(
                _with(gain=lambda before, after, n: after / n / before),
                _with(gain=lambda before, after, n: 1 - after / n / before),
                _with(gain=lambda before, after, n: before * n / after - 1),
            ),
        ),
        Mistake(
            "what it costs",
            "This is what a token costs with the draft. The gain is by how much less that is than without.",
            _with(gain=lambda before, after, n: after / n),
        ),
        Mistake(
            "wrong sign",
            "A gain is above 0 where a token costs less with the draft than without.",
            _with(gain=lambda before, after, n: after / n - before),
        ),
        Mistake(
            "never a loss",
            "Where the draft costs more than it saves, the gain is below 0.",
            _with(gain=lambda before, after, n: max(0.0, before - after / n)),
            also=(_with(gain=lambda before, after, n: abs(before - after / n)),),
        ),
        Mistake(
            "rounded to whole tokens",
            "How many tokens a pass gives is a mean, and need not be whole.",
            _with(lambda a, k: float(round(_tokens(a, k)))),
            also=(_with(lambda a, k: float(int(_tokens(a, k)))),),
        ),
        Mistake(
            "not these two numbers",
            "Two numbers are asked for: first the tokens of a pass, then the gain for each token.",
            lambda *given: _with()(*given)[0],
            also=(lambda *given: _with()(*given)[1], lambda *given: _with()(*given)[::-1]),
        ),
    ),
    also_right=(
        Variant("the quotient, but for α = 1", _with(lambda a, k: k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a))),
        Variant("where the first falls", lambda *given: _by_first_fall(*given)),
        Variant("Horner's way", _with(lambda a, k: _horner(a, k))),
    ),
    hints=(
        "The i-th drafted token is in the text if it and all before it stay. How probable is that, and what is the sum "
        "over i, with the token that comes in any case?",
        "1 + α + … + α^k can be added up as it stands. The quotient needs α ≠ 1.",
        "A pass reads k + 1 tokens and costs model + k · further; the draft costs k · draft. Divide the sum by the "
        "tokens per pass, and subtract that from model.",
    ),
)


def _by_first_fall(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    """Where the first falls is a random number; its mean is the tokens of a pass."""
    falls_at = [acceptance**i * (1 - acceptance) for i in range(k)]
    tokens = sum((i + 1) * p for i, p in enumerate(falls_at)) + (k + 1) * acceptance**k
    return tokens, (model * tokens - model - k * (further + draft)) / tokens


def _horner(acceptance: Number, k: int) -> Number:
    total = 1.0
    for _ in range(k):
        total = 1 + acceptance * total
    return total
