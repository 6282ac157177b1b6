"""Assets, and the manifest that shows whether the files in an asset's folder are unchanged."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

from course_lib.data.assets.wheels import file_sha256

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Asset:
    """The contents of one wheel: where it comes from, its licence, and how to unpack it."""

    name: str
    requirement: str  # name==version, as pip takes it
    sha256: str  # of the wheel
    n_bytes: int  # of the wheel
    licence: str
    source: str
    unpack: Callable[[ZipFile, Path], None]  # (wheel, empty folder) -> writes the files
    recipe: Callable[[], str] = lambda: "1"  # changes when the same wheel must be unpacked again
    verify: Callable[[Path], None] | None = None  # raises ValueError when the unpacked folder does not work
    entry: str = "."  # what asset_path returns, relative to the folder
    room: int = 500_000_000  # free bytes that unpacking needs
    kept: int = 0  # bytes of the installed files
    seconds: int = 1  # to unpack and verify, on two cores


def libraries(asset: Asset) -> dict[str, str]:
    """Versions of libraries with which the asset was tested; empty if it is not tested with any."""
    return {"transformers": version("transformers")} if asset.verify else {}


def read_manifest(folder: Path) -> dict | None:
    """Return the manifest of a folder, or None if it is missing or cannot be read."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and isinstance(manifest.get("files"), dict) else None


def write_manifest(asset: Asset, folder: Path) -> None:
    """Record the source and the hash of each file; the manifest itself is replaced in one step."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    manifest = {
        "asset": asset.name,
        "source": asset.source,
        "package": asset.requirement,
        "wheel_sha256": asset.sha256,
        "licence": asset.licence,
        "recipe": asset.recipe(),
        "verified_with": libraries(asset),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": {path.relative_to(folder).as_posix(): _entry(path) for path in files},
    }
    fresh = folder / f".{MANIFEST}.new"
    fresh.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, folder / MANIFEST)


def _entry(path: Path) -> dict:
    stat = path.stat()
    return {"bytes": stat.st_size, "sha256": file_sha256(path), "modified_ns": stat.st_mtime_ns}


def fault(asset: Asset, folder: Path, full: bool) -> str | None:
    """Find a fault in an asset's folder, or return None. `full` hashes every file, else only those changed since."""
    manifest = read_manifest(folder)
    if manifest is None:
        return "is not there" if not folder.exists() else "has no readable manifest"
    if (manifest.get("wheel_sha256"), manifest.get("recipe")) != (asset.sha256, asset.recipe()):
        return "was made by another version of the course"
    for name, entry in manifest["files"].items():
        problem = _file_fault(folder / name, entry, full)
        if problem:
            return f"{problem}: {name}"
    return None


def _file_fault(path: Path, entry: dict, full: bool) -> str | None:
    try:
        stat = path.stat()
    except OSError:
        return "lacks a file"
    if stat.st_size != entry["bytes"]:
        return f"has a file of {stat.st_size} bytes, expected {entry['bytes']}"
    touched = stat.st_mtime_ns != entry["modified_ns"]
    if (full or touched) and file_sha256(path) != entry["sha256"]:
        return "has an altered file"
    return None


def unverified(asset: Asset, folder: Path) -> bool:
    """Whether the libraries that read the files have changed since the asset was tested."""
    return (read_manifest(folder) or {}).get("verified_with") != libraries(asset)


def touched(folder: Path) -> bool:
    """Whether a file's time stamp differs from the recorded one, as after copying a cache."""
    files = (read_manifest(folder) or {"files": {}})["files"]
    return any((folder / name).stat().st_mtime_ns != entry["modified_ns"] for name, entry in files.items())
