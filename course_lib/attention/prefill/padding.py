"""Find the real tokens of a batch from the mask that transformers passes to an attention function.

Dimension key: B sequences, T tokens.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

REMEDY = "expected None or padding before or after each text, as a tokenizer makes it: a 2-D attention_mask of 0 and 1."


def real_tokens(mask: Tensor | None, n_sequences: int, n_tokens: int) -> list[slice] | None:
    """Return the positions of each sequence's text, or None if there is no padding at all.

    Args:
        mask: (B, 1, T, T), whether a query may read a key, as transformers makes it for sdpa.

    Raises:
        ValueError: the mask is not only causal and padding (packed texts, windows), or a sequence has holes or no
            tokens.
    """
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape != (n_sequences, 1, n_tokens, n_tokens):
        raise ValueError(f"got an attention mask of shape {tuple(mask.shape)} and type {mask.dtype}; {REMEDY}")
    real = mask[:, 0, -1]  # keys that the last query, real or padding, may attend to
    causal = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=mask.device).tril()
    if not torch.equal(mask[:, 0], causal & real[:, None]):
        raise ValueError(
            f"got an attention mask that hides more than padding, as of packed texts or a window; {REMEDY}"
        )
    if real.all():
        return None
    return [_where(row, i) for i, row in enumerate(real)]


def _where(real: Bool[Tensor, "T"], sequence: int) -> slice:
    """Return the single run of real tokens."""
    places = real.nonzero()[:, 0]
    if not len(places) or int(places[-1] - places[0]) + 1 != len(places):
        raise ValueError(
            f"got a mask with {'holes' if len(places) else 'no token at all'} in sequence {sequence}; {REMEDY}"
        )
    return slice(int(places[0]), int(places[-1]) + 1)
