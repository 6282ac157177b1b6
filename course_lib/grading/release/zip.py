"""Write the zips of a release: equal bytes for equal files, written whole or not at all."""

import os
import zipfile
from pathlib import Path


def write_zip(out: Path, files: dict[str, bytes], programs: tuple[str, ...] = ()) -> None:
    """Write a zip whole or not at all, sorted by name and without times and owners: equal bytes for equal files.

    Raises:
        ValueError: if it cannot be written.
    """
    if out.is_dir():
        raise ValueError(f"got {out}, which is a folder; expected a file to write, such as {out / 'student.zip'}.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _write_zip(out, files, programs)
    except OSError as error:
        raise ValueError(
            f"got {out}, which cannot be written ({error.strerror}); expected a file in a folder of your own."
        ) from None


def _write_zip(out: Path, files: dict[str, bytes], programs: tuple[str, ...]) -> None:
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(fresh, "w") as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name)
                entry.create_system = 3  # unix, whatever this system is: only then are the permissions below read
                entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
                archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
        fresh.replace(out)
    finally:
        fresh.unlink(missing_ok=True)
