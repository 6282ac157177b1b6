"""Reuse the same memory for copies of gathered rows, so that it stays in the processor's cache.

A copy in new memory may be written to RAM and read from there again.

Dimension key: F rows of a matrix, K chosen ones.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Room:
    """A buffer for rows of one matrix at a time; it grows to the largest request.

    The next request overwrites the rows of the one before. Blocks that are computed one after the other share a room.
    """

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def rows(self, weight: Float[Tensor, "F *row"], index: Int[Tensor, "K"]) -> Float[Tensor, "K *row"]:
        """Return the chosen rows, valid until the next call. They have no gradient."""
        n = len(index) * weight[:1].numel()
        held = self._memory
        if held is None or len(held) < n or (held.dtype, held.device) != (weight.dtype, weight.device):
            with torch.inference_mode(False):  # or it could be written to in this mode alone
                held = self._memory = torch.empty(n, dtype=weight.dtype, device=weight.device)
        room = held[:n].view(len(index), *weight.shape[1:])
        return torch.index_select(weight.detach(), 0, index, out=room)
