"""A checkpoint that is whole or not there: nothing loads from a folder before all of it is on the disk."""

import os
import shutil
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.pruning.stream.resume import FOLDER
from course_lib.pruning.stream.safetensors_io import sync_folder, whole

LAST = "config.json"  # without which nothing loads


def save_whole(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write model and tokenizer into `out`, and remove what a run kept there to go on.

    Everything is written into OUT/unfinished first, and moved from there file by file. Interrupted before it is moved,
    it leaves nothing of its own; killed at any moment, it leaves a folder that nothing loads and that the same command
    takes up again.
    """
    work = out / FOLDER
    saved = work / "saved"
    try:
        model.save_pretrained(saved)
        tokenizer.save_pretrained(saved)
        _sync(saved)
    except BaseException:
        shutil.rmtree(saved, ignore_errors=True)
        for folder in (work, out):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise
    with whole(work / "state.json") as file:  # by which a later run knows that the files next to it are its own
        file.write(b'{"saved": true}')
    for path in sorted(saved.iterdir(), key=lambda path: path.name == LAST):
        path.replace(out / path.name)
    sync_folder(out)
    shutil.rmtree(work)


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
    sync_folder(folder)
