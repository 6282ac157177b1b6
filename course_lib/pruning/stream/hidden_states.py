"""Hidden states in files, so that they need no memory, and a run that is killed can go on from them.

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
    """Hidden states in files, one a batch: those that come into block number `at`, and, being written, those after it.

    In memory is one batch at a time.
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
        """The batches with their hidden states in files; when `keep`, those that are there already."""
        stored = []
        for number, batch in enumerate(batches):
            if not keep:
                self.write(number, batch.hidden, self.at)
            self.largest = max(self.largest, batch.hidden.nbytes)
            stored.append(StoredBatch(self, number, batch.arguments))
        return stored

    def held(self, batches: list["StoredBatch"]) -> int:
        """The bytes in memory at one time: a batch going into a block, the same coming out, and the arguments."""
        return 2 * self.largest + n_bytes(batches)

    def step(self, at: int) -> None:
        """From now on, the inputs of block `at` count; all others go."""
        self.at = at
        for path in self.folder.glob("hidden-*"):
            if path.name != f"hidden-{at:05d}":
                shutil.rmtree(path)


class StoredBatch(Batch):
    """A batch whose hidden states are read from a file, and written, by `advance`, to that of the next block."""

    def __init__(self, files: HiddenFiles, number: int, arguments: dict[nn.Module, dict[str, Any]]):
        self.files, self.number, self.arguments = files, number, arguments

    @property
    def hidden(self) -> Float[Tensor, "B T D"]:
        return self.files.read(self.number)

    @hidden.setter
    def hidden(self, value: Float[Tensor, "B T D"]) -> None:
        self.files.write(self.number, value, self.files.at + 1)
