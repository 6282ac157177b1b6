"""The exercise kv.deferred, "Ask after the eviction": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes


def _leading(right: Tensor) -> int:
    return int(right.long().cumprod(dim=0).sum())


def _deferred(before: Tensor, after: Tensor, question_and_answer: Tensor, n_question: int) -> int:
    return _leading(after[n_question - 1 : -1].argmax(dim=-1) == question_and_answer[n_question:])


def _retrieval(
    generator: torch.Generator, n_question: int, right: list[int], known: bool, question_right: bool, same: str = ""
) -> tuple:
    """Return logits as in the lesson's protocol; `right` lists which tokens of the answer are predicted.

    The prompt ends before the question. Its last row predicts the first question token, correctly if `known`. The very
    last row predicts a token after the answer, here the first question token again. Two tokens may be the `same`: the
    first of the question and of the answer ("begin"), or the first two of the answer ("twice").
    """
    n_words, n_prompt, n_tokens = 40, 6, n_question + len(right)
    question_and_answer = torch.randperm(n_words, generator=generator)[:n_tokens]
    if "begin" in same:
        question_and_answer[n_question] = question_and_answer[0]
    if "twice" in same:
        question_and_answer[n_question + 1] = question_and_answer[n_question]
    before, after = (
        torch.randn(n_prompt, n_words, generator=generator),
        torch.randn(n_tokens, n_words, generator=generator),
    )
    before[-1, question_and_answer[0]] = 9.0 if known else -9.0
    for place, is_right in enumerate([*([int(question_right)] * (n_question - 1)), *right]):
        after[place, question_and_answer[place + 1]] = 9.0 if is_right else -9.0
    after[-1, question_and_answer[0]] = 9.0
    return before, after, question_and_answer, n_question


def _deferred_by_hand() -> tuple:
    """Words 0 to 3. The question is 2 and 0, the answer 2 and 3; the predictions are 0, 2, 3, and then 2."""
    predicted, question_and_answer = torch.tensor([0, 2, 3, 2]), torch.tensor([2, 0, 2, 3])
    return torch.eye(4)[[1, 3, 2]], torch.eye(4)[predicted], question_and_answer, 2


def _deferred_cases(generator: torch.Generator) -> list[Case]:
    return [
        Case("four words, by hand: both tokens of the answer", _deferred_by_hand()),
        Case(
            "two question tokens, an answer of five: three right, then an error",
            _retrieval(generator, 2, [1, 1, 1, 0, 1], True, True, "begin, twice"),
        ),
        Case("the first token lost", _retrieval(generator, 3, [0, 1, 1], True, True, "begin")),
        Case("all six right, one question token", _retrieval(generator, 1, [1] * 6, False, True, "twice")),
        Case("all four right, the question was not predicted", _retrieval(generator, 4, [1] * 4, True, False, "begin")),
        Case("one right", _retrieval(generator, 2, [1, 0, 0, 1], False, True, "twice")),
        Case("all three right", _retrieval(generator, 3, [1] * 3, True, True, "begin, twice")),
        Case(
            "nine of twelve, then an error", _retrieval(generator, 4, [1] * 9 + [0, 1, 1], True, True, "begin, twice")
        ),
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
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("a loop that stops", lambda b, a, h, n: _deferred_by_loop(a, h, n)),
        Variant("first wrong one", lambda b, a, h, n: _deferred_by_first_wrong(a, h, n)),
        Variant("a tensor", lambda b, a, h, n: (a[n - 1 : -1].argmax(-1) == h[n:]).int().cumprod(0).sum()),
    ),
    hints=(
        "Which row of which logits predicts the first token of the answer, question_and_answer[n_question]?",
        "after[n_question − 1 : −1] predicts question_and_answer[n_question:]. Do not use the logits of the prompt.",
        "A running product of zeros and ones stays 1 up to the first zero: cumprod.",
    ),
)


def _deferred_by_loop(after: Tensor, question_and_answer: Tensor, n_question: int) -> int:
    n = 0
    while (
        n_question + n < len(question_and_answer)
        and after[n_question + n - 1].argmax() == question_and_answer[n_question + n]
    ):
        n += 1
    return n


def _deferred_by_first_wrong(after: Tensor, question_and_answer: Tensor, n_question: int) -> int:
    wrong = (after.argmax(-1).roll(1)[n_question:] != question_and_answer[n_question:]).nonzero()
    return wrong[0].item() if len(wrong) else len(question_and_answer) - n_question
