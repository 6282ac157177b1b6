"""Attention of one token per sequence with the course's kernel, which loads only the keys and values of kept heads.

Dimension key: B sequences, H query heads, G key-value heads, N tokens so far, d size of a head, T tokens of a pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from course_lib.kernels.dispatch import kernel_for
from course_lib.models import attention_of, blocks

NAME, PLAIN = "kept_heads_sdpa", "sdpa"
CHANGES = ("softcap", "s_aux", "position_bias", "sliding_window")  # of the attention, which the kernel does not compute
_inside: WeakKeyDictionary = WeakKeyDictionary()  # attention modules of models in such a block: their Decoding


class Decoding:
    """The heads that the current block keeps, and whether a kernel has used them.

    Attributes:
        keep: the heads, chosen before attention; None if all are computed.
        is_done: whether the kernel has skipped the other heads.
    """

    def __init__(self, device: torch.device) -> None:
        self.keep: Bool[Tensor, "T H"] | None = None
        self.is_done = False
        self._is_nan = torch.zeros((), dtype=torch.bool, device=device)

    @torch.no_grad()
    def choose(self, score: Float[Tensor, "T H"], n_leaving: int) -> None:
        """Choose the same heads as `keep_highest` without waiting for a GPU; sorting is fast for so few heads."""
        self._is_nan |= score.isnan().any()
        order = score.argsort(dim=1, stable=True)[:, n_leaving:]
        self.keep = torch.zeros_like(score, dtype=torch.bool).scatter_(1, order, True)

    def check_nan(self) -> None:
        """Raise ValueError if a score was NaN. It is raised only now because the host did not wait for the scores."""
        if self._is_nan:
            raise ValueError("got NaN among the scores of heads; expected numbers. Look for what diverged in training.")


@contextmanager
def decoding(model: PreTrainedModel) -> Iterator[Decoding | None]:
    """Skip heads in the attention of one token inside the `with` block, or yield None if no kernel can compute it.

    No kernel can compute it on a CPU, or if the model uses another attention function than torch's.
    """
    on_gpu = kernel_for("per_token.head_sparse_decode", next(model.parameters()).detach()) is not None
    if not on_gpu or model.config._attn_implementation != PLAIN:
        yield None
        return
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
    found, modules = Decoding(model.device), [attention_of(block) for block in blocks(model)]
    _inside.update(dict.fromkeys(modules, found))
    try:
        model.set_attn_implementation(NAME)
        yield found
        found.check_nan()
    finally:
        model.set_attn_implementation(PLAIN)
        for module in modules:
            del _inside[module]


def _mask(*arguments: Any, **settings: Any) -> Tensor | None:
    """Return the mask of torch's attention. There is none if a single token attends to all tokens before it, also
    while a CUDA graph is recorded, for which transformers makes a mask.
    """
    is_last = settings.get("q_length") == 1 and settings.get("allow_is_causal_skip", True)
    if is_last and settings.get("attention_mask") is None and settings.get("local_size") is None:
        return None
    return ALL_MASK_ATTENTION_FUNCTIONS[PLAIN](*arguments, **settings)


def _attend(
    module: nn.Module,
    query: Float[Tensor, "B H Q d"],
    key: Float[Tensor, "B G N d"],
    value: Float[Tensor, "B G N d"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[Float[Tensor, "B Q H d"], None]:
    plain: Callable = ALL_ATTENTION_FUNCTIONS[PLAIN]
    found = _inside.get(module)
    keep = None if found is None else found.keep
    is_plain = attention_mask is None and not dropout and not any(settings.get(name) is not None for name in CHANGES)
    if is_plain and query.shape[2] == 1 and keep is not None and keep.shape == query.shape[:2]:
        one = query[:, :, 0].contiguous()
        if kernel := kernel_for("per_token.head_sparse_decode", one, key, value):
            found.is_done = True
            factor = query.shape[-1] ** -0.5 if scaling is None else scaling
            return kernel.launch(one, key, value, keep, factor)[:, None], None
    return plain(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **settings)
