"""Files of strangers, read with bounds: links are not followed, pipes not waited for, sizes looked up first."""

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGEST_READ = 2**22  # bytes that are read at once where a file says itself how much there is


class Refused(ValueError):
    """What is wrong with a file or a zip, in a sentence for the student."""


@contextmanager
def regular(path: Path) -> Iterator[io.IOBase]:
    """An ordinary file: a link is not followed, and a pipe is not waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise Refused(f"the file cannot be opened ({error.strerror}).") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Refused("it is no ordinary file.")
        yield file


def bounded(file: io.IOBase, limit: int) -> bytes:
    parts, left = [], limit + 1
    while left and (part := file.read(min(left, 2**20))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise too_large(limit)
    return b"".join(parts)


def too_large(limit: int) -> Refused:
    return Refused(f"got more than {limit >> 20} MiB; clear the notebook's outputs and hand it in again.")


def why_not(path: Path) -> str:
    """Why a file cannot be opened; empty when it can."""
    try:
        with regular(path):
            return ""
    except Refused as error:
        return str(error)


class Guarded(io.RawIOBase):
    """A file of which nothing large is read at once, as a zip's own list of its members would be."""

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
