"""Whether the Hugging Face hub answers, asked once and quickly: its clients retry for a minute before they give up."""

from functools import lru_cache

import huggingface_hub

SECONDS = 3.0


@lru_cache(maxsize=1)
def reachable() -> bool:
    """True when the hub answers within a few seconds, whatever it answers. Proxies and mirrors are respected."""
    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # each release of the hub's client brings another HTTP library, with kinds of error of its own
        return False
    return True


def name_or_folder(name: str) -> str:
    """What to load a model from: its name where the hub answers, else the folder that an earlier download left.

    Raises:
        OSError: the hub does not answer and the model was never downloaded.
        ValueError: no model can have that name.
    """
    if reachable():
        return name
    try:
        return huggingface_hub.snapshot_download(name, local_files_only=True)
    except huggingface_hub.errors.LocalEntryNotFoundError:
        raise OSError(
            "the Hugging Face hub cannot be reached, and the model is not in its cache on this machine."
        ) from None
