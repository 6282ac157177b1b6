"""Hidden states in files, which saves memory and lets an interrupted run resume from them.

Dimension key: B windows in a batch, T tokens in a window, D hidden size.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.pruning.block_inputs import Batch, n_bytes
from course_lib.pruning.stream.safetensors_io import places, write


@dataclass
class HiddenFiles:
    """Files with hidden states, one per batch: the inputs of block `at` and, while it runs, those of the next block.

    Only one batch is in memory at a time.
    """

    folder: Path
    device: torch.device
    at: int = 0
    largest: int = field(default=0, init=False)

    def path(self, number: int, at: int) -> Path:
        return self.folder / f"hidden-{at:05d}" / f"{number:05d}.safetensors"

    def read(self, number: int) -> Float[Tensor, "B T D"]:
        return places(self.path(number, self.at))["hidden"].read().to(self.device)

    def write(self, number: int, hidden: Float[Tensor, "B T D"], at: int) -> None:
        self.path(number, at).parent.mkdir(parents=True, exist_ok=True)
        self.largest = max(self.largest, hidden.nbytes)
        write(self.path(number, at), {"hidden": hidden})

    def take(self, batches: Iterator[Batch], keep: bool) -> list["StoredBatch"]:
        """Move the batches' hidden states to files; with `keep`, use the files that already exist."""
        stored = []
        for number, batch in enumerate(batches):
            if not keep:
                self.write(number, batch.hidden, self.at)
            self.largest = max(self.largest, batch.hidden.nbytes)
            stored.append(StoredBatch(self, number, batch.arguments))
        return stored

    def held(self, batches: list["StoredBatch"]) -> int:
        """Return the peak memory in bytes: a batch's input and output of a block, and the arguments."""
        return 2 * self.largest + n_bytes(batches)

    def step(self, at: int) -> None:
        """Move on to the inputs of block `at`, and delete all other files."""
        self.at = at
        for path in self.folder.glob("hidden-*"):
            if path.name != f"hidden-{at:05d}":
                shutil.rmtree(path)


class StoredBatch(Batch):
    """A batch with hidden states in a file. `advance` reads it, and writes a file for the next block."""

    def __init__(self, files: HiddenFiles, number: int, arguments: dict[nn.Module, dict[str, Any]]):
        self.files, self.number, self.arguments = files, number, arguments

    @property
    def hidden(self) -> Float[Tensor, "B T D"]:
        return self.files.read(self.number)

    @hidden.setter
    def hidden(self, value: Float[Tensor, "B T D"]) -> None:
        self.files.write(self.number, value, self.files.at + 1)
