"""The exercise sparse_attention.accept, "Which drafted tokens are accepted": its cases and its named mistakes.

Dimension key: k drafted tokens, V tokens of the vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import near
from course_lib.checking.short import short

Answer = Callable[[Tensor, Tensor, Tensor, Tensor], Any]
Stays = Callable[
    [Tensor, Tensor, Tensor], Tensor
]  # (p(x), q(x), uniform number) of each drafted token -> whether it is accepted
Next = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]  # (drafted, q, p, luck, n accepted) -> distribution


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """A residual is a difference of float32 numbers divided by their sum, at worst a hundredth in the cases."""
    if not isinstance(expected, tuple) or type(expected[0]) is not int:
        return close(got, expected)
    if not isinstance(got, tuple) or len(got) != 2:
        return f"got {short(got)}, expected two values: how many are accepted, and the next distribution"
    n_differ = close(got[0], expected[0])
    if n_differ:
        return f"accepted tokens: {n_differ}"
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
    """Another distribution after a rejection: (p, q) -> (V,)."""
    return _with(next_=lambda x, q, p, luck, n: p[n] if n == len(x) else change(p[n], q[n]))


def _one_hot(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, n: int) -> Tensor:
    """The rejected token, used all the same."""
    return p[n] if n == len(drafted) else torch.eye(p.shape[1])[drafted[n]].to(p.dtype)


def _count_all(stays: Tensor) -> int:
    return int(stays.sum())


def _counting_the_fallen(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
    n, distribution = _with()(drafted, q, p, luck)
    return min(n + 1, len(drafted)), distribution


def _never_behind(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, n: int) -> Tensor:
    """The residual of the last position even where nothing was rejected."""
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
        """Tokens of which the one at `place` is the first to be rejected, and later ones would be accepted."""
        drafted, q, p, _ = drawn(k, n_words, apart=0.7)
        drafted = (q - p[:k]).argmax(dim=1)  # the draft proposes it too often, so that it may be rejected
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
        Case("2 tokens by hand, both accepted: p/q is ½ and 2", stay),
        Case("2 tokens by hand, the second rejected at a uniform number of p/q: the residual is (0, ⅔, ⅓)", fall),
        Case("4 tokens, the third rejected", falling_at(2, 4, 6)),
        Case("5 tokens, the first rejected, and later ones would be accepted", falling_at(0, 5, 8)),
        Case("3 tokens, the last rejected", falling_at(2, 3, 5)),
        Case("uniform numbers of 0: all accepted", drawn(4, 7, luck=0.0)),
        Case(
            "a draft that gives its tokens probability 1",
            (torch.tensor([2, 4, 1]), certain, *_of_certain(certain, generator)),
        ),
        Case("a single drafted token, rejected", falling_at(0, 1, 9)),
    ]


def _of_certain(q: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A target model, and uniform numbers with which two tokens are accepted and the third is rejected."""
    p = torch.randn(4, 6, generator=generator).softmax(dim=1)
    own = (p[:3] * q).sum(dim=1)
    return p, torch.stack([own[0] / 2, own[1] / 3, (own[2] + 1) / 2])


def _library(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, Tensor]:
    from course_lib.lessons.sparse_attention.steps import stays_and_next

    return stays_and_next(drafted, q, p, luck)


ACCEPT = Exercise(
    id="sparse_attention.accept",
    title="Which drafted tokens are accepted",
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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("token by token", lambda *given: _in_loops(*given)),
        Variant("p − min(p, q)", _fallen(lambda p, q: (p - torch.minimum(p, q)) / (1 - torch.minimum(p, q).sum()))),
        Variant("q times luck below p", _with(lambda p, q, luck: luck * q < p)),
        Variant("min(1, p/q)", _with(lambda p, q, luck: luck < (p / q).clamp(max=1))),
    ),
    hints=(
        "Go through the drafted tokens in order. Accept token x at position i if uniforms[i] < p[i, x] / q[i, x], and "
        "stop at the first rejection.",
        "Accepted tokens contribute min(p, q) at this position. How much of p is missing? Divide the missing part by "
        "its sum.",
        "The missing part is max(p − q, 0), torch.relu(p[i] - q[i]). If nothing is rejected, return the last row of p.",
    ),
)


def _with_rows_one_on(
    drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor, residual_too: bool = True
) -> tuple[int, Tensor]:
    """Each token judged by the row after its own, and the residual computed from it or not."""
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
    """All tokens below the ratio are counted, and the first rejection decides the distribution."""
    at = torch.arange(len(drafted))
    return int(_fits(p[at, drafted], q[at, drafted], luck).sum()), _with()(drafted, q, p, luck)[1]


def _in_loops(drafted: Tensor, q: Tensor, p: Tensor, luck: Tensor) -> tuple[int, list[float]]:
    for i, token in enumerate(drafted.tolist()):
        if float(luck[i]) >= float(p[i, token]) / float(q[i, token]):
            missing = [max(0.0, a - b) for a, b in zip(p[i].tolist(), q[i].tolist(), strict=True)]
            return i, [each / sum(missing) for each in missing]
    return len(drafted), p[len(drafted)].tolist()
