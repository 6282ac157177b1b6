"""Save a checkpoint atomically: a folder cannot be loaded before all its files are on the disk."""

import os
import shutil
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.pruning.stream.resume import FOLDER
from course_lib.pruning.stream.safetensors_io import sync_folder, whole

LAST = "config.json"  # nothing loads without this file


def save_whole(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write model and tokenizer into `out`, and remove the files with which an interrupted run could resume.

    All files are first written into OUT/unfinished and then moved one by one. An exception before the move leaves no
    new files. A process that is killed leaves a folder that cannot be loaded, and the same command can then resume
    there.
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
    with whole(work / "state.json") as file:  # tells a later run that the files next to it are its own
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
