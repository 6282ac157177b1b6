"""What a pruning run leaves on disk so that it can go on after being killed: settings, finished blocks, hidden states.

Dimension key: B windows in a batch, T tokens in a window, D hidden size.

All of it lies in OUT/unfinished. A block is finished once its shard and the hidden states behind it are on the disk and
the state file says so, in this order; whatever is found beyond what the state file says is done again.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.pruning.hidden import Batch, n_bytes
from course_lib.pruning.report import PruneReport
from course_lib.pruning.stream_files import places, whole, write

FOLDER = "unfinished"


@dataclass
class Work:
    """The unfinished run in a folder."""

    out: Path
    settings: dict[str, Any]
    report: PruneReport
    n_finished: int = 0  # blocks
    shares: dict[str, float] | None = None  # what the allocation gave each layer, once it is known
    complete: bool = False

    @property
    def folder(self) -> Path:
        return self.out / FOLDER

    def save(self) -> None:
        """Written whole or not at all: the run resumes from what it says."""
        state = {"settings": self.settings, "n_finished": self.n_finished, "shares": self.shares}
        state["report"] = {key: value for key, value in asdict(self.report).items() if key != "reached"}
        with whole(self.folder / "state.json") as file:
            file.write(json.dumps(state, indent=1).encode())


def refuse_foreign(out: Path) -> None:
    """Raises ValueError for a folder that holds anything but an unfinished run."""
    begun = (out / FOLDER / "state.json").is_file()
    if not begun and (out.is_file() or (out.exists() and any(p.name != FOLDER for p in out.iterdir()))):
        raise ValueError(f"{out} is there already and not an empty folder; nothing is overwritten. Give a new folder.")


@contextmanager
def opened(out: Path, settings: dict[str, Any], report: PruneReport) -> Iterator[Work]:
    """The run in `out`: a new one in a new or empty folder, else the one that was begun there with these settings.

    Raises:
        ValueError: the folder holds anything else, or is in use.
    """
    refuse_foreign(out)
    folder, is_new = out / FOLDER, not out.exists()
    begun = (folder / "state.json").is_file()
    folder.mkdir(parents=True, exist_ok=True)
    work = Work(out, settings, report)
    try:
        with FileLock(folder / "lock", timeout=0):
            if begun:
                work = _resumed(out, settings)
            work.save()
            yield work
    except Timeout:
        raise ValueError(f"another run is writing to {out}; wait for it, or give a new folder.") from None
    except ValueError:
        work.complete = not begun  # refused before anything was done: nothing need be kept
        raise
    finally:
        if work.complete:  # what could only be used to go on goes, once the lock is released
            shutil.rmtree(folder)
            if is_new and not any(out.iterdir()):
                out.rmdir()


def _resumed(out: Path, settings: dict[str, Any]) -> Work:
    path = out / FOLDER / "state.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        earlier, report = state["settings"], PruneReport(**state["report"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} cannot be read as the state of a run; remove {out} and start again.") from None
    for key in settings | earlier:
        if earlier.get(key) != settings.get(key):
            raise ValueError(
                f"{out} holds a run begun with {key} {earlier.get(key)}, this one has {settings.get(key)}. "
                "Finish it with the settings that it was begun with, or give a new folder."
            )
    return Work(out, earlier, report, state["n_finished"], state["shares"])


@dataclass
class HiddenFiles:
    """Hidden states in files, one a batch: those that come into block number `at`, and, being written, those behind it.

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
        """What is in memory at once: a batch going into a block, the same coming out, and the arguments."""
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
