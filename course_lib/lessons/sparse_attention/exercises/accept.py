"""The exercise sparse_attention.accept, "Which drafted tokens stay": its cases and its named mistakes.

Dimension key: k drafted tokens, V words of the vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial, Variant
from course_lib.checking.near import near
from course_lib.checking.short import short

Answer = Callable[[Tensor, Tensor, Tensor, Tensor], Any]
Stays = Callable[[Tensor, Tensor, Tensor], Tensor]  # (p(x), q(x), luck) of each drafted token -> whether it stays
Next = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]  # (drafted, q, p, luck, n that stay) -> distribution


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """A residual is a difference of float32 numbers divided by their sum, at worst a hundredth in the cases."""
    if not isinstance(expected, tuple) or type(expected[0]) is not int:
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != 2:
        return f"got {short(got)}, expected two values: how many stay, and the next distribution"
    n_differ = close(got[0], expected[0])
    if n_differ:
        return f"tokens that stay: {n_differ}"
    differs = near(got[1], expected[1], 1e-5) if expected[1].ndim else close(got[1], expected[1])
    return f"next distribution: {differs}" if differs else None


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_bars

    names = tuple(map(str, range(len(expected[1]))))
    return compare_bars(torch.as_tensor(got[1]), expected[1], names, "probability of the next token")


def _fits(p: Tensor, q: Tensor, luck: Tensor) -> Tensor:
    return luck < p / q


def _residual(p: Tensor, q: Tensor) -> Tensor:
    missing = (p - q).clamp(min=0)
    return missing / missing.sum()


def _next(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, n: int) -> Tensor:
    return p[n] if n == len(drafted) else _residual(p[n], q[n])


def _until_first(stays: Tensor) -> int:
    return int(stays.long().cumprod(dim=0).sum())


def _with(stays: Stays = _fits, next_: Next = _next, count: Callable[[Tensor], int] = _until_first) -> Answer:
    def answer(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
        at = torch.arange(len(drafted))
        n = count(stays(p[at, drafted], q[at, drafted], luck))
        return n, next_(drafted, q, p, luck, n)

    return answer


def _fallen(change: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Another distribution where a token fell: (p, q) -> (V,)."""
    return _with(next_=lambda x, q, p, luck, n: p[n] if n == len(x) else change(p[n], q[n]))


def _one_hot(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, n: int) -> Tensor:
    """The token that fell, kept all the same."""
    return p[n] if n == len(drafted) else torch.eye(p.shape[1])[drafted[n]].to(p.dtype)


def _count_all(stays: Tensor) -> int:
    return int(stays.sum())


def _counting_the_fallen(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
    n, distribution = _with()(drafted, q, p, luck)
    return min(n + 1, len(drafted)), distribution


def _never_behind(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, n: int) -> Tensor:
    """The residual of the last pair even where nothing fell."""
    return _residual(p[min(n, len(drafted) - 1)], q[min(n, len(drafted) - 1)])


def _accept_cases(generator: torch.Generator) -> list[Case]:
    def drawn(
        k: int, n_words: int, apart: float = 1.0, luck: float | None = None, sharp: float = 1.5
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        logits = sharp * torch.randn(k + 1, n_words, generator=generator)
        p = logits.softmax(dim=1)
        q = (logits[:k] + apart * torch.randn(k, n_words, generator=generator)).softmax(dim=1)
        drafted = torch.multinomial(q, 1, generator=generator)[:, 0]
        drawn = torch.rand(k, generator=generator) if luck is None else torch.full((k,), luck)
        return drafted, q, p, drawn

    def falling_at(place: int, k: int, n_words: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens of which the one at `place` is the first to fall, and later ones would stay."""
        drafted, q, p, _ = drawn(k, n_words, apart=0.7)
        drafted = (q - p[:k]).argmax(dim=1)  # the draft gives it too much, so that it may fall
        ratio = p[torch.arange(k), drafted] / q[torch.arange(k), drafted]
        luck = ratio.clamp(max=1) * 0.9
        luck[place] = (ratio[place] + 1) / 2
        return drafted, q, p, luck

    q = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    p = torch.tensor([[0.25, 0.5, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5]])
    stay = torch.tensor([0, 1]), q, p, torch.tensor([0.375, 0.875])
    fall = torch.tensor([1, 0]), q, p, torch.tensor([0.9, 0.25])
    certain = torch.eye(6)[torch.tensor([2, 4, 1])]
    return [
        Case("2 tokens by hand, both stay: p/q is ½ and 2", stay),
        Case("2 tokens by hand, the second falls at luck = p/q: (0, ⅔, ⅓) is left", fall),
        Case("4 tokens, the third falls", falling_at(2, 4, 6)),
        Case("5 tokens, the first falls, and later ones would stay", falling_at(0, 5, 8)),
        Case("3 tokens, the last falls", falling_at(2, 3, 5)),
        Case("luck of 0: all stay", drawn(4, 7, luck=0.0)),
        Case("a draft that is certain of itself", (torch.tensor([2, 4, 1]), certain, *_of_certain(certain, generator))),
        Case("a single drafted token falls", falling_at(0, 1, 9)),
    ]


def _of_certain(q: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A model that agrees with the first two tokens more or less, and luck by which the third falls."""
    p = torch.randn(4, 6, generator=generator).softmax(dim=1)
    own = (p[:3] * q).sum(dim=1)
    return p, torch.stack([own[0] / 2, own[1] / 3, (own[2] + 1) / 2])


def _library(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
    from course_lib.lessons.sparse_attention.steps.accepted import stays_and_next

    return stays_and_next(drafted, q, p, luck)


ACCEPT = Exercise(
    id="sparse_attention.accept",
    title="Which drafted tokens stay",
    difficulty=3,
    minutes=11,
    points=4,
    reference=_with(),
    cases=_accept_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    trivial=(
        Trivial("keeping everything", lambda x, q, p, u: (len(x), p[-1])),
        Trivial("keeping nothing", lambda x, q, p, u: (0, _residual(p[0], q[0]))),
    ),
    mistakes=(
        Mistake(
            "p/q upside down",
            "A token stays with probability min(1, q/p) here. Where the draft gave a token more than the model does, "
            "p/q is below one, and it is those that have to fall now and then.",
            _with(lambda p, q, luck: luck < q / p),
        ),
        Mistake(
            "p alone",
            "luck was compared with p alone, with p · q or with the smaller of p and q. The draft has drawn the token "
            "with q already: only the ratio p/q makes the two together p.",
            _with(lambda p, q, luck: luck < p),
            also=(_with(lambda p, q, luck: luck < p * q), _with(lambda p, q, luck: luck < torch.minimum(p, q))),
        ),
        Mistake(
            "q alone",
            "luck was compared with q, the draft's own probability. A token stays with probability p/q.",
            _with(lambda p, q, luck: luck < q),
        ),
        Mistake(
            "the row of the next place",
            "The probabilities p belong to another place: token i was compared with row i + 1. Row i of p and row i of "
            "q belong to the place of token i.",
            lambda x, q, p, u: _with_rows_one_on(x, q, p, u),
            also=(lambda x, q, p, u: _with_rows_one_on(x, q, p, u, residual_too=False),),
        ),
        Mistake(
            "the same chance for every token",
            "A token stays with a chance that knows neither p nor q. It is the ratio of the two, token by token.",
            _with(lambda p, q, luck: luck < 0.5),
        ),
        Mistake(
            "a fixed threshold on the ratio",
            "p/q was compared with a fixed number, and luck was left out. It is `luck` that p/q is compared with.",
            _with(lambda p, q, luck: p / q > 0.5),
        ),
        Mistake(
            "only if the model finds it likelier",
            "A token falls whenever p is below q. It stays with probability p/q: luck decides.",
            _with(lambda p, q, luck: p >= q),
            also=(_with(lambda p, q, luck: p > q),),
        ),
        Mistake(
            "above the ratio",
            "A token stays here where luck is above p/q. It stays where luck is below it, which happens with "
            "probability p/q.",
            _with(lambda p, q, luck: luck >= p / q),
            also=(_with(lambda p, q, luck: luck > p / q),),
        ),
        Mistake(
            "only the likeliest word",
            "A token stays if it is the word that the model finds likeliest. That keeps the text of a model that "
            "always takes this word; to keep its distribution, a token stays with probability p/q.",
            lambda x, q, p, u: _if_likeliest(x, q, p, u, _next),
            also=(lambda x, q, p, u: _if_likeliest(x, q, p, u, lambda x, q, p, u, n: p[n]),),
        ),
        Mistake(
            "exactly the ratio",
            "A number in [0, 1) is below p/q with probability p/q; at the ratio itself a token falls.",
            _with(lambda p, q, luck: luck <= p / q),
        ),
        Mistake(
            "the residual not normalised",
            "(p − q)₊ sums to less than one. Divide by its sum: something is drawn in any case.",
            _fallen(lambda p, q: (p - q).clamp(min=0)),
        ),
        Mistake(
            "the draft's token kept",
            "The token that fell is put in its place again. Another one is drawn from what the draft gave too little "
            "of, (p − q)₊.",
            _with(next_=_one_hot),
        ),
        Mistake(
            "the one that fell counted",
            "n counts the token that fell as well. n is how many stay before it.",
            _counting_the_fallen,
        ),
        Mistake(
            "the next token counted too",
            "n is how many of the drafted tokens stay, between 0 and k. The one that is drawn behind them is not "
            "counted.",
            lambda *given: (_with()(*given)[0] + 1, _with()(*given)[1]),
        ),
        Mistake(
            "what both share",
            "min(p, q) is what the tokens that stay make up already. Missing is p less that, (p − q)₊.",
            _fallen(lambda p, q: torch.minimum(p, q) / torch.minimum(p, q).sum()),
        ),
        Mistake(
            "a product or a quotient",
            "The next distribution was made of p · q or p/q. What the draft lacks is a difference, (p − q)₊.",
            _fallen(lambda p, q: p / q / (p / q).sum()),
            also=(_fallen(lambda p, q: p * q / (p * q).sum()),),
        ),
        Mistake(
            "p instead of the residual",
            "Where a token fell, the next is drawn from p. Tokens that the draft likes would then come twice: once as "
            "those that stay, and once more here. Draw from (p − q)₊.",
            _fallen(lambda p, q: p),
            also=(
                lambda x, q, p, u: (_with()(x, q, p, u)[0], p[-1]),
                lambda x, q, p, u: (_with()(x, q, p, u)[0], p[min(_with()(x, q, p, u)[0] + 1, len(x))]),
            ),
        ),
        Mistake(
            "q instead of the residual",
            "Where a token fell, the next is drawn from the draft. It is drawn from (p − q)₊.",
            _fallen(lambda p, q: q),
        ),
        Mistake(
            "residual upside down",
            "(q − p)₊ is what the draft gave too much of. What is missing is (p − q)₊.",
            _fallen(lambda p, q: _residual(q, p)),
        ),
        Mistake(
            "residual of both signs",
            "p − q is negative where the draft gave too much. Those words get nothing: (p − q)₊.",
            _fallen(lambda p, q: p - q),
            also=(_fallen(lambda p, q: (p - q) / (p - q).abs().sum()),),
        ),
        Mistake(
            "absolute difference",
            "|p − q| also counts the words of which the draft gave too much. Those get nothing: (p − q)₊.",
            _fallen(lambda p, q: (p - q).abs() / (p - q).abs().sum()),
        ),
        Mistake(
            "softmax of the difference",
            "The differences went through a softmax. They are no logits: set negative ones to 0 and divide by their "
            "sum.",
            _fallen(lambda p, q: (p - q).softmax(dim=0)),
            also=(_fallen(lambda p, q: (p - q).clamp(min=0).softmax(dim=0)),),
        ),
        Mistake(
            "the fallen word left out",
            "The word that fell was taken out of p. Whether it may come again is for (p − q)₊ to say, which also takes "
            "from every other word what the draft gave to it.",
            lambda x, q, p, u: _without_the_fallen(x, q, p, u),
        ),
        Mistake(
            "residual where nothing fell",
            "If all drafted tokens stay, nothing is left over: the next token is drawn from the last row of p, the "
            "one for the place behind them.",
            _with(next_=_never_behind),
        ),
        Mistake(
            "the wrong row behind all",
            "The token after all drafted ones comes from the last row of p, which has one row more than the draft.",
            _with(next_=lambda x, q, p, u, n: p[len(x) - 1] if n == len(x) else _residual(p[n], q[n])),
            also=(
                _with(next_=lambda x, q, p, u, n: q[-1] if n == len(x) else _residual(p[n], q[n])),
                _with(next_=lambda x, q, p, u, n: p[0] if n == len(x) else _residual(p[n], q[n])),
            ),
        ),
        Mistake(
            "those behind a fallen one",
            "Tokens behind the first that fell were counted. They were drafted for a text that is not there: the first "
            "fall ends the pass.",
            _with(count=_count_all),
            also=(lambda x, q, p, u: _all_counted(x, q, p, u),),
        ),
        Mistake(
            "the wrong place",
            "The residual is that of the place where the token fell, p[n] and q[n], not of the first, the last or the "
            "next place.",
            _with(next_=lambda x, q, p, u, n: p[n] if n == len(x) else _residual(p[0], q[0])),
            also=(
                _with(next_=lambda x, q, p, u, n: p[n] if n == len(x) else _residual(p[len(x) - 1], q[-1])),
                _with(next_=lambda x, q, p, u, n: p[n] if n == len(x) else _residual(p[n + 1], q[n])),
            ),
        ),
        Mistake(
            "the likeliest word",
            "The next token was decided already. Asked for is the distribution that it will be drawn from.",
            lambda x, q, p, u: (_with()(x, q, p, u)[0], _with()(x, q, p, u)[1].argmax()),
            also=(
                _with(next_=lambda x, q, p, u, n: torch.eye(p.shape[1])[_next(x, q, p, u, n).argmax()].to(p.dtype)),
                _with(next_=lambda x, q, p, u, n: torch.eye(p.shape[1])[p[n].argmax()].to(p.dtype)),
            ),
        ),
        Mistake(
            "not these two values",
            "Two values are asked for: first how many of the drafted tokens stay, then the distribution of the next "
            "one.",
            lambda *given: _with()(*given)[0],
            also=(
                lambda *given: _with()(*given)[1],
                lambda *given: _with()(*given)[::-1],
                lambda x, q, p, u: (x[: _with()(x, q, p, u)[0]], _with()(x, q, p, u)[1]),
            ),
        ),
    ),
    also_right=(
        Variant("token by token", lambda *given: _in_loops(*given)),
        Variant("p − min(p, q)", _fallen(lambda p, q: (p - torch.minimum(p, q)) / (1 - torch.minimum(p, q).sum()))),
        Variant("q times luck below p", _with(lambda p, q, luck: luck * q < p)),
        Variant("min(1, p/q)", _with(lambda p, q, luck: luck < (p / q).clamp(max=1))),
    ),
    hints=(
        "Go through the drafted tokens in order. The token x at place i stays if luck[i] < p[i, x] / q[i, x].",
        "At the first that falls, stop. What did the draft give too little of at this place? Negative numbers are 0, "
        "and the rest is divided by its sum.",
        "If none falls, the next distribution is the last row of p, the one for the place behind all drafted tokens.",
    ),
)


def _with_rows_one_on(
    drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, residual_too: bool = True
) -> tuple[int, Tensor]:
    """Each token judged by the row after its own, and the residual made of it or not."""
    at = torch.arange(len(drafted))
    n = _until_first(_fits(p[at + 1, drafted], q[at, drafted], luck))
    if n == len(drafted):
        return n, p[n]
    return n, _residual(p[n + residual_too], q[n])


def _if_likeliest(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, next_: Next) -> tuple[int, Tensor]:
    n = _until_first(p[: len(drafted)].argmax(dim=1) == drafted)
    return n, next_(drafted, q, p, luck, n)


def _without_the_fallen(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
    n = _with()(drafted, q, p, luck)[0]
    left = p[n].clone()
    if n < len(drafted):
        left[drafted[n]] = 0
    return n, left / left.sum()


def _all_counted(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
    """All that would stay are counted, and the first fall decides the distribution."""
    at = torch.arange(len(drafted))
    return int(_fits(p[at, drafted], q[at, drafted], luck).sum()), _with()(drafted, q, p, luck)[1]


def _in_loops(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, list[float]]:
    for i, token in enumerate(drafted.tolist()):
        if float(luck[i]) >= float(p[i, token]) / float(q[i, token]):
            missing = [max(0.0, a - b) for a, b in zip(p[i].tolist(), q[i].tolist(), strict=True)]
            return i, [each / sum(missing) for each in missing]
    return len(drafted), p[len(drafted)].tolist()
