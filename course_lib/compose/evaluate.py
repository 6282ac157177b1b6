"""The loss of a built model with all its parts: the start of a text in one pass, the rest through the cache.

So sparse prefill takes effect in the first pass, and eviction in the later ones. All models read the same windows, so
their losses can be compared in pairs.

Dimension key: n windows of N tokens, of which the first R are read in one pass.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.compose.build import Built

CHUNK = 16  # tokens of a continuation read in one pass; eviction follows after each pass
LONG_CHUNK = 128  # if no part acts while the model runs: the losses then do not depend on the chunks


@torch.no_grad()
def continued_losses(built: Built, windows: Int[Tensor, "n N"], n_first: int | None = None) -> Float[Tensor, "n"]:
    """Compute the mean loss of the tokens after the first `n_first` (default: half of a window), in nats per token.

    The result is in float64. The first of these tokens does not count: it is predicted before any eviction.

    Raises:
        ValueError: windows that are too short.
    """
    n_first = windows.shape[1] // 2 if n_first is None else n_first
    if windows.ndim != 2 or not 1 <= n_first <= windows.shape[1] - 2:
        raise ValueError(
            f"got windows of shape {tuple(windows.shape)} and n_first={n_first}; expected (n, N) with at least two "
            "tokens after the first ones."
        )
    ids, found = windows.to(built.model.device), []
    chunk = CHUNK if built.made.inside else LONG_CHUNK
    with built.running() as cache:
        built.model(ids[:, :n_first], past_key_values=cache, use_cache=True, logits_to_keep=1)
        for start in range(n_first, ids.shape[1] - 1, chunk):
            end = min(start + chunk, ids.shape[1] - 1)
            logits = built.model(ids[:, start:end], past_key_values=cache, use_cache=True).logits
            found.append(
                cross_entropy(logits.float().transpose(1, 2), ids[:, start + 1 : end + 1], reduction="none").cpu()
            )
    return torch.cat(found, dim=1).double().mean(dim=1)
