"""Read and write safetensors files one tensor at a time; a file appears only once it is complete.

The format is eight bytes with the length of a JSON header, the header (type, shape and position of each tensor), the
data. The library maps a whole file into memory and needs all tensors of a file to write it. A checkpoint larger than
memory needs a smaller footprint. Tests compare these files with the library's.
"""

import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
TYPES |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
TYPES |= {"BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in TYPES.items()}


@dataclass(frozen=True, kw_only=True)
class Place:
    """The position of a tensor in a file."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    n_bytes: int

    def read(self) -> Tensor:
        """Return the tensor, in separate memory pages that are freed with it; malloc would keep them in its pools."""
        data = torch.frombuffer(mmap.mmap(-1, max(1, self.n_bytes)), dtype=torch.uint8)[: self.n_bytes]
        with open(self.path, "rb") as file:
            file.seek(self.start)
            n_read = file.readinto(data.numpy())
        if n_read != self.n_bytes:
            raise ValueError(f"{self.path} ends in the middle of its data; fetch or copy it again.")
        return data.view(self.dtype).reshape(self.shape)


def places(path: Path) -> dict[str, Place]:
    """Return the position of each tensor of a file.

    Raises:
        ValueError: for a truncated file, one that is not in safetensors, or one with types that are not plain numbers.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= size - 8:
            raise ValueError(f"{path} is no safetensors file, or is cut short; fetch or copy it again.")
        header = _header(path, file.read(length))
    tensors = {name: _place(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"}
    if tensors and (end := max(place.start + place.n_bytes for place in tensors.values())) != size:
        raise ValueError(f"{path} has {size:,} bytes, its header says {end:,}; fetch or copy it again.")
    return tensors


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{path} is no safetensors file: its header is no JSON; fetch or copy it again.") from None


def _place(path: Path, name: str, entry: dict[str, Any], offset: int) -> Place:
    if entry["dtype"] not in TYPES:
        raise ValueError(
            f"{path}: {name} is stored as {entry['dtype']}; expected float32, bfloat16 or float16. "
            "Give the checkpoint that is not quantised."
        )
    start, end = entry["data_offsets"]
    return Place(
        path=path,
        dtype=TYPES[entry["dtype"]],
        shape=tuple(entry["shape"]),
        start=offset + start,
        n_bytes=end - start,
    )


def write(path: Path, tensors: dict[str, Place | Tensor]) -> None:
    """Write the tensors, with only one in memory at a time; those given as a `Place` are copied from there."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.n_bytes if isinstance(tensor, Place) else tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    with whole(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            data = tensor.read() if isinstance(tensor, Place) else tensor.detach().cpu().contiguous()
            file.write(data.reshape(-1).view(torch.uint8).numpy())


@contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only once all of it is on the disk."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names of files to the disk. Windows does so by itself, and cannot open folders."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
