"""The exercise sinks.slots, "Sinks and a window": its cases and its named mistakes."""

from typing import Any

import torch

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.draws import whole
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
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


def _library(n_tokens: int, sinks: int, budget: int) -> tuple[int, ...]:
    from course_lib.attention.windowed import band

    return tuple(band(n_tokens, budget - sinks, sinks)[-1].nonzero().flatten().tolist())


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
    mistakes=read_mistakes(globals()),
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
        "Two ranges: the first `sinks` tokens, and the newest that fit in addition to them.",
        "The newest begin at n − (budget − sinks). When n is no larger than the budget, everything stays.",
    ),
    agree=_agree_on_slots,
    picture=lambda case, got, expected: compare_slots(case.arguments[0], got, expected),
)


def _streamed(n_tokens: int, sinks: int, budget: int) -> list[int]:
    """List the tokens as a cache does: append each, and evict the oldest after the sinks if there are too many."""
    kept: list[int] = []
    for token in range(n_tokens):
        kept.append(token)
        if len(kept) > budget:
            del kept[sinks]
    return kept
