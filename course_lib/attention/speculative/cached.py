"""A model with a cache that goes on from any text: what it shares with the one before is not computed again.

Dimension key: N tokens of a text, n last ones, V words of the vocabulary.
"""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from course_lib.models import architecture, blocks, check_length

# (a text, n) -> logits of the token behind each of its last n tokens
Logits = Callable[[Int[Tensor, "N"], int], Tensor]


class CachedModel:
    """Logits behind the last tokens of a text. Keys and values of tokens that the next text lacks are cropped away.

    Attributes:
        n_passes: so far.
        n_read: tokens that were fed, all passes together.
    """

    def __init__(self, model: PreTrainedModel):
        self.model, self.n_passes, self.n_read = model, 0, 0
        self._forget()

    @torch.no_grad()
    def __call__(self, ids: Int[Tensor, "N"], n: int) -> Float[Tensor, "n V"]:
        check_length(self.model, len(ids), "texts")
        # The tokens whose logits are wanted have to be fed, also those that the cache holds.
        n_held = min(_shared(self._ids, ids), len(ids) - n)
        cache, n_before, new = self._cache, len(self._ids), ids[n_held:]
        self._forget()  # so that a pass that fails halfway leaves nothing behind
        cache.crop(n_held - n_before)  # minus what leaves
        read = new[None].to(self.model.device)
        out = self.model(read, past_key_values=cache, use_cache=True, logits_to_keep=n)
        self._ids, self._cache = ids.clone(), cache
        self.n_passes, self.n_read = self.n_passes + 1, self.n_read + len(new)
        return out.logits[0].cpu()

    def _forget(self) -> None:
        self._ids, self._cache = torch.empty(0, dtype=torch.long), DynamicCache()


def _shared(first: Int[Tensor, "N"], second: Int[Tensor, "M"]) -> int:
    """How many tokens two texts begin with together."""
    n = min(len(first), len(second))
    return int((first[:n] == second[:n]).long().cumprod(dim=0).sum())


def first_blocks(model: PreTrainedModel, n: int) -> PreTrainedModel:
    """An early exit: the model's own first n blocks, then its final norm and head.

    Weights are shared, not copied, and so is the configuration, which goes on to speak of all blocks: whoever changes
    how the model attends changes both.

    Raises:
        ValueError: for fewer than one block, or more than there are.
    """
    n_blocks = len(blocks(model))
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= n_blocks:
        raise ValueError(f"got n={n!r}; expected 1 to {n_blocks} blocks.")
    *inner, last = architecture(blocks(model)[0]).blocks.split(".")
    exit_ = part = _shell(model)
    for name in inner:
        part._modules[name] = _shell(part._modules[name])
        part = part._modules[name]
    part._modules[last] = nn.ModuleList(list(blocks(model))[:n])
    return exit_


def _shell(module: nn.Module) -> nn.Module:
    """A module with the same children, of which others can be put in; the original keeps its own."""
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    return shell
