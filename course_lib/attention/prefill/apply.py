"""`with prefilling(model, FlexPrefill(gamma=0.95)) as watch:` — prompts are read sparsely, decoding stays dense.

A registered attention function replaces the model's own; no class of the model changes. It works with `generate()`,
with a cache or without. If there are more keys than new tokens, as in decoding, attention is that of transformers.

Dimension key: B sequences, L layers, H key-value heads, heads = H * G query heads, T tokens, D size of a head.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from course_lib.attention.interface import check_plain, reading_through
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.padding import real_tokens
from course_lib.attention.prefill.pattern import SparsePrefill
from course_lib.attention.prefill.watch import Watch
from course_lib.models import blocks, check_is_model, heads

NAME = "course_prefill"
_inside: dict[int, tuple[SparsePrefill, Watch]] = {}  # by the id of a configuration, which exists as long as the block


@contextmanager
def prefilling(model: PreTrainedModel, rule: SparsePrefill, measured: str = "last") -> Iterator[Watch]:
    """Let a prompt's queries attend only to the blocks that `rule` chooses, inside the `with` block; restore on exit.

    A text of at most `rule.longest_dense` tokens is read densely; a warning says so if no text was longer.

    Args:
        measured: the queries whose coverage the watch measures: the "last" block, which is cheap; "all", which is as
            expensive as dense attention; or "none", to measure time.

    Raises:
        ValueError: `rule` is not a rule, or the model is already inside such a `with` block. Inside: dropout, a mask
            with holes or with more than padding, attention with a modified softmax, a cache of fixed size, or a call
            that requests attention weights.
    """
    check_rule(rule)
    check_is_model(model)
    watch = Watch(len(blocks(model)), heads(model).n_query, measured)
    with reading_through(model, NAME, _attention, sdpa_mask):
        _inside[id(model.config)] = rule, watch
        try:
            yield watch
        finally:
            del _inside[id(model.config)]
    if watch.n_short and not watch.n_sparse:
        warnings.warn(
            f"no text was longer than {rule.longest_dense} tokens, so all attention was dense; give longer texts, or "
            f"smaller blocks and budgets than those of {rule}.",
            stacklevel=3,
        )


def check_rule(rule: object) -> None:
    """Raise ValueError for anything but a rule, for example a fraction."""
    if not isinstance(rule, SparsePrefill):
        raise ValueError(f"got rule {rule!r}; expected a SparsePrefill, such as FlexPrefill(gamma=0.95).")


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention in each layer for transformers: (B, heads, T, D) in, (B, T, heads, D) out."""
    if id(module.config) not in _inside:
        raise ValueError("got a forward pass outside of this model's `with prefilling(...)`; expected it inside.")
    check_plain(module, kwargs, dropout)
    if query.shape[2] != key.shape[2] or query.shape[2] == 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    rule, watch = _inside[id(module.config)]
    real = real_tokens(attention_mask, query.shape[0], query.shape[2])
    if real is None:  # for texts of equal length, the batch is an additional factor of the number of heads
        folded = (each.flatten(0, 1) for each in (query, key, value))
        output = _read(rule, watch, module.layer_idx, *folded, scaling).view(*query.shape[:3], -1)
    else:
        output = query.new_zeros(*query.shape[:3], value.shape[3])  # padding attends to nothing
        for sequence, some in enumerate(real):
            text = (each[sequence, :, some] for each in (query, key, value))
            output[sequence, :, some] = _read(rule, watch, module.layer_idx, *text, scaling)
    return output.transpose(1, 2).contiguous(), None


def _read(
    rule: SparsePrefill, watch: Watch, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float
) -> Tensor:
    """Compute one layer for texts of equal length, (heads, T, D) each."""
    index = rule.index(query, keys, scaling, layer)
    with torch.no_grad():
        watch.count(layer, query, keys, index, scaling, is_short=index.n_tokens <= rule.longest_dense)
    return block_sparse_attention(query, keys, values, index, scaling)
