"""The pruned checkpoint: one shard per block, the weights outside of the blocks, and finally the index."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from course_lib.pruning.stream.reader import INDEX
from course_lib.pruning.stream.safetensors_io import Place, whole, write
from course_lib.pruning.stream.skeleton import Skeleton


class Output:
    """Writes the source's weights, with pruned linears, into a folder under the same names and in the same types."""

    def __init__(self, skeleton: Skeleton, folder: Path):
        self.skeleton, self.folder, self.places = skeleton, folder, skeleton.source.keys
        self.inside = [skeleton.keys_of(index) for index in range(len(skeleton.blocks))]
        self.outside = self._shards_outside()

    def write_block(self, index: int) -> None:
        """Write all of the checkpoint's weights of a block; the linears are taken from memory."""
        names = self.skeleton.names_of(index)
        tensors: dict[str, Place | Tensor] = {key: self.places[key] for key in self.inside[index]}
        for layer in self.skeleton.layers[index]:
            key = names[f"{layer.part}.weight"]
            tensors[key] = layer.module.weight.to(self.places[key].dtype)
        write(self.file_of(index), tensors)

    def write_outside(self) -> None:
        """Copy embedding, last norm and LM head unchanged."""
        for number, keys in enumerate(self.outside, start=len(self.inside)):
            write(self.file_of(number), {key: self.places[key] for key in keys})

    def write_rest(self, settings: dict[str, Any]) -> None:
        """Write configuration, tokenizer and the run's settings, and last the index, which loading requires."""
        for path in self.skeleton.source.others():
            self._write_text(path.name, path.read_bytes())
        self._write_text("pruning.json", (json.dumps(settings, indent=1) + "\n").encode())
        shards = enumerate([*self.inside, *self.outside])
        weights = {key: self.file_of(number).name for number, keys in shards for key in keys}
        index = {"metadata": {"total_size": self.skeleton.source.n_bytes}, "weight_map": weights}
        self._write_text(INDEX, (json.dumps(index, indent=1) + "\n").encode())

    def _write_text(self, name: str, text: bytes) -> None:
        with whole(self.folder / name) as file:
            file.write(text)

    def file_of(self, number: int) -> Path:
        """Return the path of a shard; blocks come first, then the weights outside of them."""
        n_shards = len(self.inside) + len(self.outside)
        return self.folder / f"model-{number + 1:05d}-of-{n_shards:05d}.safetensors"

    def _shards_outside(self) -> list[list[str]]:
        """Group the weights outside of the blocks into shards: at most as large as the largest block, or one tensor."""
        shards, size = [], 0
        largest = max(sum(self.places[key].n_bytes for key in keys) for keys in self.inside)
        for key in self.skeleton.keys_outside():
            if not shards or size + self.places[key].n_bytes > largest:
                shards.append([])
                size = 0
            shards[-1].append(key)
            size += self.places[key].n_bytes
        return shards
