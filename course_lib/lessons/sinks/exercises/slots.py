"""The exercise sinks.slots, "Sinks and a window": its cases and its named mistakes."""

from typing import Any

import torch

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_slots


def _slots(n_tokens: int, sinks: int, budget: int) -> list[int]:
    if n_tokens <= budget:
        return list(range(n_tokens))
    return [*range(sinks), *range(n_tokens - (budget - sinks), n_tokens)]


def _agree_on_slots(got: Any, expected: tuple, case: Case) -> str | None:
    """The set of tokens counts, not their order; none may be there twice."""
    expected = torch.tensor(expected)
    got, problem = tensor_like(got, expected)
    if problem:
        return problem.replace("the shape is", "the number of tokens is")
    return close(got.double().sort().values, expected.double().sort().values)


def _library(n_tokens: int, sinks: int, budget: int) -> list[int]:
    from course_lib.attention.windowed import band

    return band(n_tokens, budget - sinks, sinks)[-1].nonzero().flatten().tolist()


SLOTS = Exercise(
    id="sinks.slots",
    title="Sinks and a window",
    difficulty=2,
    minutes=7,
    points=2,
    reference=_slots,
    library=_library,
    cases=lambda generator: [
        Case("10 tokens, 2 sinks, 6 slots: 0 1 6 7 8 9", (10, 2, 6)),
        Case("5 tokens in 8 slots: all stay", (5, 2, 8)),
        Case("12 tokens, no sink, 4 slots", (12, 0, 4)),
        Case("3 tokens, 4 sinks, 9 slots: all stay", (3, 4, 9)),
        Case("one token more than there are slots", (9, 4, 8)),
        Case("a drawn text that fits", (whole(generator, 6, 11), 3, whole(generator, 12, 16))),
        Case("a drawn long text", (whole(generator, 40, 90), whole(generator, 1, 5), whole(generator, 8, 14))),
    ],
    mistakes=(
        Mistake(
            "a window without sinks",
            "These are the newest tokens alone: the window whose collapse you have seen. The first ones must stay.",
            lambda n, s, b: list(range(max(0, n - b), n)),
        ),
        Mistake(
            "sinks beside the budget",
            "Sinks take up slots too: of the budget, `budget − sinks` are left for the newest tokens.",
            lambda n, s, b: sorted({*range(min(s, n)), *range(max(0, n - b), n)}),
        ),
        Mistake(
            "a token twice",
            "While the text is shorter than the budget, the first tokens are also among the newest: count them once.",
            lambda n, s, b: [*range(s), *range(max(0, n - (b - s)), n)],
            also=(lambda n, s, b: [*range(min(s, n)), *range(max(0, n - (b - s)), n)],),
        ),
        Mistake(
            "the newest left out",
            "Of n tokens the newest is n − 1, and it attends to itself: it must be among them.",
            lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - 1 - (b - s), n - 1)],
        ),
        Mistake(
            "a slot left empty",
            "One slot is unused: the newest `budget − sinks` tokens begin at n − (budget − sinks).",
            lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - (b - s) + 1, n)],
        ),
        Mistake(
            "the window never moves",
            "These are the first tokens of the text. Only `sinks` of them stay for good; the rest of the slots follow "
            "the newest.",
            lambda n, s, b: list(range(min(n, b))),
        ),
        Mistake(
            "nothing leaves",
            "All tokens are kept, so that the cache grows with the text. It may hold `budget`.",
            lambda n, s, b: list(range(n)),
        ),
        Mistake(
            "one slot too many",
            "One token more than `budget` is kept: the newest begin at n − (budget − sinks).",
            lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - (b - s) - 1, n)],
        ),
        Mistake(
            "counted from 1",
            "Tokens are counted from 0: the first is 0, the newest n − 1.",
            lambda n, s, b: [token + 1 for token in _slots(n, s, b)],
        ),
        Mistake(
            "a mask",
            "Return the tokens that stay, their numbers, not whether each of them does.",
            lambda n, s, b: [token in _slots(n, s, b) for token in range(n)],
        ),
        Mistake(
            "the sinks alone",
            "The rest of the slots hold the newest tokens.",
            lambda n, s, b: list(range(min(s, n))),
        ),
    ),
    also_right=(
        Variant("newest first", lambda n, s, b: _slots(n, s, b)[::-1]),
        Variant("a set", lambda n, s, b: set(_slots(n, s, b))),
        Variant(
            "a tensor",
            lambda n, s, b: torch.arange(n)[[j < s or j >= n - (b - s) for j in range(n)] if n > b else slice(None)],
        ),
        Variant("token by token", lambda n, s, b: _streamed(n, s, b)),
    ),
    hints=(
        "Two ranges: the first `sinks` tokens, and the newest that fit beside them.",
        "The newest begin at n − (budget − sinks). When n is no larger than the budget, everything stays.",
    ),
    agree=_agree_on_slots,
    picture=lambda case, got, expected: compare_slots(case.arguments[0], got, expected),
)


def _streamed(n_tokens: int, sinks: int, budget: int) -> list[int]:
    """As a cache does it: a token comes, and when there is one too many, the oldest behind the sinks leaves."""
    kept: list[int] = []
    for token in range(n_tokens):
        kept.append(token)
        if len(kept) > budget:
            del kept[sinks]
    return kept
