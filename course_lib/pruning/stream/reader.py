"""A checkpoint on disk: the file and the position of each weight. Only headers are read."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.pruning.stream.safetensors_io import Place, places

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# Weights in any format, and files that describe the source's files rather than the model.
NOT_COPIED = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".h5",
    ".msgpack",
    ".gguf",
    ".onnx",
    ".index.json",
    "manifest.json",
)


@dataclass(frozen=True)
class Source:
    """The files of a checkpoint. `keys` are the names in these files, which may differ from the names in the model."""

    folder: Path
    keys: dict[str, Place]
    identity: str

    @property
    def n_bytes(self) -> int:
        return sum(place.n_bytes for place in self.keys.values())

    def others(self) -> list[Path]:
        """Return the files of the model that are not weights: configuration, tokenizer, licence."""
        files = (path for path in self.folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return sorted(path for path in files if not path.name.endswith(NOT_COPIED))


def open_source(folder: Path) -> Source:
    """Read the headers of a checkpoint, without its weights.

    Raises:
        ValueError: the folder has no checkpoint in safetensors, or part of it is missing or cannot be read.
    """
    index, single = folder / INDEX, folder / SINGLE
    _refuse_adapter(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} has no config.json; expected a folder as save_pretrained writes it. Give the folder of a model."
        )
    _read_json(folder / "config.json")
    if index.is_file():
        by_key = _read_json(index).get("weight_map")
        if not isinstance(by_key, dict):
            raise ValueError(f"{index} has no weight_map; expected the file of each weight. Fetch or copy it again.")
        if strange := [name for name in by_key.values() if not isinstance(name, str) or Path(name).name != name]:
            raise ValueError(f"{index} names the file {strange[0]!r}; expected files next to it. Fetch it again.")
        if single.is_file() and set(by_key.values()) != {SINGLE}:
            raise ValueError(
                f"{folder} holds {INDEX}, which names other files, and {SINGLE} too: these may be two models, and "
                "from_pretrained would load the second one. Move the one that does not belong there elsewhere."
            )
        files = {name: _read_header(folder / name) for name in sorted(set(by_key.values()))}
        if lacking := [key for key, name in by_key.items() if key not in files[name]]:
            raise ValueError(f"{folder / by_key[lacking[0]]} lacks {lacking[0]}, which {INDEX} places there.")
        keys = {key: files[name][key] for key, name in by_key.items()}
    elif single.is_file():
        keys = _read_header(single)
    elif shards := sorted(path.name for path in folder.glob("*-of-*.safetensors")):
        raise ValueError(
            f"{folder} has no {INDEX}, which says which of its files ({', '.join(shards[:3])}"
            f"{', …' if len(shards) > 3 else ''}) holds which weight; expected it next to them. Fetch it from where "
            "the files came from."
        )
    else:
        raise ValueError(
            f"{folder} has neither {SINGLE} nor {INDEX}; expected weights in safetensors. If from_pretrained can load "
            "the folder, load it once and save it with save_pretrained; else fetch the weights."
        )
    return Source(folder, keys, _identity(folder, keys))


def _refuse_adapter(folder: Path) -> None:
    """Refuse a folder with an adapter: from_pretrained would load the adapter's base model instead of these weights."""
    if (folder / "adapter_config.json").is_file():
        raise ValueError(
            f"{folder} holds an adapter (adapter_config.json), which from_pretrained would load instead of the weights "
            "there; expected the weights of one whole model. Merge the adapter with merge_and_unload(), save the "
            "result with save_pretrained, and give that folder."
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also for a wrong text encoding
        raise ValueError(f"{path} is no valid JSON ({error}); fetch or copy it again.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; expected names and values. Fetch or copy it again.")
    return content


def _read_header(path: Path) -> dict[str, Place]:
    try:
        return places(path)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; expected all files that {INDEX} names. Fetch it again.") from None


def _identity(folder: Path, keys: dict[str, Place]) -> str:
    """Return a digest of configuration, names, shapes, positions, file sizes and file times; weights are not read."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for key, place in sorted(keys.items()):
        digest.update(f"{key} {place.path.name} {place.dtype} {place.shape} {place.start}\n".encode())
    for path in sorted({place.path for place in keys.values()}):
        digest.update(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()
