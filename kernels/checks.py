"""Checks of launchers with shared messages: what was received, what is expected, what to do.

With a wrong shape, type or stride, a kernel silently reads other memory, so every launcher checks first.
None of these checks waits for the GPU.
"""

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)
FREE = torch.iinfo(torch.int32).max  # position of a slot that holds no token: after every query, so no query reads it


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    """Check shape, type and layout of one argument."""
    _check_kind(name, tensor, shape, dtypes)
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}: expected a contiguous tensor; call .contiguous()")


def check_slots(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    """Check a column with a number or vector per slot, (B, H, N) or (B, H, N, D): the first N of a larger cache."""
    _check_kind(name, tensor, shape, dtypes)
    width, room = shape[3] if len(shape) > 3 else 1, slot_room(tensor)
    expected = (shape[1] * room * width, room * width, width, 1)
    layout = zip(shape, tensor.stride(), expected, strict=False)
    if any(n > 1 and stride != whole for n, stride, whole in layout):
        raise ValueError(
            f"{name} has strides {tensor.stride()}, which are not those of a cache's first {shape[2]} slots: expected "
            "a contiguous tensor; call .contiguous()"
        )


def is_slots(tensor: Tensor) -> bool:
    """Return whether a tensor (B, H, N) or (B, H, N, D) has the memory layout of the first N slots of a cache."""
    try:
        check_slots("", tensor, tuple(tensor.shape), (tensor.dtype,))
    except ValueError:
        return False
    return True


def slot_room(tensor: Tensor) -> int:
    """Return the number of slots that each head has memory for; the tensor may show only the first of them."""
    width = max(1, tensor.shape[3:].numel())
    if tensor.shape[1] > 1:
        return tensor.stride(1) // width
    return tensor.stride(0) // width if tensor.shape[0] > 1 else tensor.shape[2]


def check_device(**tensors: Tensor) -> None:
    """Check that all tensors are on one device."""
    if len({tensor.device for tensor in tensors.values()}) > 1:
        got = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
        raise ValueError(f"{got}: expected one device; move them with .to(...)")


def _check_kind(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: expected {shape}; check which tensor was passed")
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name} is {tensor.dtype}: expected {expected}; convert it with .to(...)")
