"""Read weights that accelerate has offloaded, and write pruned ones back, on the CPU, on disk or on a GPU.

Dimension key: O outputs of a linear layer, I its inputs.

`from_pretrained(..., device_map="auto")` distributes a model over GPUs, memory and disk. Between forward passes an
offloaded layer's parameters are on the meta device, without data; accelerate's hook on the layer holds their location.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from course_lib.models import weight_of


def is_offloaded(linear: nn.Module) -> bool:
    """Return whether the layer's weights are loaded only for its forward pass."""
    return linear.weight.is_meta and bool(getattr(_hook(linear), "offload", False))


def device_of(linear: nn.Module) -> torch.device:
    """Return the device on which the layer runs."""
    return torch.device(_hook(linear).execution_device) if is_offloaded(linear) else linear.weight.device


def read(linear: nn.Module) -> Float[Tensor, "O I"]:
    """Return the layer's weight as (outputs, inputs), on the device on which the layer runs."""
    if not is_offloaded(linear):
        return weight_of(linear)
    weight = _hook(linear).weights_map["weight"].to(device_of(linear))
    return weight.T if isinstance(linear, Conv1D) else weight  # Conv1D of GPT-2 stores (inputs, outputs)


def put(linear: nn.Module, weight: Float[Tensor, "O I"]) -> None:
    """Replace the layer's weight in place, also where it is offloaded. Checkpoint files are never changed."""
    if not is_offloaded(linear):
        weight_of(linear).copy_(weight)
        return
    new = (weight.T if isinstance(linear, Conv1D) else weight).contiguous()
    files, key = _files(linear)
    if files is None or key in files.state_dict:
        _hook(linear).weights_map["weight"].copy_(new)  # offloaded to memory
        return
    # Weights on disk exist only if accelerate, an optional package, is installed.
    from accelerate.utils import offload_weight

    offload_weight(new, key, files.save_folder, files.index)


def check_place(name: str, linear: nn.Module) -> None:
    """Raise ValueError if the layer's pruned weight could not be stored."""
    files, key = _files(linear) if is_offloaded(linear) else (None, "")
    if files is not None and key not in files.state_dict and files.save_folder is None:
        raise ValueError(
            f"{name} is read from the checkpoint whenever it runs, so its pruned weight cannot be stored; expected a "
            "model loaded with offload_folder=... in addition to device_map."
        )


def _hook(linear: nn.Module) -> object:
    return getattr(linear, "_hf_hook", None)


def _files(linear: nn.Module) -> tuple[object | None, str]:
    """Return accelerate's table of weights on disk, or None for weights in memory, and the layer's key in it."""
    weights_map = _hook(linear).weights_map
    dataset, key = getattr(weights_map, "dataset", weights_map), f"{getattr(weights_map, 'prefix', '')}weight"
    return (dataset if hasattr(dataset, "save_folder") else None), key
