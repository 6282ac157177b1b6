"""Sums of attention over the newest queries instead of all queries so far.

Dimension key: B sequences, H key-value heads, Q queries, N slots, K parts of the window.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE

PARTS = 8


def check_window(window: object) -> None:
    """Raise ValueError if the window is not a multiple of 8."""
    if type(window) is not int or window < PARTS or window % PARTS:
        raise ValueError(f"got a window of {window!r} queries; expected a multiple of {PARTS}: it moves in eighths.")


def recent_sum(
    slots: Slots, name: str, new: Float[Tensor, "B H Q N"], position: Int[Tensor, "B Q"], window: int
) -> Float[Tensor, "B H N K"]:
    """Return the attention that each slot received from the newest queries, as K partial sums to remember under `name`.

    The window, a multiple of 8, moves in steps of an eighth, so the sum covers between 7/8 of it and all of it. To move
    it by single queries we would have to store one number per slot and query.
    """
    size = window // PARTS
    old = slots.memory(name, PARTS)
    if not new.shape[2]:
        return old
    real = position != FREE
    part = torch.where(real, position, -1) // size  # (B, Q), counted from the start of the text
    newest = part.amax(dim=1, keepdim=True)  # (B, 1)
    places = torch.arange(PARTS, device=part.device)
    held = newest - (newest - places) % PARTS  # (B, K): which part of the text each place stands for now
    first = torch.where(real, position, FREE).amin(dim=1, keepdim=True)
    before = (first - 1) // size
    kept = held <= before  # those that had begun before this chunk and are not overwritten by it
    counts = ((part[:, :, None] == held[:, None, :]) & real[:, :, None]).to(new.dtype)
    return old * kept[:, None, None, :] + torch.einsum("bhqn,bqk->bhnk", new, counts)
