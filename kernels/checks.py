"""What launchers refuse, in the words they share: what was got, what is expected, what to do.

A kernel that gets the wrong shape, type or stride reads other memory without a word, so every launcher checks first.
None of these checks waits for the GPU.
"""

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    """Shape, type and layout of one argument."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: expected {shape}; check which tensor was passed")
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name} is {tensor.dtype}: expected {expected}; convert it with .to(...)")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}: expected a contiguous tensor; call .contiguous()")


def check_device(**tensors: Tensor) -> None:
    """One device for all."""
    if len({tensor.device for tensor in tensors.values()}) > 1:
        got = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
        raise ValueError(f"{got}: expected one device; move them with .to(...)")
