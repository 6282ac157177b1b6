"""Choice accuracy: how often a model finds the right answer of a benchmark's question the likeliest."""

import math
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.benchmarks import Question, questions
from course_lib.measure.likelihood import check_model, check_scorable
from course_lib.measure.scoring import Score, score_requests
from course_lib.repetition import in_evaluation_mode


@dataclass(frozen=True)
class Accuracy:
    """Fraction of questions answered right, as lm-evaluation-harness counts it.

    `value` takes the choice with the highest log-likelihood, `normalised` the highest per character of the choice.
    `standard_error` is that of value: √(p(1 − p)/(n − 1)). Where value lies within about two of them from chance, the
    task says nothing about this model.
    """

    value: float
    normalised: float
    chance: float
    standard_error: float
    n: int
    right: tuple[bool, ...] = field(default=(), repr=False)  # which questions, to compare models in pairs


def choice_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: str,
    n: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Accuracy:
    """Accuracy on n questions of a task, drawn by seed; all of them when n is None. Their names: BENCHMARK_FILES."""
    return answer(model, tokenizer, questions(task, n, seed), progress)


@torch.no_grad()
def answer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, items: list[Question], progress: bool = True
) -> Accuracy:
    """Accuracy on given questions."""
    if not items:
        raise ValueError("got no questions; expected at least one.")
    check_model(model)
    with in_evaluation_mode(model):
        check_scorable(model)
        choices = [choice for question in items for choice in question.choices]
        scores = iter(score_requests(model, tokenizer, choices, progress))
    right = torch.tensor([is_right(question, [next(scores) for _ in question.choices]) for question in items])
    value, normalised = right.double().mean(dim=0).tolist()
    chance = sum(question.chance for question in items) / len(items)
    error = math.sqrt(value * (1 - value) / (len(items) - 1)) if len(items) > 1 else math.nan
    return Accuracy(value, normalised, chance, error, len(items), tuple(right[:, 0].tolist()))


def is_right(question: Question, scores: list[Score]) -> tuple[bool, bool]:
    """By log-likelihood, and by log-likelihood per character. The space before a choice is not part of it.

    Raises:
        ValueError: a log-likelihood of NaN, which no choice can be compared with.
    """
    if any(score.log_likelihood != score.log_likelihood for score in scores):
        raise ValueError(
            f"got a log-likelihood of NaN among {len(scores)} choices; expected numbers. Look for NaN in the model's "
            "weights."
        )
    if len(scores) == 1:
        return scores[0].greedy, scores[0].greedy
    sums = [score.log_likelihood for score in scores]
    per_character = [
        total / max(1, len(choice.continuation.removeprefix(" ")))
        for total, choice in zip(sums, question.choices, strict=True)
    ]
    return sums.index(max(sums)) == question.answer, per_character.index(max(per_character)) == question.answer
