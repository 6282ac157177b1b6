"""`with steering(model, columns, heads, alpha=0.01):` — chosen heads attend more to the highlighted tokens.

PASTA. Zhang and others, Tell your model where to attend, 2023, https://arxiv.org/abs/2311.02262

Dimension key: B sequences, heads = H * G query heads, P tokens of a prompt, Q new tokens, T tokens so far.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.registered import Pass, attending
from course_lib.models import blocks
from course_lib.models import heads as heads_of
from course_lib.settings import check_flag

Head = tuple[int, int]  # layer, query head in the layer


def steered(
    logits: Float[Tensor, "*rows Q T"], lowered: Bool[Tensor, "*#rows #Q T"], alpha: float
) -> Float[Tensor, "*rows Q T"]:
    """Return l_ij + log α in the lowered columns: their weights are multiplied by α, and softmax normalises the row.

    PASTA writes this as α A_ij / C_i, where C_i normalises the row. All highlighted spans share one mask: penalties
    that are added span by span, as in the public code (https://github.com/QingruZhang/PASTA), lower every span by the
    penalties of the others.
    """
    return logits + math.log(alpha) * lowered.to(logits.dtype)


@contextmanager
def steering(
    model: PreTrainedModel,
    columns: Bool[Tensor, "B P"],
    heads: Collection[Head] | None = None,
    alpha: float = 0.01,
    spare_first: bool = True,
) -> Iterator[None]:
    """Lower the prompt's tokens that are not highlighted in chosen heads, for every query, inside the `with` block.

    It works with `generate()`, with a cache or without, and with left-padded batches. Generated tokens are never
    lowered. The first pass is the whole prompt; text that follows the prompt in the same pass needs columns of True.
    Deviation: the first token, the attention sink, is not lowered; the paper lowers it, as `spare_first=False` does.

    Args:
        columns: True for the highlighted tokens of each prompt, as `sentences.highlighted` computes them.
        heads: (layer, query head) pairs; None for all heads.
        alpha: the factor of a lowered token's weight, before rows are normalised again.

    Raises:
        ValueError: a prompt has no highlighted token, `heads` is empty or has a head that the model lacks, alpha is not
            positive, or the model is already inside such a `with` block. Inside: the prompts are not those of
            `columns`.
    """
    by_layer = _checked(model, columns, heads, alpha)
    check_flag("spare_first", spare_first)
    n_heads, n_before = heads_of(model).n_query, [0]  # tokens of the last pass without a cache

    def attend(seen: Pass) -> Tensor:
        if seen.layer == 0:
            _fits(seen, columns, n_before)
        logits = seen.logits
        if chosen := by_layer.get(seen.layer):
            is_chosen = torch.zeros(n_heads, dtype=torch.bool, device=logits.device)
            is_chosen[sorted(chosen)] = True
            lowered = _lowered(columns.to(logits.device), seen, spare_first)
            logits = steered(logits, lowered[:, None, None] & is_chosen[:, None, None], alpha)
        return seen.read(logits)

    with attending(model, "course_steering", attend):
        yield


def _lowered(columns: Bool[Tensor, "B P"], seen: Pass, spare_first: bool) -> Bool[Tensor, "B T"]:
    """Return the prompt's columns that are not highlighted; the first real token only without `spare_first`."""
    n_prompt, n_tokens = columns.shape[1], seen.keys.shape[2]
    at = torch.arange(n_tokens, device=columns.device)
    lowered = torch.zeros(len(columns), n_tokens, dtype=torch.bool, device=columns.device)
    lowered[:, :n_prompt] = ~columns
    return lowered & (at != seen.first_real[:, None]) if spare_first else lowered


def _fits(seen: Pass, columns: Bool[Tensor, "B P"], n_before: list[int]) -> None:
    """Check that the prompts of this pass are as many and as long as those of `columns`.

    A pass without a cache is the prompt or, as in `generate(use_cache=False)`, one token longer than the last pass.
    """
    n_rows, n_tokens = seen.real.shape
    if n_rows != len(columns):
        raise ValueError(
            f"got {n_rows} sequences and the columns of {len(columns)}; expected one prompt a row: no beams, and a new "
            "block for every batch."
        )
    if n_tokens < columns.shape[1]:
        raise ValueError(f"got {n_tokens} tokens and columns for a prompt of {columns.shape[1]}; expected it whole.")
    if seen.query.shape[2] == n_tokens:
        if n_tokens not in (columns.shape[1], n_before[0] + 1):
            raise ValueError(
                f"got a text of {n_tokens} tokens and columns for a prompt of {columns.shape[1]}; expected a column "
                "for each token. Give True for tokens after the prompt, so that they are not lowered."
            )
        n_before[0] = n_tokens


def _checked(
    model: PreTrainedModel, columns: object, heads: Collection[Head] | None, alpha: object
) -> dict[int, set[int]]:
    """Return the chosen heads of each layer, after checking the arguments."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < math.inf:
        raise ValueError(f"got alpha={alpha!r}; expected more than 0, such as 0.01 (1 changes nothing).")
    if not isinstance(columns, Tensor) or columns.dtype != torch.bool or columns.ndim != 2 or not columns.numel():
        what = f"{tuple(columns.shape)} {columns.dtype}" if isinstance(columns, Tensor) else type(columns).__name__
        raise ValueError(f"got columns {what}; expected True for highlighted tokens, (prompts, tokens).")
    empty = (~columns.any(dim=1)).nonzero()[:, 0].tolist()
    if empty:
        raise ValueError(f"got nothing highlighted in prompts {empty}; expected at least one token in each.")
    n_layers, n_heads = len(blocks(model)), heads_of(model).n_query
    chosen = all_heads(model) if heads is None else tuple(heads)
    known = set(all_heads(model))
    unknown = [head for head in chosen if not isinstance(head, tuple) or head not in known]
    if unknown or not chosen:
        what = f"heads {unknown[:5]}" if unknown else "no heads"
        raise ValueError(f"got {what}; expected (layer, head) pairs, of {n_layers} layers with {n_heads} heads each.")
    by_layer = defaultdict(set)
    for layer, head in chosen:
        by_layer[layer].add(head)
    return by_layer


def all_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """Return every (layer, query head) of a model."""
    return tuple((layer, head) for layer in range(len(blocks(model))) for head in range(heads_of(model).n_query))
