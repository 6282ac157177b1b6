"""The exercise dejavu.break_even, "When it pays": its cases and its named mistakes.

Dimension key, the arguments in their order: d width, f neurons, b blocks, r rank, o numbers of others, s share of the
neurons that is kept, g factor of gathering, p prompt, n tokens of the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Number = int | float


@dataclass(frozen=True)
class Costs:
    """Numbers read, all times the length of reading one of them in order."""

    mlp: Number  # dense
    others: Number
    predictor: Number
    kept: Number  # of the sparse MLP
    gather: Number
    prompt: Number
    n_tokens: Number

    @property
    def dense(self) -> Number:
        return self.mlp + self.others

    @property
    def sparse(self) -> Number:
        return self.kept + self.predictor + self.others

    @property
    def token(self) -> Number:
        return self.dense / self.sparse

    @property
    def whole(self) -> Number:
        return (self.prompt + self.n_tokens) * self.dense / (self.prompt * self.dense + self.n_tokens * self.sparse)

    @property
    def even(self) -> Number:
        return max(0.0, (self.mlp - self.predictor) / (self.gather * self.mlp))

    @property
    def answer(self) -> tuple[Number, Number, Number]:
        return self.token, self.whole, self.even


def _costs(d: int, f: int, b: int, r: int, o: int, s: Number, g: Number, p: Number, n: int) -> Costs:
    mlp = 3 * d * f * b
    return Costs(mlp, o, r * (d + f) * b, g * s * mlp, g, p, n)


def _when(*sizes: Number) -> tuple[Number, Number, Number]:
    return _costs(*sizes).answer


def _counted(change: Callable[[Costs], dict[str, Any]]) -> Callable[..., tuple[Number, ...]]:
    """The answer with other counts from the beginning."""

    def answer(*sizes: Number) -> tuple[Number, ...]:
        costs = _costs(*sizes)
        return replace(costs, **change(costs)).answer

    return answer


def _with(
    token: Callable[[Costs], Number] | None = None,
    whole: Callable[[Costs], Number] | None = None,
    even: Callable[[Costs], Number] | None = None,
) -> Callable[..., tuple[Number, ...]]:
    """The answer with another number in some of its three places."""

    def answer(*sizes: Number) -> tuple[Number, ...]:
        costs = _costs(*sizes)
        changed = (token, whole, even)
        return tuple(
            right if other is None else other(costs) for right, other in zip(costs.answer, changed, strict=True)
        )

    return answer


def _whole_by(speed: Number, c: Costs) -> Number:
    """The answer as a whole, from how much faster a token is."""
    return (c.prompt + c.n_tokens) / (c.prompt + c.n_tokens / speed)


def _speeds(token: Callable[[Costs], Number]) -> tuple[Callable[..., tuple[Number, ...]], ...]:
    """Another speed of a token: followed through to the whole answer, or said of the token alone."""
    return _with(token, lambda c: _whole_by(token(c), c)), _with(token)


def _all_gathered(c: Costs) -> tuple[Number, Number, Number]:
    """Predictor and others gathered too, followed through to the break-even."""
    token = c.dense / (c.kept + c.gather * (c.predictor + c.others))
    return token, _whole_by(token, c), max(0.0, (c.dense / c.gather - c.predictor - c.others) / c.mlp)


def _predictor_in_proportion(c: Costs) -> tuple[Number, Number, Number]:
    """The predictor shrunk by the density, followed through to the break-even."""
    token = c.dense / (c.kept * (1 + c.predictor / c.mlp / c.gather) + c.others)
    return token, _whole_by(token, c), c.mlp / (c.gather * c.mlp + c.predictor)


def _sizes(change: Callable[..., tuple[Number, ...]]) -> Callable[..., tuple[Number, ...]]:
    """The answer for other arguments."""
    return lambda *sizes: _when(*change(*sizes))


def _break_even_cases(generator: torch.Generator) -> list[Case]:
    drawn = partial(whole, generator)

    def share(low: Number, high: Number) -> Number:
        return low + (high - low) * torch.rand((), generator=generator).item()

    def sizes() -> tuple[Number, ...]:
        """A predictor of some per cent of the MLP, and a prompt that is longer or shorter than the answer."""
        width, rank = drawn(200, 900), drawn(16, 80)
        neurons, blocks = width * drawn(3, 9) + 8, drawn(4, 40)
        others = drawn(1, 4) * blocks * width**2
        prompt = share(5.0, 120.0)
        return width, neurons, blocks, rank, others, share(0.05, 0.4), share(1.2, 2.5), prompt, drawn(20, 200)

    smollm2 = (576, 1536, 30, 64, 26_542_080 + 28_311_552)
    return [
        Case("one block by hand: 400 numbers a token, or 256; even at 0.45", (4, 20, 1, 1, 160, 0.15, 2.0, 5.0, 10)),
        Case("SmolLM2, rank 64, a fifth of the neurons", (*smollm2, 0.2, 2.0, 12.0, 100)),
        Case("SmolLM2, nine neurons of ten: slower than dense", (*smollm2, 0.9, 1.8, 30.0, 50)),
        Case("a predictor that is larger than the MLP", (64, 96, 6, 130, 150_000, 0.1, 1.5, 8.0, 40)),
        *(Case(f"random sizes, {number}", sizes()) for number in (1, 2, 3)),
    ]


def _library(*sizes: int | float) -> tuple[int | float, ...]:
    from course_lib.lessons.dejavu.steps.payoff import payoff

    return payoff(*sizes)


BREAK_EVEN = Exercise(
    id="dejavu.break_even",
    title="When it pays",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_when,
    cases=_break_even_cases,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("in bytes", lambda *sizes: _in_bytes(*sizes)),
        Variant("a tensor", lambda *sizes: torch.tensor(_when(*sizes))),
        Variant("by Amdahl's law", lambda *sizes: _amdahl(*sizes)),
    ),
    hints=(
        "Write down what a dense token reads, mlp + others, and what a sparse one reads. Which of its parts are read "
        "in order, and which gathered?",
        "Times add up, speeds do not. The prompt takes as long as `prompt` dense tokens, before and after.",
        "At break-even gather · density · mlp + predictor = mlp: `others` has cancelled. Solve for the density, and "
        "take 0 where that is below zero.",
    ),
)


def _in_bytes(d, f, b, r, o, s, g, p, n):
    matrix, seconds = 4.0 * d * f, 1 / 9.7e9
    dense = seconds * (b * 3 * matrix + 4 * o)
    sparse = seconds * (b * (3 * matrix * s * g + 4 * r * d + 4 * f * r) + 4 * o)
    even = (1 - r * (d + f) / (3 * d * f)) / g
    return dense / sparse, (p * dense + n * dense) / (p * dense + n * sparse), even if even > 0 else 0


def _amdahl(d, f, b, r, o, s, g, p, n):
    share = 3 * d * f * b / (3 * d * f * b + o)
    shrunk = g * s + r / 3 * (1 / d + 1 / f)
    token = 1 / (1 - share + share * shrunk)
    decoding = n / (p + n)
    return token, 1 / (1 - decoding + decoding / token), max((1 - r / 3 * (1 / d + 1 / f)) / g, 0.0)
