"""One token of each sequence with the heads that are kept, by the course's kernel, which reads no others' keys.

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
    """The heads that the present block keeps, and whether a kernel has used them.

    Attributes:
        keep: chosen before attention; None where all are computed.
        is_done: whether the kernel has left the others out.
    """

    def __init__(self, device: torch.device) -> None:
        self.keep: Bool[Tensor, "T H"] | None = None
        self.is_done = False
        self._is_nan = torch.zeros((), dtype=torch.bool, device=device)

    @torch.no_grad()
    def choose(self, score: Float[Tensor, "T H"], n_leaving: int) -> None:
        """What `keep_highest` keeps, without waiting for a GPU: sorting is fast for as few as there are heads."""
        self._is_nan |= score.isnan().any()
        order = score.argsort(dim=1, stable=True)[:, n_leaving:]
        self.keep = torch.zeros_like(score, dtype=torch.bool).scatter_(1, order, True)

    def check_nan(self) -> None:
        """Raises ValueError where a score was NaN, which is told this late because the host did not wait for it."""
        if self._is_nan:
            raise ValueError("got NaN among the scores of heads; expected numbers. Look for what diverged in training.")


@contextmanager
def decoding(model: PreTrainedModel) -> Iterator[Decoding | None]:
    """Inside, attention of one token skips heads; None, and nothing changes, where no kernel can compute it.

    That is on a CPU, and in a model that attends through another function than torch's.
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
    """That of torch's attention: none where one token sees all before it, also while a CUDA graph is recorded, for
    which transformers makes one.
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
