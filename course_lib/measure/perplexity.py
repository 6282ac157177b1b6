"""Perplexity: how well a model predicts each next token in windows of text.

Dimension key: N windows, L tokens in a window.
"""

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.likelihood import (
    check_model,
    check_scorable,
    hidden_states,
    target_log_probs,
    tokens_at_once,
)
from course_lib.measure.progress import tracked
from course_lib.models import check_length
from course_lib.repetition import in_evaluation_mode


@dataclass(frozen=True)
class Perplexity:
    """The exponential of the mean negative log-likelihood of a token given the tokens before it in its window.

    The standard error comes from the spread of the windows' means, transformed by exp with the delta method:
    value · s / √N. Tokens of one window depend on each other, so the independent samples are windows and not tokens.
    For one window it is NaN.
    """

    value: float
    standard_error: float
    n_tokens: int  # predicted ones: the first of each window is not
    losses: tuple[float, ...] = field(default=(), repr=False)  # mean of each window, to compare models in pairs


@torch.no_grad()
def perplexity(
    model: PreTrainedModel, windows: Int[Tensor, "N L"], batch_size: int | None = None, progress: bool = True
) -> Perplexity:
    """Measure perplexity over windows of token ids, each read on its own.

    Args:
        model: runs in evaluation mode, without dropout; its own mode is restored.
        batch_size: windows per pass; as many as fit well into memory when None.

    Raises:
        ValueError: no windows, windows of one token or of more than the model has positions for, tokens outside the
            vocabulary, a batch size below 1, or a model that cannot be scored.
    """
    means = window_losses(model, windows, batch_size, progress)
    value = means.mean().exp().item()
    spread = means.std().item() if len(means) > 1 else math.nan
    error = value * spread / math.sqrt(len(means))
    return Perplexity(value, error, windows.numel() - len(windows), tuple(means.tolist()))


@torch.no_grad()
def window_losses(
    model: PreTrainedModel, windows: Int[Tensor, "N L"], batch_size: int | None = None, progress: bool = True
) -> Float[Tensor, "N"]:
    """Return the mean negative log-likelihood of each window, in nats per token, float64: the log of its perplexity.

    If two models read the same windows, the difficulty of a window cancels in their difference. Arguments and errors
    are those of `perplexity`.
    """
    check_model(model)
    _check_windows(model, windows)
    _check_batch_size(batch_size)
    with in_evaluation_mode(model):
        check_scorable(model)
        batch_size = batch_size or max(1, tokens_at_once(model) // windows.shape[1])
        batches = tracked(windows.split(batch_size), "perplexity", progress)
        return torch.cat([_losses(model, batch) for batch in batches])


def _check_batch_size(batch_size: object) -> None:
    is_count = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if batch_size is not None and not (is_count and batch_size >= 1):
        raise ValueError(
            f"got batch_size {batch_size!r}; expected a whole number of windows, 1 or more, or None for as many as fit."
        )


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
    check_length(model, windows.shape[1])


def _losses(model: PreTrainedModel, ids: Int[Tensor, "N L"]) -> Float[Tensor, "N"]:
    """Return the losses of one batch: position i predicts token i + 1."""
    hidden = hidden_states(model, ids)[:, :-1].flatten(0, 1)
    log_prob, _ = target_log_probs(model, hidden, torch.arange(len(hidden)), ids[:, 1:].flatten().cpu())
    return -log_prob.double().view(len(ids), -1).mean(dim=1)
