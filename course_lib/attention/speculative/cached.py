"""A model with a cache that continues from any text: the prefix shared with the previous text is not recomputed.

Dimension key: N tokens of a text, n last ones, V tokens of the vocabulary.
"""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from course_lib.models import architecture, blocks, check_length

# (a text, n) -> logits of the token that follows each of its last n tokens
Logits = Callable[[Int[Tensor, "N"], int], Tensor]


class CachedModel:
    """Next-token logits after the last tokens of a text. We crop cached tokens that the next text does not share.

    Attributes:
        n_passes: number of forward passes so far.
        n_read: number of tokens fed to the model, over all passes.
    """

    def __init__(self, model: PreTrainedModel):
        self.model, self.n_passes, self.n_read = model, 0, 0
        self._forget()

    @torch.no_grad()
    def __call__(self, ids: Int[Tensor, "N"], n: int) -> Float[Tensor, "n V"]:
        """Return the next-token logits after each of the last n tokens of a text."""
        check_length(self.model, len(ids), "texts")
        # The cache holds no logits, so the last n tokens are fed even if they are cached.
        n_held = min(_shared(self._ids, ids), len(ids) - n)
        cache, n_before, new_ids = self._cache, len(self._ids), ids[n_held:]
        self._forget()  # a pass that fails halfway leaves an empty cache
        cache.crop(n_held - n_before)  # minus the number of tokens to remove
        inputs = new_ids[None].to(self.model.device)
        out = self.model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=n)
        self._ids, self._cache = ids.clone(), cache
        self.n_passes, self.n_read = self.n_passes + 1, self.n_read + len(new_ids)
        return out.logits[0].cpu()

    def _forget(self) -> None:
        self._ids, self._cache = torch.empty(0, dtype=torch.long), DynamicCache()


def _shared(first: Int[Tensor, "N"], second: Int[Tensor, "M"]) -> int:
    """Return the length of the common prefix of two texts, in tokens."""
    n = min(len(first), len(second))
    return int((first[:n] == second[:n]).long().cumprod(dim=0).sum())


def first_blocks(model: PreTrainedModel, n: int) -> PreTrainedModel:
    """Return an early exit: a model of the first n transformer blocks, the final norm and the LM head.

    Weights and configuration are shared with the model, not copied. The configuration still describes all blocks, and
    changing the attention implementation of one model changes that of the other.

    Raises:
        ValueError: n is below 1, or larger than the number of blocks of the model.
    """
    n_blocks = len(blocks(model))
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= n_blocks:
        raise ValueError(f"got n={n!r}; expected 1 to {n_blocks} blocks.")
    # Copy only the modules on the path to the list of blocks, such as `model` and `model.layers`.
    *inner, last = architecture(blocks(model)[0]).blocks.split(".")
    exit_ = part = _shell(model)
    for name in inner:
        part._modules[name] = _shell(part._modules[name])
        part = part._modules[name]
    part._modules[last] = nn.ModuleList(list(blocks(model))[:n])
    return exit_


def _shell(module: nn.Module) -> nn.Module:
    """Return a shallow copy whose children can be replaced without changing the original."""
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    return shell
