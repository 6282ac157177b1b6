"""Open untrusted files and zips within limits. Nothing is extracted to disk: members are listed and read into memory.

Links are not followed, and pipes are not waited for. Any number in a zip may be false, so sizes are checked before
anything is read, and again while reading.
"""

import errno
import io
import os
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MOST_MEMBERS = 20_000  # a class of 500 with 40 files each
LARGEST_READ = 2**22  # bytes per read if the file itself states its size
LARGEST_INNER = 2**26  # bytes of a zip inside of a zip, which is read into memory
BOMB = 2**30, 200  # refuse what unpacks to more than this many bytes, and to more than this many times its size
LONGEST_NAME = 1024
LINK = "it is a link, which is not followed; the file itself is needed."
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others may allocate a lot of memory
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, OSError, ValueError)


class Refused(ValueError):
    """The reason why a file or a zip is refused, in a sentence for the student."""


class TooLarge(Refused):
    """A file with more bytes than the limit."""


@dataclass(frozen=True)
class Member:
    """One file in a zip, or the reason why it cannot be read.

    Args:
        name: the name in the zip; shown: a readable path with slashes.
        stamp: time of saving in seconds, if the zip gives it.
    """

    name: str
    shown: str
    size: int
    stamp: float
    problem: str = ""


def members(path: Path, outer: str = "") -> list[Member]:
    """List the files in a zip, without opening any of them.

    Args:
        outer: the zip's name inside of the zip at `path`, for a zip in a zip.

    Raises:
        Refused: if it is not a zip, or not one that a student would submit.
    """
    with _opened(path, outer) as archive:
        by_name: dict[str, Member] = {}
        infos = archive.infolist()
        if len(infos) > MOST_MEMBERS:
            raise Refused(f"the zip holds {len(infos)} files; expected at most {MOST_MEMBERS}.")
        unpacked, packed = sum(info.file_size for info in infos), sum(info.compress_size for info in infos)
        if unpacked > BOMB[0] and unpacked > BOMB[1] * min(packed, archive.fp.seek(0, os.SEEK_END)):
            raise Refused(f"the zip unpacks to {unpacked >> 20} MiB, which is no submission.")
        for info in infos:
            if not info.is_dir():
                twice = info.filename in by_name
                by_name[info.filename] = _member(info, "it is in the zip twice." if twice else "")
        return list(by_name.values())


def read(path: Path, outer: str = "", member: str = "", *, limit: int) -> bytes:
    """Read a file, or a member of the zip at `path`, or of the zip `outer` inside of that one.

    Raises:
        Refused: if it cannot be read, or is larger than the limit.
    """
    if not member:
        with regular(path) as file:
            if os.fstat(file.fileno()).st_size > limit:  # without reading it
                raise too_large(limit)
            return bounded(file, limit)
    with _opened(path, outer) as archive, archive.open(_info(archive, member)) as file:
        return bounded(file, limit)


@contextmanager
def _opened(path: Path, outer: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip, or a zip inside of it. An error while it is open is reported in one sentence."""
    try:
        with regular(path) as file, zipfile.ZipFile(_Guarded(file)) as archive:
            if not outer:
                yield archive
                return
            with archive.open(_info(archive, outer)) as packed:
                inside = io.BytesIO(bounded(packed, LARGEST_INNER))
            with zipfile.ZipFile(_Guarded(inside)) as inner:
                yield inner
    except Refused:
        raise
    except _BROKEN as error:
        reason = str(error)[:100] or type(error).__name__
        raise Refused(f"the zip is damaged or none ({reason}); pack it again.") from None


def _info(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise Refused(f"the zip holds no {name[:60]!r} any more.") from None
    if problem := _member(info, "").problem:
        raise Refused(problem)
    return info


def _member(info: zipfile.ZipInfo, problem: str) -> Member:
    shown = _readable(info)
    parts = shown.split("/")
    if len(shown) > LONGEST_NAME:
        problem = f"its name in the zip has {len(shown)} characters."
    elif info.flag_bits & 1:
        problem = "it is encrypted in the zip; hand it in without a password."
    elif shown.startswith("/") or ".." in parts or parts[0].endswith(":"):
        problem = f"its name in the zip leads outside of it ({shown[:60]!r})."
    elif stat.S_ISLNK(info.external_attr >> 16):
        problem = "it is a link in the zip; hand in the file itself."
    elif info.compress_type not in _METHODS:
        problem = f"the zip packs it in a way that is not read (method {info.compress_type}); make a plain zip."
    return Member(info.filename, shown[:LONGEST_NAME], info.file_size, _stamp(info), problem)


def _readable(info: zipfile.ZipInfo) -> str:
    """Return the name with slashes. Many zips contain unmarked UTF-8, which was decoded in an old code page."""
    name = info.filename
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def _stamp(info: zipfile.ZipInfo) -> float:
    try:
        return time.mktime((*info.date_time, 0, 0, -1))
    except (OverflowError, ValueError):
        return 0.0


@contextmanager
def regular(path: Path) -> Iterator[io.IOBase]:
    """Open an ordinary file: a link is not followed, and a pipe is not waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        is_link = error.errno == errno.ELOOP  # the error of a system call for too many levels of links
        raise Refused(LINK if is_link else f"the file cannot be opened ({error.strerror}).") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # checked first: a folder cannot become a file object
        os.close(handle)
        raise Refused("it is no ordinary file.")
    with os.fdopen(handle, "rb") as file:
        yield file


def bounded(file: io.IOBase, limit: int) -> bytes:
    parts, left = [], limit + 1
    while left and (part := file.read(min(left, 2**20))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise too_large(limit)
    return b"".join(parts)


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"got more than {limit >> 20} MiB; clear the notebook's outputs and hand it in again.")


def why_not(path: Path) -> str:
    """Explain why a file cannot be opened; return "" if it can."""
    try:
        with regular(path):
            return ""
    except Refused as error:
        return str(error)


class _Guarded(io.RawIOBase):
    """A file that refuses large reads, such as the directory of a hostile zip."""

    def __init__(self, file: io.IOBase):
        self.file = file

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_READ:
            raise Refused(f"the zip's list of its files has {size >> 20} MiB, which is no submission.")
        return self.file.read(LARGEST_READ if size < 0 else size)
