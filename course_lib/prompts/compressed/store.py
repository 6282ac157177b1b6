"""Compressed models in the user's cache. Each is computed once, and again when its file is damaged or out of date.

A file holds the compressed weights and, for structured pruning, the indices of the kept parts. Embeddings and norms
come from the dense model and count as 16 bits per number. The recipe of a file is a digest of the compression's
settings, the dense model's weights and the calibration tokens.
"""

import hashlib
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.assets.cache import cache_folder
from course_lib.data.corpora import windows
from course_lib.measure.result_files import now
from course_lib.models import DEFAULT_MODEL, layers_of, load_model, part_loaded, weight_of
from course_lib.prompts.compressed.catalogue import named
from course_lib.prompts.compressed.files import read, write
from course_lib.prompts.compressed.kinds import Compression
from course_lib.prompts.compressed.layouts import Tensors

DENSE = "dense"
NUMBER_BYTES = 2  # per number that is neither pruned nor quantized
CALIBRATION = (16, 256)  # windows, and tokens per window, of Wikipedia that calibrate the default model's compressions


@dataclass(frozen=True, eq=False, kw_only=True)
class Compressed:
    """A compressed model, decoded from its stored tensors.

    Args:
        weight_bytes: bytes of the blocks' linears as stored: codes, scales, zeros, bitmaps, offsets, values.
        n_others: parameters outside these linears, such as embeddings and norms. A tied LM head counts once.
        made: provenance: date, compression settings and shape of the calibration windows.
    """

    name: str
    model: PreTrainedModel = field(repr=False)
    weight_bytes: int
    n_others: int
    made: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def n_bytes(self) -> int:
        return self.weight_bytes + NUMBER_BYTES * self.n_others


def dense(model: PreTrainedModel) -> Compressed:
    """Return the model itself, with 16 bits per parameter."""
    n_weights = sum(weight_of(layer.module).numel() for layer in layers_of(model))
    return Compressed(
        name=DENSE, model=model, weight_bytes=NUMBER_BYTES * n_weights, n_others=_n_numbers(model) - n_weights
    )


def compressed(name: str, progress: bool = True) -> Compressed:
    """Return the compressed default model. The first call takes seconds to minutes; later ones read the cache.

    A partial model (`part_only`) has a cache folder of its own.
    """
    model, tokenizer = _default()
    if name == DENSE:
        return dense(model)
    text = windows("wikipedia", *CALIBRATION, tokenizer, "calibration")
    return load_compressed(name, named(name), model, text, _folder(), progress)


def load_compressed(
    name: str,
    compression: Compression,
    model: PreTrainedModel,
    calibration: Int[Tensor, "n N"],
    folder: Path,
    progress: bool = True,
) -> Compressed:
    """Load the compressed model from the folder. If its file is missing, damaged or of another recipe, compress first.

    Raises:
        ValueError: the compression does not fit the model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, recipe = folder / f"{name}.safetensors", recipe_of(compression, model, calibration)
    with FileLock(path.with_suffix(".lock")):  # released by the system when a run is killed
        content = read(path, recipe)
        if content is None:
            smaller, extra = compression.compress(model, calibration, progress)
            provenance = {"compression": repr(compression), "calibration": list(calibration.shape), "made": now()}
            write(path, recipe, encoded(compression, model, smaller, extra), provenance)
            content = read(path, recipe)  # so that the first call, too, returns the weights as stored
    return decoded(name, compression, model, *content)


def recipe_of(compression: Compression, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> str:
    """Compute a digest of everything that determines the file's content.

    Each weight enters through its name, its shape and the sum of its bytes, which in practice differ between models.
    Integer sums are exact, so the digest does not depend on the number of threads.
    """
    weights = [
        (name, *w.shape, int(w.contiguous().view(torch.uint8).sum(dtype=torch.int64)))
        for name, w in model.state_dict().items()
    ]
    return hashlib.sha256(repr((compression, weights, calibration.tolist())).encode()).hexdigest()[:16]


def encoded(
    compression: Compression, model: PreTrainedModel, smaller: PreTrainedModel, beside: Tensors
) -> dict[str, Tensor]:
    """Return the tensors of the file: LAYER/PART for each linear layer, and the additional tensors `beside`."""
    dense_layers, tensors = layers_of(compression.sources(model, beside)), dict(beside)
    for layer, source in zip(layers_of(smaller), dense_layers, strict=True):
        parts = compression.layout.encode(weight_of(layer.module), weight_of(source.module))
        tensors |= {f"{layer.name}/{part}": tensor for part, tensor in parts.items()}
    return tensors


@torch.no_grad()
def decoded(
    name: str, compression: Compression, model: PreTrainedModel, tensors: Tensors, made: dict[str, Any]
) -> Compressed:
    """Rebuild the model from its stored tensors and count their bytes."""
    smaller, n_weights, n_bytes = compression.rebuilt(model, tensors), 0, 0
    for layer in layers_of(smaller):
        prefix = f"{layer.name}/"
        parts = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
        weight = weight_of(layer.module)
        weight.copy_(compression.layout.decode(parts, tuple(weight.shape)))
        n_weights += weight.numel()
        n_bytes += sum(part.nbytes for part in parts.values())
    return Compressed(
        name=name, model=smaller, weight_bytes=n_bytes, n_others=_n_numbers(smaller) - n_weights, made=made
    )


def _n_numbers(model: PreTrainedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _folder() -> Path:
    return cache_folder() / "-".join(("compressed", *map(str, astuple(part) if (part := part_loaded()) else ())))


@lru_cache(maxsize=1)
def _default() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_model(DEFAULT_MODEL)
