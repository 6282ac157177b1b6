"""Files on disk from which a killed pruning run continues: its settings, and which blocks are finished.

They are in OUT/unfinished. A block is finished if its shard and the hidden states after it are on the disk and the
state file then says so. Work that is not in the state file is done again.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from course_lib.pruning.allocation.base import Allocation
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.report import PruneReport
from course_lib.pruning.stream.safetensors_io import whole

FOLDER = "unfinished"


@dataclass(kw_only=True)
class Work:
    """An unfinished run in a folder."""

    out: Path
    settings: dict[str, Any]
    report: PruneReport
    n_finished: int = 0  # blocks
    shares: dict[str, float] | None = None  # allocated sparsity by layer name, once it is known
    complete: bool = False

    @property
    def folder(self) -> Path:
        return self.out / FOLDER

    def save(self) -> None:
        """Write the state file atomically, because a resumed run relies on it."""
        state = {"settings": self.settings, "n_finished": self.n_finished, "shares": self.shares}
        state["report"] = {key: value for key, value in asdict(self.report).items() if key != "reached"}
        with whole(self.folder / "state.json") as file:
            file.write(json.dumps(state, indent=1).encode())


def settings_of(
    identity: str,
    device: torch.device,
    pruner: LayerPruner,
    calibration: Tensor,
    allocation: Allocation,
    seed: int | None,
    ignore: Sequence[str] = (),
) -> dict[str, str | int | None]:
    """Return the settings that must be equal to resume a run, with digests of the checkpoint's files and the tokens."""
    return {
        "method": repr(pruner),
        "allocation": repr(allocation),
        "windows": " x ".join(map(str, calibration.shape)),
        "seed": seed,
        "ignore": ", ".join(sorted(set(ignore))) or None,
        "tokens": hashlib.sha256(calibration.cpu().long().numpy().tobytes()).hexdigest()[:16],
        "checkpoint": identity[:16],
        "device": device.type,
    }


def refuse_foreign(out: Path) -> None:
    """Raise ValueError for a folder that contains anything but an unfinished run."""
    begun = (out / FOLDER / "state.json").is_file()
    if parent := next((p for p in out.absolute().parents if p.exists() and not p.is_dir()), None):
        raise ValueError(f"{out} lies below {parent}, which is a file; expected a folder. Give a new folder elsewhere.")
    if not begun and (out.is_file() or (out.exists() and any(p.name != FOLDER for p in out.iterdir()))):
        raise ValueError(f"{out} is there already and not an empty folder; nothing is overwritten. Give a new folder.")


def make_folder(folder: Path) -> None:
    """Make the folder and its parents. Raise ValueError if the system does not allow it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the folder {folder} cannot be made ({error.strerror}); expected a place that can be written to. "
            "Give a new folder elsewhere."
        ) from error


@contextmanager
def opened(out: Path, settings: dict[str, Any], report: PruneReport) -> Iterator[Work]:
    """Open the run in `out`: a new one in a new or empty folder, else the one started there with these settings.

    Raises:
        ValueError: the folder has other contents or other settings, or is in use.
    """
    refuse_foreign(out)
    folder, is_new = out / FOLDER, not out.exists()
    begun = (folder / "state.json").is_file()
    make_folder(folder)
    work = Work(out=out, settings=settings, report=report)
    try:
        with FileLock(folder / "lock", timeout=0):
            if begun:
                work = _resumed(out, settings)
                for half_written in [*out.glob("*.part"), *folder.rglob("*.part")]:
                    half_written.unlink()
            work.save()
            yield work
    except Timeout:
        raise ValueError(f"another run is writing to {out}; wait for it, or give a new folder.") from None
    except ValueError:
        work.complete = not begun  # refused before any work was done: there is nothing to keep
        raise
    finally:
        if work.complete:  # once the lock is released, delete the files that only a resumed run needs
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
    return Work(out=out, settings=earlier, report=report, n_finished=state["n_finished"], shares=state["shares"])
