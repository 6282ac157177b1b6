"""A decoding step in full slots, written in place: one launch adds a token, another one evicts the lowest.

Dimension key: B sequences, H key-value heads, N slots in use, D size of a head, K numbers of a slot.

In torch, each of the two is a dozen operations on a few numbers. On a GPU, the launches of all layers together then
take as long as the attention that the evictions save. Here a program handles one head of one sequence. There is memory
for more slots; all columns of a layer have the same room. Nothing waits for the GPU, and all addresses stay the same,
so a CUDA graph can contain the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_slots, check_tensor, is_slots, slot_room
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton
from torch import Tensor

__all__ = ["append_", "drop_lowest_", "runs_kernel", "takes"]  # kernel_for asks for the last two

MOST_NUMBERS = 4  # columns of one number a slot, besides position and lag, that one launch writes
MOST_SLOTS = 8192  # slots that a program handles at a time


def takes(*columns: Tensor) -> bool:
    """Return whether these columns, each (B, H, N) or (B, H, N, D), are the first slots of their storage."""
    return all(is_slots(column) for column in columns)


@jit(lengths=("N", "ROOM", "KEY_B", "KEY_H", "VALUE_B", "VALUE_H"))
def append_kernel(
    key, value, new_position, new_rotation, new_seen, keys, values, position, rotation, lag, n_seen,
    zero0, zero1, zero2, zero3, N, ROOM, KEY_B, KEY_H, VALUE_B, VALUE_H, H: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Slot N of one head gets the new key and value, and what is known of the token."""
    head = tl.program_id(0).to(tl.int64)  # of all sequences: sequence * H + head
    b, h, slot = head // H, head % H, head * ROOM + N
    d = tl.arange(0, BLOCK_D)
    k = tl.load(key + b * KEY_B + h * KEY_H + d, mask=d < D)
    v = tl.load(value + b * VALUE_B + h * VALUE_H + d, mask=d < D)
    tl.store(keys + slot * D + d, k, mask=d < D)
    tl.store(values + slot * D + d, v, mask=d < D)
    tl.store(position + slot, tl.load(new_position + b).to(tl.int32))
    if rotation is not None:
        turned = tl.load(new_rotation + b).to(tl.int32)
        tl.store(rotation + slot, turned)
        tl.store(lag + slot, turned - N)
    if zero0 is not None:
        tl.store(zero0 + slot, 0)
    if zero1 is not None:
        tl.store(zero1 + slot, 0)
    if zero2 is not None:
        tl.store(zero2 + slot, 0)
    if zero3 is not None:
        tl.store(zero3 + slot, 0)
    if h == 0:
        tl.store(n_seen + b, tl.load(new_seen + b))


def append_(
    key: Tensor,
    value: Tensor,
    new: tuple[Tensor, Tensor, Tensor],
    slots: dict[str, Tensor],
    n: int,
    n_seen: Tensor,
) -> None:
    """Append one token of each sequence, without padding, after the first n slots, none of which is FREE.

    Args:
        key, value: (B, H, 1, D), with any strides except along D.
        new: position and rotation of the tokens, (B, 1), and the number of tokens seen by each sequence now, (B,).
        slots: "keys", "values" and "position" of all slots with memory; "rotation" and "lag" or neither; and at most
            MOST_NUMBERS columns of one number, which become 0.
        n_seen: is overwritten.
    """
    (n_sequences, n_heads, n_slots, size), names = (
        slots["keys"].shape,
        ("keys", "values", "position", "rotation", "lag"),
    )
    zeros = [tensor for name, tensor in slots.items() if name not in names]
    _check_columns(slots, zeros)
    for name, vector in (("key", key), ("value", value)):
        if (
            vector.shape != (n_sequences, n_heads, 1, size)
            or vector.dtype != slots["keys"].dtype
            or vector.stride(3) != 1
        ):
            raise ValueError(
                f"{name} is {vector.dtype} of shape {tuple(vector.shape)}: expected {slots['keys'].dtype} and "
                f"{(n_sequences, n_heads, 1, size)}, contiguous in the last axis; take one token of each sequence"
            )
    if not 0 <= n < n_slots:
        raise ValueError(f"n is {n} in storage of {n_slots} slots: expected room for one more; let the storage grow")
    with torch.cuda.device_of(key):
        append_kernel[(n_sequences * n_heads,)](
            key, value, *(tensor.contiguous() for tensor in new), *(slots.get(name) for name in names), n_seen,
            *_padded(zeros), n, n_slots, *key.stride()[:2], *value.stride()[:2], H=n_heads, D=size,
            BLOCK_D=triton.next_power_of_2(size), num_warps=1,
        )  # fmt: skip


@jit(lengths=("N", "ROOM", "SCORE_ROOM"))
def drop_kernel(
    score, n_seen, evicted, keys, values, position, lag, number0, number1, number2, number3,
    N, ROOM, SCORE_ROOM, RECENT: tl.constexpr, SINKS: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The first of the lowest scores of one head, and slot N - 1 into its place."""
    head = tl.program_id(0).to(tl.int64)  # of all sequences: sequence * H + head
    first, tile, last = head * ROOM, tl.arange(0, TILE), N - 1
    newest = tl.load(n_seen + head // H) - RECENT
    lowest = tl.full([TILE], float("inf"), tl.float32)
    place = tile
    for start in range(0, N, TILE):
        n = start + tile
        inside = n < N
        worth = tl.load(score + head * SCORE_ROOM + n, mask=inside, other=float("inf")).to(tl.float32)
        if RECENT or SINKS:
            at = tl.load(position + first + n, mask=inside, other=0)
            worth = tl.where((at >= newest) & (RECENT > 0) | (at < SINKS), float("inf"), worth)
        lower = worth < lowest
        lowest, place = tl.where(lower, worth, lowest), tl.where(lower, n, place)
    # The last slot is read before the minimum is known, hence before any thread can write.
    last_position = tl.load(position + first + last)
    if lag is not None:
        last_lag = tl.load(lag + first + last)
    out = tl.min(tl.where(lowest == tl.min(lowest, 0), place, N), 0)  # of equal scores, the first slot
    if lag is not None:
        gone = tl.load(position + first + out)
        for start in range(0, N, TILE):
            n = start + tile
            inside = n < N
            at = tl.load(position + first + n, mask=inside, other=0)
            behind = tl.load(lag + first + n, mask=inside, other=0) + (at > gone).to(tl.int32)
            tl.store(lag + first + n, behind, mask=inside)
        tl.debug_barrier()  # all have read the position that is overwritten below
        tl.store(lag + first + out, last_lag + (last_position > gone).to(tl.int32))
    tl.store(position + first + out, last_position)
    if keys is not None:
        d = tl.arange(0, BLOCK_D)
        k = tl.load(keys + (first + last) * D + d, mask=d < D)
        v = tl.load(values + (first + last) * D + d, mask=d < D)
        tl.store(keys + (first + out) * D + d, k, mask=d < D)
        tl.store(values + (first + out) * D + d, v, mask=d < D)
    if number0 is not None:
        tl.store(number0 + first + out, tl.load(number0 + first + last))
    if number1 is not None:
        tl.store(number1 + first + out, tl.load(number1 + first + last))
    if number2 is not None:
        tl.store(number2 + first + out, tl.load(number2 + first + last))
    if number3 is not None:
        tl.store(number3 + first + out, tl.load(number3 + first + last))
    tl.store(evicted + head, out.to(tl.int64))


def drop_lowest_(score: Tensor, slots: dict[str, Tensor], n_seen: Tensor, recent: int = 0, sinks: int = 0) -> Tensor:
    """Evict the slot with the lowest score, move the last slot there, and return the index (B, H, 1).

    Args:
        score: (B, H, N), the first slots of a column or contiguous. No slot may be FREE.
        slots: "position" of all slots with memory, or more of their columns: "keys" and "values" or neither; "lag",
            which grows by one if the evicted token was an older one; columns of one number.
        recent, sinks: so many of the newest and of the first tokens are kept, whatever their score.
    """
    names = ("keys", "values", "position", "lag")
    numbers = [tensor for name, tensor in slots.items() if name not in names]
    _check_columns(slots, numbers)
    n_sequences, n_heads, n = score.shape
    check_slots("score", score, (*slots["position"].shape[:2], n), FLOATS)
    check_tensor("n_seen", n_seen, (n_sequences,), (torch.int64,))
    check_device(score=score, n_seen=n_seen, **slots)
    size = 1 if slots.get("keys") is None else slots["keys"].shape[3]
    evicted = torch.empty(n_sequences, n_heads, 1, dtype=torch.int64, device=score.device)
    tile = max(16, min(MOST_SLOTS, triton.next_power_of_2(n)))
    with torch.cuda.device_of(score):
        drop_kernel[(n_sequences * n_heads,)](
            score, n_seen, evicted, *(slots.get(name) for name in names), *_padded(numbers),
            n, slots["position"].shape[2], slot_room(score), RECENT=recent, SINKS=sinks, H=n_heads,
            D=size, BLOCK_D=triton.next_power_of_2(size), TILE=tile, num_warps=max(1, min(16, tile // 512)),
        )  # fmt: skip
    return evicted


def _padded(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    return [*tensors, *[None] * (MOST_NUMBERS - len(tensors))]


def _check_columns(slots: dict[str, Tensor], numbers: list[Tensor]) -> None:
    """Check that columns are contiguous and of one shape, with positions in int32."""
    shape, room = slots["position"].shape, slots["position"].shape[2]
    for name, tensor in slots.items():
        vectors = name in ("keys", "values")
        check_tensor(
            name, tensor, (*shape[:2], room, *tensor.shape[3:]), FLOATS if vectors else (torch.int32, torch.float32)
        )
        if (tensor.ndim != 3) != vectors:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: expected one number a slot; move it in torch")
    if len(numbers) > MOST_NUMBERS:
        raise ValueError(
            f"got {len(numbers)} columns of numbers: expected at most {MOST_NUMBERS}; move others in torch"
        )
