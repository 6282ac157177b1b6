"""The loss of a prompted model for each token, at the same tokens at which the model without a prompt is scored.

Dimension key: N windows, L tokens in a window, P vectors of a prompt, D width.
"""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from course_lib.measure.likelihood import check_scorable, hidden_states, target_log_probs, tokens_at_once
from course_lib.measure.perplexity import window_losses
from course_lib.measure.progress import tracked
from course_lib.models import head
from course_lib.prompts.places import scored
from course_lib.prompts.prompted import prompting
from course_lib.prompts.soft import SoftPrompt


@torch.no_grad()
def prompted_losses(
    model: PreTrainedModel,
    prompt: SoftPrompt | None,
    windows: Int[Tensor, "N L"],
    keep: Bool[Tensor, "N L"] | None = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> Float[Tensor, "N L-1"]:
    """Return −log p(x_{i+1} | p_1 … p_P, x_1 … x_i) in nats, float64; NaN for tokens that are not scored.

    A zero there would change means without notice, as in the paper's public code; with NaN only `nanmean` gives a mean.

    Args:
        prompt: None for the model without a prompt. Both are scored at the same tokens.
        keep: False for padding; neither padding nor the first real token of a row is scored.

    Raises:
        ValueError: windows and `keep` do not fit each other, or the prompt is of another model.
    """
    check_windows(model, windows, keep)
    keep = torch.ones_like(windows, dtype=torch.bool) if keep is None else keep
    size = batch_size or max(1, tokens_at_once(model) // (windows.shape[1] + (prompt.n if prompt else 0)))
    pairs = list(zip(windows.split(size), keep.split(size), strict=True))
    with with_or_without(model, prompt):
        check_scorable(model)
        return torch.cat([_losses(model, ids, real) for ids, real in tracked(pairs, "losses", progress)])


def prompted_window_losses(
    model: PreTrainedModel,
    prompt: SoftPrompt | None,
    windows: Int[Tensor, "N L"],
    batch_size: int | None = None,
    progress: bool = True,
) -> Float[Tensor, "N"]:
    """Compute `window_losses` with a prompt before each window: means over the same L − 1 tokens as without one."""
    with with_or_without(model, prompt):
        return window_losses(model, windows, batch_size, progress)


@torch.no_grad()
def first_token_losses(model: PreTrainedModel, prompt: SoftPrompt, windows: Int[Tensor, "N L"]) -> Float[Tensor, "N"]:
    """Return −log p(x_1 | p_1 … p_P). Labels with P leading −100 score it: L tokens, but L − 1 without a prompt."""
    check_windows(model, windows)
    prompt.check(model)
    read = prompt.vectors.to(model.device, model.dtype)[None]
    hidden = model.base_model(inputs_embeds=read, use_cache=False).last_hidden_state[0, -1:]
    place = torch.zeros(len(windows), dtype=torch.long)
    return -target_log_probs(model, hidden, place, windows[:, 0].cpu())[0].double()


def zero_averaged(losses: Float[Tensor, "N targets"], n_vectors: int) -> Float[Tensor, "N"]:
    """Return Σ losses / (L − 1 + P): the wrong mean of window losses that includes P zeros at unscored positions.

    The public code's `evaluate` computes it (soft_prompt_learning.py, evaluate_llama.py at f15c334): with L = 1024 and
    P = 100 it is 0.911 of the loss, so a perplexity of 20 becomes 15.3. The model without a prompt has no such zeros.
    """
    return losses.nansum(dim=1) / (losses.shape[1] + n_vectors)


def with_or_without(model: PreTrainedModel, prompt: SoftPrompt | None) -> AbstractContextManager[None]:
    return nullcontext() if prompt is None else prompting(model, prompt)


def mean_loss(model: PreTrainedModel, ids: Int[Tensor, "N L"], keep: Bool[Tensor, "N L"] | None) -> Float[Tensor, ""]:
    """Return the mean over all scored tokens of a batch, with a gradient."""
    hidden = _hidden(model, ids, keep)[:, :-1]
    chosen = torch.ones_like(ids[:, 1:], dtype=torch.bool) if keep is None else scored(keep)
    logits = head(model)(hidden[chosen])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return cross_entropy(logits, ids[:, 1:][chosen])


def _losses(model: PreTrainedModel, ids: Int[Tensor, "N L"], keep: Bool[Tensor, "N L"]) -> Float[Tensor, "N L-1"]:
    hidden = _hidden(model, ids, keep)[:, :-1].flatten(0, 1)
    losses, place = torch.full(hidden.shape[:1], math.nan, dtype=torch.float64), scored(keep).flatten().nonzero()[:, 0]
    found = -target_log_probs(model, hidden, place.cpu(), ids[:, 1:].flatten()[place].cpu())[0].double()
    if bool(found.isnan().any()):  # nanmean would ignore these like tokens that are not scored
        raise ValueError(
            f"got NaN for the losses of {int(found.isnan().sum())} of {len(found)} tokens; expected numbers. Look for "
            "NaN in the model's weights or in the prompt."
        )
    losses[place.cpu()] = found
    return losses.view(len(ids), -1)


def _hidden(
    model: PreTrainedModel, ids: Int[Tensor, "N L"], keep: Bool[Tensor, "N L"] | None
) -> Float[Tensor, "N L D"]:
    """Return hidden states; with padding, positions count only real tokens, so that padding changes nothing."""
    if keep is None or bool(keep.all()):
        return hidden_states(model, ids)
    keep = keep.to(model.device)
    positions = (keep.long().cumsum(dim=1) - 1).clamp_min(0)
    return hidden_states(model, ids, attention_mask=keep.long(), position_ids=positions)


def check_windows(model: PreTrainedModel, windows: Tensor, keep: Tensor | None = None) -> None:
    """Raise ValueError for windows that cannot be scored."""
    if not isinstance(windows, Tensor) or windows.ndim != 2 or windows.is_floating_point() or 0 in windows.shape:
        what = f"{tuple(windows.shape)} {windows.dtype}" if isinstance(windows, Tensor) else type(windows).__name__
        raise ValueError(f"got windows {what}; expected token ids (N, L), as corpora.windows gives them.")
    if windows.shape[1] < 2:
        raise ValueError(f"got windows of {windows.shape[1]} token; expected 2 or more: one, and what it predicts.")
    if int(windows.min()) < 0 or int(windows.max()) >= model.config.vocab_size:
        raise ValueError(
            f"got token ids {int(windows.min())} to {int(windows.max())}; expected 0 to {model.config.vocab_size - 1}. "
            "Make the windows with this model's tokenizer."
        )
    if keep is not None and (keep.shape != windows.shape or not bool(scored(keep).any(dim=1).all())):
        raise ValueError(
            f"got keep of shape {tuple(keep.shape)} for windows {tuple(windows.shape)}; expected the same shape, and "
            "in each row two real tokens that follow each other. Leave empty texts out."
        )
