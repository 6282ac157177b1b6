"""Whether the Hugging Face hub answers, with one quick request: its clients retry for a minute before they give up."""

import re
from functools import lru_cache
from pathlib import Path, PureWindowsPath

import huggingface_hub

SECONDS = 3.0


@lru_cache(maxsize=1)
def reachable() -> bool:
    """Return whether the hub answers within a few seconds, with any answer. Proxies and mirrors are respected."""
    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # each release of the hub's client brings another HTTP library, with kinds of error of its own
        return False
    return True


def name_or_folder(name: str) -> str:
    """Return the name of a model if the hub answers, otherwise the folder of an earlier download.

    Raises:
        OSError: a path of a folder that does not exist; or the hub does not answer and the model was never downloaded.
        ValueError: not a valid name of a model.
    """
    if _is_path(name):
        what = "is a file; expected the folder that holds it" if Path(name).exists() else "does not exist"
        raise OSError(f"the folder {name} {what}.")
    if reachable():
        return name
    try:
        return huggingface_hub.snapshot_download(name, local_files_only=True)
    except huggingface_hub.errors.LocalEntryNotFoundError:
        raise OSError(
            "there is no folder of that name, the Hugging Face hub cannot be reached, and its cache here does "
            "not hold the model."
        ) from None


def _is_path(name: str) -> bool:
    """Whether this can only be a path: names on the hub are "model" or "owner/model"."""
    has_root = name.startswith((".", "/", "~")) or "\\" in name or bool(PureWindowsPath(name).drive)
    return has_root or re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII) is None or Path(name).is_file()
