"""Compressed models in the user's cache: each made once, and made again when its file is not sound.

A file holds what the compressed weights take on a disk, and what a cut needs to find the norms that stay. Embeddings
and norms are the dense model's, and are counted in 16 bits. A recipe is a digest of the settings, the weights of the
dense model and the calibration text.
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
NUMBER_BYTES = 2  # of what is neither pruned nor rounded
CALIBRATION = (16, 256)  # windows and tokens of Wikipedia that the default model's compressions read


@dataclass(frozen=True, eq=False, kw_only=True)
class Compressed:
    """A compressed model, as it comes back from what is stored of it.

    Args:
        weight_bytes: of the blocks' linears as stored: codes, scales, zeros, bitmaps, offsets, values.
        n_others: numbers beside them: embeddings and norms; a tied head counts once.
        made: when, from what, with which settings.
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
    """The model itself, counted in 16 bits."""
    n_weights = sum(weight_of(layer.module).numel() for layer in layers_of(model))
    return Compressed(
        name=DENSE, model=model, weight_bytes=NUMBER_BYTES * n_weights, n_others=_n_numbers(model) - n_weights
    )


def compressed(name: str, progress: bool = True) -> Compressed:
    """The default model, compressed; made in seconds to minutes at the first call, and read from the cache after.

    Of a part of it (`part_only`) in a folder beside.
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
    """What the folder holds under that name if it is sound and of this recipe; otherwise it is made first.

    Raises:
        ValueError: what cannot be compressed like this.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, recipe = folder / f"{name}.safetensors", recipe_of(compression, model, calibration)
    with FileLock(path.with_suffix(".lock")):  # released by the system when a run is killed
        found = read(path, recipe)
        if found is None:
            smaller, beside = compression.compress(model, calibration, progress)
            made = {"compression": repr(compression), "calibration": list(calibration.shape), "made": now()}
            write(path, recipe, encoded(compression, model, smaller, beside), made)
            found = read(path, recipe)
    return decoded(name, compression, model, *found)


def recipe_of(compression: Compression, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> str:
    """Digest of all that the content follows from: of each weight the sum of its bytes, enough to tell models apart.

    Sums of whole numbers are exact, so that another number of threads, which adds in another order, changes nothing.
    """
    weights = [
        (name, *w.shape, int(w.contiguous().view(torch.uint8).sum(dtype=torch.int64)))
        for name, w in model.state_dict().items()
    ]
    return hashlib.sha256(repr((compression, weights, calibration.tolist())).encode()).hexdigest()[:16]


def encoded(
    compression: Compression, model: PreTrainedModel, smaller: PreTrainedModel, beside: Tensors
) -> dict[str, Tensor]:
    """The tensors that are stored: LAYER/PART, and what a cut needs beside them."""
    before, tensors = layers_of(compression.sources(model, beside)), dict(beside)
    for layer, source in zip(layers_of(smaller), before, strict=True):
        parts = compression.layout.encode(weight_of(layer.module), weight_of(source.module))
        tensors |= {f"{layer.name}/{part}": tensor for part, tensor in parts.items()}
    return tensors


@torch.no_grad()
def decoded(
    name: str, compression: Compression, model: PreTrainedModel, tensors: Tensors, made: dict[str, Any]
) -> Compressed:
    """The model again, and the bytes of what was stored."""
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
