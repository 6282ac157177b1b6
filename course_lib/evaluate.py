"""How good a model is (perplexity, choice accuracy), and how large. Under an evicting cache: streaming, retrieval.

Dimension key: N windows, L tokens in a window.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from rich.progress import track
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.footprint import sparsity_report, weight_bytes
from course_lib.likelihood import check_scorable, hidden_states, target_log_probs, tokens_at_once
from course_lib.retrieval import retrieve
from course_lib.scoring import Score, score_requests
from course_lib.streaming import streaming_perplexity
from course_lib.tasks import Question, questions

__all__ = [
    "Accuracy",
    "Perplexity",
    "choice_accuracy",
    "perplexity",
    "retrieve",
    "sparsity_report",
    "streaming_perplexity",
    "weight_bytes",
]


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood of a token given those before it in its window.

    The standard error comes from the spread of the windows' means, carried through exp by the delta method:
    value · s / √N. Tokens of one window depend on each other, so windows and not tokens are the independent sample.
    One window has no spread: NaN.
    """

    value: float
    standard_error: float
    n_tokens: int  # predicted ones: the first of each window is not


@dataclass(frozen=True)
class Accuracy:
    """Share of questions answered right, as lm-evaluation-harness counts it.

    `value` takes the choice with the highest log-likelihood, `normalised` the highest per character of the choice.
    `standard_error` is that of value: √(p(1 − p)/(n − 1)). Where value lies within about two of them from chance, the
    task says nothing about this model.
    """

    value: float
    normalised: float
    chance: float
    standard_error: float
    n: int


@torch.no_grad()
def perplexity(
    model: PreTrainedModel, windows: Int[Tensor, "N L"], batch_size: int | None = None, progress: bool = True
) -> Perplexity:
    """Perplexity over windows of token ids, each read on its own.

    Args:
        batch_size: windows run at once; as many as fit comfortably in memory when None.

    Raises:
        ValueError: no windows, windows of one token, tokens outside the vocabulary, or a model that cannot be scored.
    """
    means = window_losses(model, windows, batch_size, progress)
    value = means.mean().exp().item()
    spread = means.std().item() if len(means) > 1 else math.nan
    return Perplexity(value, value * spread / math.sqrt(len(means)), windows.numel() - len(windows))


@torch.no_grad()
def window_losses(
    model: PreTrainedModel, windows: Int[Tensor, "N L"], batch_size: int | None = None, progress: bool = True
) -> Float[Tensor, "N"]:
    """Mean negative log-likelihood of each window, in nats a token, float64: the log of its perplexity.

    How hard a window is drops out of the difference of two models on the same windows. Arguments and errors are those
    of `perplexity`.
    """
    _check_windows(model, windows)
    check_scorable(model)
    batch_size = batch_size or max(1, tokens_at_once(model) // windows.shape[1])
    batches = track(windows.split(batch_size), "perplexity", disable=not progress, transient=True)
    return torch.cat([_losses(model, batch) for batch in batches])


def _check_windows(model: PreTrainedModel, windows: object) -> None:
    if not isinstance(windows, Tensor) or windows.ndim != 2 or windows.dtype not in (torch.int64, torch.int32):
        what = f"{tuple(windows.shape)} {windows.dtype}" if isinstance(windows, Tensor) else type(windows).__name__
        raise ValueError(f"got windows {what}; expected token ids (N, L), as corpora.windows gives them.")
    if windows.shape[0] < 1 or windows.shape[1] < 2:
        raise ValueError(f"got windows of shape {tuple(windows.shape)}; expected at least one, of 2 tokens or more.")
    if int(windows.min()) < 0 or int(windows.max()) >= model.config.vocab_size:
        raise ValueError(
            f"got token ids {int(windows.min())} to {int(windows.max())}; expected 0 to {model.config.vocab_size - 1}. "
            "Make the windows with this model's tokenizer."
        )


def _losses(model: PreTrainedModel, ids: Int[Tensor, "N L"]) -> Float[Tensor, "N"]:
    """Of one batch: position i predicts token i + 1."""
    hidden = hidden_states(model, ids)[:, :-1].flatten(0, 1)
    log_prob, _ = target_log_probs(model, hidden, torch.arange(len(hidden)), ids[:, 1:].flatten().cpu())
    return -log_prob.double().view(len(ids), -1).mean(dim=1)


def choice_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: str,
    n: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Accuracy:
    """Accuracy on n questions of a task, drawn by seed; all of them when n is None. Names: `course_lib.tasks.FILES`."""
    return answer(model, tokenizer, questions(task, n, seed), progress)


@torch.no_grad()
def answer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: list[Question], progress: bool = True
) -> Accuracy:
    """Accuracy on given questions."""
    if not asked:
        raise ValueError("got no questions; expected at least one.")
    check_scorable(model)
    scores = iter(score_requests(model, tokenizer, [c for question in asked for c in question.choices], progress))
    right = torch.tensor([is_right(question, [next(scores) for _ in question.choices]) for question in asked])
    value, normalised = right.double().mean(dim=0).tolist()
    chance = sum(question.chance for question in asked) / len(asked)
    error = math.sqrt(value * (1 - value) / (len(asked) - 1)) if len(asked) > 1 else math.nan
    return Accuracy(value, normalised, chance, error, len(asked))


def is_right(question: Question, scores: list[Score]) -> tuple[bool, bool]:
    """By log-likelihood, and by log-likelihood per character. The space before a choice is not part of it."""
    if len(scores) == 1:
        return scores[0].greedy, scores[0].greedy
    sums = [score.log_likelihood for score in scores]
    per_character = [
        total / max(1, len(choice.continuation.removeprefix(" ")))
        for total, choice in zip(sums, question.choices, strict=True)
    ]
    return sums.index(max(sums)) == question.answer, per_character.index(max(per_character)) == question.answer
