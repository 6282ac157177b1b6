"""One decoding step in full slots, in PyTorch and in two launches: a token is added and the lowest one is evicted.

Dimension key: B sequences, H key-value heads, N slots, D size of a head.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.kernels import runtime
from course_lib.kv.slots import NewTokens, Slots
from course_lib.measure.roofline import Work

GPU_SECONDS = 25  # most of it to start the process
BATCHES = {"cpu": (1, 8), "cuda": (1, 32)}
SHAPE = {"cpu": (3, 820, 64), "cuda": (8, 1638, 128)}  # H, N, D: a fifth of a text; a layer of a model of 8B


def contests(place: Place) -> Iterator[Contest]:
    n_heads, n, size = (2, 70, 16) if place.quick else SHAPE[place.device.type]
    for n_sequences in (2,) if place.quick else BATCHES[place.device.type]:
        keys = place.randn(n_sequences, n_heads, n, size)
        slots = Slots.empty(keys)
        slots.append_(keys, keys, NewTokens.unpadded(n, None, slots.n_seen))
        slots.remember_({"mass": place.rand(n_sequences, n_heads, n)})
        yield _contest(f"batch {n_sequences}, slots {n}", place, slots)


def _contest(name: str, place: Place, slots: Slots) -> Contest:
    (n_sequences, n_heads), n, size = slots.shape, slots.n, slots.keys.shape[3]
    new = place.randn(n_sequences, 1, n_heads, size).transpose(1, 2)  # strides as models give them
    score = place.rand(n_sequences, n_heads, n + 1)
    score[:, :, [0, n]] = 2.0  # they are kept, protected or not
    # Neither among the first nor among the newest of a long text, so that every repetition does the same.
    position = torch.full((n_sequences, 1), 5, device=place.device)
    tokens = NewTokens(position, position, torch.full_like(position[:, 0], 10 * n), has_padding=False)
    expected = slots.position.scatter(2, score.argmin(dim=2, keepdim=True), 5)  # the slot of the new token

    def step(on: bool) -> Tensor:
        with kernels(on):
            slots.append_(new, new, tokens)
            slots.drop_lowest_(score, recent=1, sinks=1)
        return slots.position

    a_slot = sum(column[:, :, :1].nbytes for column in slots.storage.values())
    # Scores and positions are read; the new slot is written, and the last one read and written.
    work = Work(0, score.nbytes + slots.position.nbytes + 3 * a_slot)
    sides = [Side("in torch", lambda: step(False), work)]
    if place.device.type == "cuda" or runtime.INTERPRETED:
        sides.append(Side("in two launches", lambda: step(True), work))
    return Contest(name, (n_sequences, n_heads, n), sides, expected)
