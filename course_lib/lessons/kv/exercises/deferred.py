"""The exercise kv.deferred, "Ask after the eviction": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial, Variant


def _leading(right: Tensor) -> int:
    return int(right.long().cumprod(dim=0).sum())


def _deferred(before: Tensor, after: Tensor, held_back: Tensor, n_prefix: int) -> int:
    return _leading(after[n_prefix - 1 : -1].argmax(dim=-1) == held_back[n_prefix:])


def _retrieval(
    generator: torch.Generator, n_prefix: int, right: list[int], known: bool, prefix_right: bool, same: str = ""
) -> tuple:
    """Logits as the lesson's protocol gives them, right about the answer's tokens where `right` says so.

    The prompt ends before the prefix, so that its last row predicts the first token held back, and is right if `known`;
    the last row of all predicts what comes behind the answer, here the first token held back once more. Two tokens may
    be the `same`: the prefix's first and the answer's first ("begin"), or the first two of the answer ("twice").
    """
    n_words, n_prompt, n_held_back = 40, 6, n_prefix + len(right)
    held_back = torch.randperm(n_words, generator=generator)[:n_held_back]
    if "begin" in same:
        held_back[n_prefix] = held_back[0]
    if "twice" in same:
        held_back[n_prefix + 1] = held_back[n_prefix]
    before, after = (
        torch.randn(n_prompt, n_words, generator=generator),
        torch.randn(n_held_back, n_words, generator=generator),
    )
    before[-1, held_back[0]] = 9.0 if known else -9.0
    for place, says in enumerate([*([int(prefix_right)] * (n_prefix - 1)), *right]):
        after[place, held_back[place + 1]] = 9.0 if says else -9.0
    after[-1, held_back[0]] = 9.0
    return before, after, held_back, n_prefix


def _deferred_by_hand() -> tuple:
    """Words 0 to 3. Held back: 2 and 0 of the question, 2 and 3 of the answer; said: 0, 2, 3, and then 2."""
    said, held_back = torch.tensor([0, 2, 3, 2]), torch.tensor([2, 0, 2, 3])
    return torch.eye(4)[[1, 3, 2]], torch.eye(4)[said], held_back, 2


def _deferred_cases(generator: torch.Generator) -> list[Case]:
    return [
        Case("four words, by hand: both tokens of the answer", _deferred_by_hand()),
        Case(
            "a prefix of two, an answer of five: three, then a slip",
            _retrieval(generator, 2, [1, 1, 1, 0, 1], True, True, "begin, twice"),
        ),
        Case("the first token lost", _retrieval(generator, 3, [0, 1, 1], True, True, "begin")),
        Case("all six right, a prefix of one", _retrieval(generator, 1, [1] * 6, False, True, "twice")),
        Case("all four right, the prefix surprised the model", _retrieval(generator, 4, [1] * 4, True, False, "begin")),
        Case("one right", _retrieval(generator, 2, [1, 0, 0, 1], False, True, "twice")),
        Case("all three right", _retrieval(generator, 3, [1] * 3, True, True, "begin, twice")),
        Case("nine of twelve, then a slip", _retrieval(generator, 4, [1] * 9 + [0, 1, 1], True, True, "begin, twice")),
    ]


DEFERRED = Exercise(
    id="kv.deferred",
    title="Ask after the eviction",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_deferred,
    cases=_deferred_cases,
    trivial=(Trivial("counting the whole answer", lambda b, a, h, n: len(h) - n),),
    mistakes=(
        Mistake(
            "the leak",
            "The answer's first token was compared with the prompt's last prediction, made while nothing had left. "
            "The last token of the prefix predicts it, after the eviction.",
            lambda b, a, h, n: _leading(torch.cat([b[-1:], a[n:-1]]).argmax(dim=-1) == h[n:]),
        ),
        Mistake(
            "shifted by one",
            "Row i predicts the token after token i: row n_prefix - 1, not row n_prefix, the answer's first token.",
            lambda b, a, h, n: _leading(a[n:].argmax(dim=-1) == h[n:]),
        ),
        Mistake(
            "the answer's first token left out",
            "Counting began with the second token of the answer. The first one counts too: row n_prefix - 1 predicts "
            "it.",
            lambda b, a, h, n: _leading(a[n:-1].argmax(dim=-1) == h[n + 1 :]),
        ),
        Mistake(
            "all matches counted",
            "Tokens that are right after a wrong one were counted. Stop at the first that is wrong.",
            lambda b, a, h, n: int((a[n - 1 : -1].argmax(dim=-1) == h[n:]).sum()),
        ),
        Mistake(
            "prefix counted too",
            "The prefix was given to the model; only the tokens of the answer count, from held_back[n_prefix] on.",
            lambda b, a, h, n: _leading(a[:-1].argmax(dim=-1) == h[1:]),
            also=(lambda b, a, h, n: _leading(torch.cat([b[-1:], a[:-1]]).argmax(dim=-1) == h),),
        ),
        Mistake(
            "what comes behind the answer",
            "The last row predicts the token behind the answer, which nobody held back. Leave it out: after[:-1].",
            lambda b, a, h, n: _leading(a[n - 1 :].argmax(dim=-1) == torch.cat([h[n:], h[:1]])),
            also=(lambda b, a, h, n: _leading((a.argmax(dim=-1) == h.roll(-1))[n - 1 :]),),
        ),
        Mistake(
            "where the first wrong one is",
            "This counts from 1, or from the prefix on. Count the right tokens of the answer before the first wrong.",
            lambda b, a, h, n: _deferred(b, a, h, n) + 1,
            also=(lambda b, a, h, n: _deferred(b, a, h, n) + n, lambda b, a, h, n: _deferred(b, a, h, n) + n - 1),
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
            also=(lambda b, a, h, n: float((a[n - 1 : -1].argmax(dim=-1) == h[n:]).float().mean()),),
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
