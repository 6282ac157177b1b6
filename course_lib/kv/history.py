"""Sums over the newest queries: what a token received lately, not ever.

Dimension key: B sequences, H key-value heads, Q queries, N slots, K parts of the window.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.kv.slots import Slots
from course_lib.kv.vectors import FREE

PARTS = 8


def check_window(window: object) -> None:
    """Raises ValueError for a window that has no eighths."""
    if type(window) is not int or window < PARTS or window % PARTS:
        raise ValueError(f"got a window of {window!r} queries; expected a multiple of {PARTS}: it moves by eighths.")


def recent_sum(
    slots: Slots, name: str, new: Float[Tensor, "B H Q N"], position: Int[Tensor, "B Q"], window: int
) -> Float[Tensor, "B H N K"]:
    """What each slot received from the newest queries, to be remembered under `name` and summed over the parts.

    The window, a multiple of 8, advances by an eighth of itself: the sum is over more than 7/8 of it. To move it by
    single queries, a number would have to be kept of each slot and query.
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
