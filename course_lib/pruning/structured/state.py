"""The state of a distillation run on the disk. It is written atomically, so that an interrupted run can resume."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.pruning.stream.safetensors_io import whole

STATE = "distillation.pt"


def save(path: Path, identity: dict[str, str], model: nn.Module, optimiser: Optimizer, losses: list[float]) -> None:
    """Write the trainable weights, AdamW's state and the losses so far: about three numbers per trainable weight."""
    learning = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    state = {"identity": identity, "losses": losses, "weights": learning, "optimiser": optimiser.state_dict()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as file:
        torch.save(state, file)


def restore(path: Path, identity: dict[str, str], model: nn.Module, optimiser: Optimizer) -> list[float]:
    """Restore model and optimiser from the file, and return the losses so far.

    Raises:
        ValueError: for the state of a run with other settings, or a file that cannot be read.
    """
    if not zipfile.is_zipfile(path):  # torch.save writes a zip archive, whose directory comes last
        raise ValueError(f"got {path}, which cannot be read; remove it to start again.")
    state: dict[str, Any] = torch.load(path, weights_only=True, map_location=next(model.parameters()).device)
    if different := [key for key, value in identity.items() if state["identity"].get(key) != value]:
        raise ValueError(
            f"got {path}, the state of a run with another {', '.join(different)}. Use another folder, or "
            "remove that file to start again."
        )
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in state["weights"].items():
            weights[name].copy_(value)
    optimiser.load_state_dict(state["optimiser"])
    return list(state["losses"])
