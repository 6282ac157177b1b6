"""The exercise kv.deferred, "Ask after the eviction": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant


def _leading(right: Tensor) -> int:
    return int(right.long().cumprod(dim=0).sum())


def _deferred(before: Tensor, after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    return _leading(after[n_prefix - 1 : -1].argmax(dim=-1) == held_back[n_prefix:])


def _retrieval(generator: torch.Generator, n_prefix: int, right: list[int], known: bool, prefix_right: bool) -> tuple:
    """Logits that are right about the answer's tokens where `right` says so, and the prompt's about its first if known.

    The prompt's last prediction is right about the token that comes next, the first one held back.
    """
    n_words, n_prompt, n_held_back = 40, 6, n_prefix + len(right)
    held_back = torch.randperm(n_words, generator=generator)[:n_held_back]
    before, after = (
        torch.randn(n_prompt, n_words, generator=generator),
        torch.randn(n_held_back, n_words, generator=generator),
    )
    right_at = [*([int(prefix_right)] * (n_prefix - 1)), *right]
    for place, says in enumerate(right_at):
        after[place, held_back[place + 1]] = 9.0 if says else -9.0
    before[-1, held_back[n_prefix]] = 9.0 if known else -9.0
    return before, after, held_back, n_prefix


def _deferred_cases(generator: torch.Generator) -> list[Case]:
    return [
        Case(
            "a prefix of two, an answer of five: three, then a slip",
            _retrieval(generator, 2, [1, 1, 1, 0, 1], True, True),
        ),
        Case("the prompt knew the first token, the cache lost it", _retrieval(generator, 3, [0, 1, 1], True, True)),
        Case(
            "all six right, though the prompt did not know", _retrieval(generator, 1, [1, 1, 1, 1, 1, 1], False, True)
        ),
        Case("four right, the prefix surprised the model", _retrieval(generator, 4, [1, 1, 1, 1, 0, 1], True, False)),
        Case("one right", _retrieval(generator, 2, [1, 0, 0, 1], False, True)),
    ]


DEFERRED = Exercise(
    id="kv.deferred",
    title="Ask after the eviction",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_deferred,
    cases=_deferred_cases,
    mistakes=(
        Mistake(
            "the leak",
            "The answer's first token was taken from the prompt's last prediction, made while nothing had left. "
            "The last token of the prefix predicts it, after the eviction.",
            lambda b, a, h, n: _leading(torch.cat([b[-1:], a[n:-1]]).argmax(dim=-1) == h[n:]),
        ),
        Mistake(
            "shifted by one",
            "Row i predicts the token after token i. Compare the row before the answer's first token with that token.",
            lambda b, a, h, n: _leading(a[n:].argmax(dim=-1) == h[n:]),
        ),
        Mistake(
            "all matches counted",
            "Tokens that are right after a wrong one were counted. Stop at the first that is wrong.",
            lambda b, a, h, n: int((a[n - 1 : -1].argmax(dim=-1) == h[n:]).sum()),
        ),
        Mistake(
            "prefix counted too",
            "The prefix was given to the model; only the tokens of the answer count.",
            lambda b, a, h, n: _leading(a[:-1].argmax(dim=-1) == h[1:]),
        ),
        Mistake(
            "all or nothing",
            "This says whether the whole answer is right. Return how many of its first tokens are.",
            lambda b, a, h, n: int((a[n - 1 : -1].argmax(dim=-1) == h[n:]).all()),
        ),
        Mistake(
            "a share",
            "This is the share of the answer. Return the number of tokens.",
            lambda b, a, h, n: _deferred(b, a, h, n) / (len(h) - n),
        ),
    ),
    also_right=(
        Variant("a loop that stops", lambda b, a, h, n: _deferred_by_loop(a, h, n)),
        Variant("first wrong one", lambda b, a, h, n: _deferred_by_first_wrong(a, h, n)),
        Variant("a tensor", lambda b, a, h, n: (a[n - 1 : -1].argmax(-1) == h[n:]).int().cumprod(0).sum()),
    ),
    hints=(
        "Which row of which logits predicts the first token of the answer, held_back[n_prefix]?",
        "after[n_prefix − 1 : −1] predict held_back[n_prefix:]. The prompt's logits are not needed at all.",
        "A running product of zeros and ones stays 1 up to the first zero: cumprod.",
    ),
)


def _deferred_by_loop(after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    n = 0
    while n_prefix + n < len(held_back) and after[n_prefix + n - 1].argmax() == held_back[n_prefix + n]:
        n += 1
    return n


def _deferred_by_first_wrong(after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    wrong = (after.argmax(-1).roll(1)[n_prefix:] != held_back[n_prefix:]).nonzero()
    return wrong[0].item() if len(wrong) else len(held_back) - n_prefix
