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
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

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
    mistakes=(
        Mistake(
            "predictor forgotten",
            "The predictor is missing. It reads both of its matrices for every token, in every block, and that is what "
            "the choice of neurons costs.",
            _counted(lambda c: {"predictor": 0.0}),
            also=(
                _speeds(lambda c: c.dense / (c.kept + c.others))[0],
                _speeds(lambda c: c.dense / (c.kept + c.others))[1],
                _with(even=lambda c: 1 / c.gather),
            ),
        ),
        Mistake(
            "1 / density",
            "This is one over the density: as if a token read the MLPs alone, in order, and knew for nothing which "
            "neurons it needs.",
            _speeds(lambda c: c.mlp * c.gather / c.kept)[0],
            also=(
                _speeds(lambda c: c.mlp * c.gather / c.kept)[1],
                _with(*2 * (lambda c: c.mlp * c.gather / c.kept,)),
                _with(*2 * (lambda c: c.mlp * c.gather / c.kept,), lambda c: 1 / c.gather),
            ),
        ),
        Mistake(
            "the MLPs alone",
            "Only the MLPs were counted. A token also reads the attention, the cache and the head, which stay as they "
            "are and are part of both times.",
            _counted(lambda c: {"others": 0.0}),
            also=(
                _speeds(lambda c: c.mlp / (c.kept + c.predictor))[0],
                _speeds(lambda c: c.mlp / (c.kept + c.predictor))[1],
            ),
        ),
        Mistake(
            "the MLPs alone, without a predictor",
            "Only the MLPs were counted. A token also reads the attention, the cache and the head, which are part of "
            "both times, and the predictor, in full, which is part of the sparse time.",
            _speeds(lambda c: c.mlp / c.kept)[0],
            also=(_speeds(lambda c: c.mlp / c.kept)[1],),
        ),
        Mistake(
            "the others on one side",
            "The numbers outside of the MLPs were counted in one of the two times only. They are read either way.",
            _speeds(lambda c: c.dense / (c.kept + c.predictor))[0],
            also=(
                _speeds(lambda c: c.dense / (c.kept + c.predictor))[1],
                _speeds(lambda c: c.mlp / c.sparse)[0],
                _speeds(lambda c: c.mlp / c.sparse)[1],
            ),
        ),
        Mistake(
            "prompt left out, or faster too",
            "The whole answer is as much faster as a token, so the prompt was left out, or became faster too. It is "
            "part of both times, and stays dense: its tokens are read together, and what one of them does not need "
            "another does.",
            _with(whole=lambda c: c.token),
        ),
        Mistake(
            "prompt on one side",
            "The prompt was counted in one of the two times only. It is read either way, and takes as long.",
            _with(whole=lambda c: c.n_tokens * c.dense / (c.prompt * c.dense + c.n_tokens * c.sparse)),
            also=(_with(whole=lambda c: (c.prompt + c.n_tokens) * c.dense / (c.n_tokens * c.sparse)),),
        ),
        Mistake(
            "prompt in another unit",
            "`prompt` was added unconverted to numbers that are read, on one side or on both. It is a time in decoded "
            "dense tokens: multiply it by what a dense token reads, on both sides.",
            _with(whole=lambda c: (c.prompt + c.n_tokens * c.dense) / (c.prompt + c.n_tokens * c.sparse)),
            also=(_with(whole=lambda c: (c.prompt + c.n_tokens) * c.dense / (c.prompt + c.n_tokens * c.sparse)),),
        ),
        Mistake(
            "mean of the speeds",
            "The two speeds were averaged. Times add up, speeds do not: add the times of prompt and answer on each "
            "side, and divide once.",
            _with(whole=lambda c: (c.prompt + c.n_tokens * c.token) / (c.prompt + c.n_tokens)),
            also=(_with(whole=lambda c: (1 + c.token) / 2),),
        ),
        Mistake(
            "gathering for nothing",
            "A gathered number counts as one that is read in order. It takes `gather` times as long.",
            _counted(lambda c: {"kept": c.kept / c.gather, "gather": 1.0}),
            also=(
                _speeds(lambda c: c.dense / (c.kept / c.gather + c.predictor + c.others))[0],
                _speeds(lambda c: c.dense / (c.kept / c.gather + c.predictor + c.others))[1],
                _with(even=lambda c: max(0.0, 1 - c.predictor / c.mlp)),
            ),
        ),
        Mistake(
            "divided by the factor",
            "Gathering makes a number dearer: multiply by `gather`.",
            _counted(lambda c: {"kept": c.kept / c.gather**2, "gather": 1 / c.gather}),
            also=(
                _speeds(lambda c: c.dense / (c.kept / c.gather**2 + c.predictor + c.others))[0],
                _speeds(lambda c: c.dense / (c.kept / c.gather**2 + c.predictor + c.others))[1],
                _with(even=lambda c: max(0.0, c.gather * (c.mlp - c.predictor) / c.mlp)),
            ),
        ),
        Mistake(
            "gathering all of it",
            "Only the weights of the kept neurons are gathered. The predictor and everything else are read in order.",
            _speeds(lambda c: c.dense / (c.kept + c.gather * c.predictor + c.others))[0],
            also=(
                _speeds(lambda c: c.dense / (c.gather * c.sparse - (c.gather - 1) * c.kept))[0],
                lambda *sizes: _all_gathered(_costs(*sizes)),
                _with(even=lambda c: max(0.0, 1 / c.gather - c.predictor / c.mlp)),
                _counted(lambda c: {"predictor": c.gather * c.predictor}),
            ),
        ),
        Mistake(
            "two matrices in the MLP",
            "Two matrices were counted in an MLP, or one, in both times or in the sparse one. The MLP is gated: gate, "
            "up and down, three matrices of width times neurons.",
            _counted(lambda c: {"mlp": c.mlp * 2 / 3, "kept": c.kept * 2 / 3}),
            also=(
                _counted(lambda c: {"mlp": c.mlp / 3, "kept": c.kept / 3}),
                _counted(lambda c: {"kept": c.kept * 2 / 3}),
                _counted(lambda c: {"kept": c.kept / 3}),
            ),
        ),
        Mistake(
            "predictor of another size",
            "The predictor is two matrices, width times rank and rank times neurons: rank · (width + neurons) numbers.",
            lambda d, f, b, r, *rest: replace(_costs(d, f, b, r, *rest), predictor=d * f * b).answer,
            also=(
                lambda d, f, b, r, *rest: replace(_costs(d, f, b, r, *rest), predictor=r * d * f * b).answer,
                lambda d, f, b, r, *rest: replace(_costs(d, f, b, r, *rest), predictor=r * d * b).answer,
                lambda d, f, b, r, *rest: replace(_costs(d, f, b, r, *rest), predictor=r * f * b).answer,
                lambda d, f, b, r, *rest: replace(_costs(d, f, b, r, *rest), predictor=2 * r * d * b).answer,
                lambda d, f, b, r, *rest: replace(_costs(d, f, b, r, *rest), predictor=(d * r + f) * b).answer,
            ),
        ),
        Mistake(
            "one predictor for all blocks",
            "Each block has a predictor of its own: multiply by `blocks`.",
            lambda d, f, b, *rest: (
                replace(_costs(d, f, b, *rest), predictor=_costs(d, f, b, *rest).predictor / b).answer
            ),
        ),
        Mistake(
            "sparse predictor",
            "The predictor has to be read in full, whatever share of the neurons it then chooses.",
            lambda d, f, b, r, o, s, *rest: (
                replace(_costs(d, f, b, r, o, s, *rest), predictor=s * r * (d + f) * b).answer
            ),
            also=(
                lambda d, f, b, r, o, s, *rest: (
                    replace(_costs(d, f, b, r, o, s, *rest), predictor=r * (d + s * f) * b).answer
                ),
                _counted(lambda c: {"predictor": c.predictor * c.kept / c.mlp}),
                lambda *sizes: _predictor_in_proportion(_costs(*sizes)),
                _speeds(lambda c: c.dense / (c.kept + c.predictor * c.kept / c.mlp / c.gather + c.others))[0],
                _speeds(lambda c: c.dense / (c.kept + c.predictor * c.kept / c.mlp / c.gather + c.others))[1],
                _speeds(lambda c: c.dense / (c.kept + c.predictor * c.kept / c.mlp + c.others))[0],
                _speeds(lambda c: c.dense / (c.kept + c.predictor * c.kept / c.mlp + c.others))[1],
            ),
        ),
        Mistake(
            "blocks counted wrongly",
            "Every block has an MLP and a predictor, so both are multiplied by `blocks`. `others` is already the sum "
            "over all blocks.",
            _sizes(lambda d, f, b, *rest: (d, f, 1, *rest)),
            also=(_sizes(lambda d, f, b, r, o, *rest: (d, f, b, r, o * b, *rest)),),
        ),
        Mistake(
            "the others became sparse too",
            "The density was applied to everything. Only the neurons of the MLPs are chosen; attention, cache and head "
            "are read as before.",
            _speeds(lambda c: c.dense / (c.kept + c.predictor + c.others * c.kept / c.mlp))[0],
            also=(_speeds(lambda c: c.dense / (c.kept + c.predictor + c.others * c.kept / c.mlp / c.gather))[0],),
        ),
        Mistake(
            "what leaves for what stays",
            "1 − density of the neurons was read. density is the share that is kept.",
            _sizes(lambda d, f, b, r, o, s, *rest: (d, f, b, r, o, 1 - s, *rest)),
        ),
        Mistake(
            "break-even sparsity",
            "The third number is the fraction of neurons that is skipped at break-even. A density is the fraction that "
            "is kept.",
            _with(even=lambda c: 1 - c.even),
        ),
        Mistake(
            "times for speeds",
            "These are the times, as shares of the dense one, or what is saved of them. How many times faster is dense "
            "divided by sparse.",
            _with(lambda c: 1 / c.token, lambda c: 1 / c.whole),
            also=(_with(lambda c: 1 - 1 / c.token, lambda c: 1 - 1 / c.whole),),
        ),
        Mistake(
            "how much more, not how many times",
            "One was subtracted from how many times faster it is. The exercise asks for dense divided by sparse: 1 "
            "where both take as long.",
            _with(lambda c: c.token - 1, lambda c: c.whole - 1),
        ),
        Mistake(
            "below zero",
            "A density is never below zero. Where the predictor is larger than what it saves, the answer is 0.",
            _with(even=lambda c: (c.mlp - c.predictor) / (c.gather * c.mlp)),
        ),
        Mistake(
            "the others in the break-even",
            "What is outside of the MLPs stands on both sides of the equation and cancels: the density at which sparse "
            "and dense are equal depends on the MLP, its predictor and the gathering alone.",
            _with(even=lambda c: max(0.0, (c.dense - c.predictor) / (c.gather * c.dense))),
            also=(
                _with(even=lambda c: max(0.0, (c.mlp - c.predictor) / (c.gather * c.dense))),
                _with(even=lambda c: max(0.0, (c.mlp - c.predictor - c.others) / (c.gather * c.mlp))),
                _with(even=lambda c: max(0.0, (c.dense - c.predictor) / (c.gather * c.mlp))),
            ),
        ),
        Mistake(
            "predictor added",
            "The predictor's time is part of the sparse side: what is left of the MLP's time for the kept neurons is "
            "the MLP less the predictor.",
            _with(even=lambda c: (c.mlp + c.predictor) / (c.gather * c.mlp)),
        ),
        Mistake(
            "rounded to whole neurons",
            "density is a mean over many tokens: the number of neurons kept need not be a whole one.",
            lambda d, f, b, r, o, s, *rest: (
                *_when(d, f, b, r, o, round(s * f) / f, *rest)[:2],
                _when(d, f, b, r, o, s, *rest)[2],
            ),
            also=(
                lambda d, f, b, r, o, s, *rest: (
                    *_when(d, f, b, r, o, int(s * f) / f, *rest)[:2],
                    _when(d, f, b, r, o, s, *rest)[2],
                ),
            ),
        ),
        Mistake(
            "in another order",
            "A token comes first, then the whole answer, then the break-even density.",
            lambda *sizes: _when(*sizes)[::-1],
            also=(lambda *sizes: (_when(*sizes)[1], _when(*sizes)[0], _when(*sizes)[2]),),
        ),
        Mistake(
            "not three numbers",
            "Three numbers are asked for: how much faster a token is, how much faster the whole answer is, and the "
            "break-even density.",
            lambda *sizes: _when(*sizes)[0],
            also=(lambda *sizes: _when(*sizes)[:2], lambda *sizes: (_when(*sizes)[0], _when(*sizes)[2])),
        ),
    ),
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
