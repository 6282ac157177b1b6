"""Store tensors with their provenance in one safetensors file, which is written completely or not at all.

The file also has a digest of the recipe and one of the content, so that a truncated or altered file, or a file of
another recipe, is detected.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from course_lib.prompts.compressed.layouts import Tensors
from course_lib.pruning.stream.safetensors_io import whole


def write(path: Path, recipe: str, tensors: Tensors, made: dict[str, Any]) -> None:
    """Write the file completely or not at all."""
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {"recipe": recipe, "content": _digest(plain), "made": json.dumps(made)}
    with whole(path) as file:
        file.write(save(plain, metadata))


def read(path: Path, recipe: str) -> tuple[Tensors, dict[str, Any]] | None:
    """Return tensors and provenance, or None if the file is missing, truncated, altered, or of another recipe."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt", device="cpu") as file:
            metadata = file.metadata() or {}
            if metadata.get("recipe") != recipe:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dictionary
    except SafetensorError:
        return None
    return (tensors, json.loads(metadata["made"])) if _digest(tensors) == metadata.get("content") else None


def _digest(tensors: Tensors) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        content.update(name.encode())
        content.update(tensors[name].reshape(-1).view(torch.uint8).numpy())
    return content.hexdigest()
