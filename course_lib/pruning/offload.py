"""Weights that accelerate keeps elsewhere: read them, and put pruned ones back, on the CPU, on disk or on a GPU.

Dimension key: O outputs of a linear layer, I its inputs.

`from_pretrained(..., device_map="auto")` spreads a model over GPUs, memory and disk. Between forward passes an
offloaded layer has no data; a hook of accelerate's on the layer knows where it lies.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from course_lib.models import weight_of


def is_offloaded(linear: nn.Module) -> bool:
    """Whether the layer has its weights only while it runs."""
    return linear.weight.is_meta and bool(getattr(_hook(linear), "offload", False))


def device_of(linear: nn.Module) -> torch.device:
    """Where the layer runs."""
    return torch.device(_hook(linear).execution_device) if is_offloaded(linear) else linear.weight.device


def read(linear: nn.Module) -> Float[Tensor, "O I"]:
    """The layer's weight as (outputs, inputs), where it runs."""
    if not is_offloaded(linear):
        return weight_of(linear)
    stored = _hook(linear).weights_map["weight"].to(device_of(linear))
    return stored.T if isinstance(linear, Conv1D) else stored


def put(linear: nn.Module, weight: Float[Tensor, "O I"]) -> None:
    """Replace the layer's weight where it is kept. A checkpoint that it was read from stays as it is."""
    if not is_offloaded(linear):
        weight_of(linear).copy_(weight)
        return
    new = (weight.T if isinstance(linear, Conv1D) else weight).contiguous()
    files, key = _files(linear)
    if files is None or key in files.state_dict:
        _hook(linear).weights_map["weight"].copy_(new)
        return
    from accelerate.utils import offload_weight  # whoever made these files has it

    offload_weight(new, key, files.save_folder, files.index)


def check_place(name: str, linear: nn.Module) -> None:
    """Raises ValueError where a pruned weight would have nowhere to go."""
    files, key = _files(linear) if is_offloaded(linear) else (None, "")
    if files is not None and key not in files.state_dict and files.save_folder is None:
        raise ValueError(
            f"{name} is read from the checkpoint whenever it runs, so that its pruned weight has no place; expected a "
            "model loaded with offload_folder=... beside its device_map."
        )


def _hook(linear: nn.Module) -> object:
    return getattr(linear, "_hf_hook", None)


def _files(linear: nn.Module) -> tuple[object | None, str]:
    """accelerate's table of weights on disk, if that is where this one is kept, and its name there."""
    kept = _hook(linear).weights_map
    dataset, key = getattr(kept, "dataset", kept), f"{getattr(kept, 'prefix', '')}weight"
    return (dataset if hasattr(dataset, "save_folder") else None), key
