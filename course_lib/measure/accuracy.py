"""Multiple-choice accuracy: how often the right answer has the highest likelihood among the choices of a question."""

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
    """Fraction of questions answered right, as in lm-evaluation-harness.

    `value` chooses by log-likelihood, `normalised` by log-likelihood per character of the choice. `standard_error` is
    that of `value`: √(p(1 − p)/(n − 1)). If `value` is within two standard errors of chance, the task tells us nothing
    about the model.
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
    """Measure accuracy on n random questions of a task, or on all when n is None. BENCHMARK_FILES lists the tasks."""
    return answer(model, tokenizer, questions(task, n, seed), progress)


@torch.no_grad()
def answer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, items: list[Question], progress: bool = True
) -> Accuracy:
    """Measure accuracy on the given questions."""
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
    """Return whether the answer is right by log-likelihood, and by that per character (without the first space).

    Raises:
        ValueError: a log-likelihood is NaN, so the choices cannot be compared.
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
