"""Convert plain values to bytes and back: safetensors for numbers, JSON for structure. Never pickle.

The bytes that come back are not trusted: every size, depth and count is checked before any object is created.
"""

import json
import math
from dataclasses import dataclass
from numbers import Number
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

# Types that safetensors and all supported versions of torch share. Others travel as float64, which holds their values.
_KINDS = {"BOOL", "U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64"}
_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_DTYPES += (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_DIMENSIONS = 16


@dataclass(frozen=True)
class Bounds:
    """The limits of one message."""

    n_bytes: int = 64 * 2**20
    elements: int = 2**20  # of all tensors together; the course's largest answer has 3,552
    items: int = 2**16  # in all collections together
    keys: int = 2**10  # of all dictionaries: a thousand keys with one hash take a moment, more take minutes
    depth: int = 32
    characters: int = 2**18
    header: int = 4 * 2**20  # bytes of JSON, which needs twenty times as much memory when it is parsed


JOB = Bounds(2**31, 2**29, 2**20, 2**20, 32, 2**20, 2**26)  # the grader's own messages: only absurd sizes are refused


def dumps(value: Any, bounds: Bounds) -> bytes:
    """Convert a plain value to bytes.

    Raises:
        ValueError: if the value is not plain (see compare.plain), or exceeds the bounds.
    """
    packer = _Packer(bounds)
    tree = json.dumps(packer.pack(value, 0))
    content = safetensors.torch.save(packer.tensors, {"tree": tree})
    if len(content) > bounds.n_bytes or len(tree) > bounds.header // 2:
        raise ValueError(f"got {len(content)} bytes; expected at most {bounds.n_bytes}, and less text.")
    return content


class _Packer:
    def __init__(self, bounds: Bounds):
        self.bounds, self.tensors = bounds, {}
        self.elements, self.items, self.characters = bounds.elements, bounds.items, bounds.characters
        self.keys = bounds.keys

    def pack(self, value: Any, depth: int) -> Any:
        """Return the value as JSON in which every collection is a list that begins with its kind."""
        self.items -= 1
        if self.items < 0 or depth > self.bounds.depth:
            raise ValueError(f"got more than {self.bounds.items} values or {self.bounds.depth} levels; return less.")
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, tuple):
            return ["tuple", *(self.pack(item, depth + 1) for item in value)]
        if isinstance(value, dict):
            self.keys -= len(value)
            if self.keys < 0:
                raise ValueError(f"got more than {self.bounds.keys} keys in dictionaries; return less.")
            return ["dict", *([_key(self.pack(k, depth + 1)), self.pack(v, depth + 1)] for k, v in value.items())]
        return self._leaf(value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, str):
            self.characters -= len(value)
            if self.characters < 0:
                raise ValueError(f"got more than {self.bounds.characters} characters of text; return less.")
            return str.__str__(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, complex):
            return ["complex", value.real, value.imag]
        if isinstance(value, Number):
            return float(value)
        raise ValueError(f"got a {type(value).__name__}; expected a tensor, a number, text, or a collection of these.")

    def _tensor(self, value: Tensor) -> list:
        self.elements -= max(1, math.prod(max(1, size) for size in value.shape)) * (1 + value.is_complex())
        if self.elements < 0:
            raise ValueError(f"got a shape of {tuple(value.shape)}; expected at most {self.bounds.elements} entries.")
        if value.ndim > _DIMENSIONS:
            raise ValueError(f"got a tensor of {value.ndim} axes; expected at most {_DIMENSIONS}.")
        name = str(len(self.tensors))
        order = sorted(range(value.ndim), key=lambda d: -value.stride(d))  # a transposed matrix comes back transposed
        value = value.detach().resolve_conj().resolve_neg().permute(order)
        if value.is_complex():
            self.tensors[name] = torch.view_as_real(value.to(torch.complex128).contiguous()).clone()
            return ["complex tensor", name, *order]
        value = value if value.dtype in _DTYPES else value.to(torch.float64)
        self.tensors[name] = value.contiguous().clone(memory_format=torch.contiguous_format)
        return ["tensor", name, *order]


def _key(key: Any) -> Any:
    if isinstance(key, list | tuple | dict | Tensor):
        raise ValueError("got a dictionary whose keys are collections; expected numbers or text.")
    return key


def loads(content: bytes, bounds: Bounds) -> Any:
    """Convert the output of `dumps` back to the value.

    Raises:
        ValueError: for any other bytes.
    """
    try:
        tree = _checked(content, bounds)
        return _unpack(tree, safetensors.torch.load(content), 0, [bounds.items, bounds.keys], bounds)
    except ValueError:
        raise
    except Exception as error:  # any invalid bytes are refused
        raise ValueError(f"got bytes that hold no value ({type(error).__name__}).") from None


def _checked(content: bytes, bounds: Bounds) -> Any:
    """Return the tree, after checking every size in the header."""
    length = int.from_bytes(content[:8], "little")
    if len(content) > bounds.n_bytes or length > min(len(content) - 8, bounds.header):
        raise ValueError(f"got {len(content)} bytes with a header of {length}; expected at most {bounds.n_bytes}.")
    header = json.loads(content[8 : 8 + length])
    tree = header.pop("__metadata__")["tree"]
    elements = 0
    for entry in header.values():
        shape = entry["shape"]
        whole = all(type(size) is int and size >= 0 for size in shape)
        if entry["dtype"] not in _KINDS or len(shape) > _DIMENSIONS or not whole:
            raise ValueError(f"got a tensor of {str(entry)[:100]}; expected one of {sorted(_KINDS)}.")
        elements += math.prod(max(1, size) for size in shape)  # an empty tensor may still have a billion rows
    if elements > bounds.elements or len(header) > bounds.items:
        raise ValueError(f"got tensors of {elements} entries; expected at most {bounds.elements}.")
    return json.loads(tree)


def _unpack(tree: Any, tensors: dict[str, Tensor], depth: int, left: list[int], bounds: Bounds) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth > bounds.depth:
        raise ValueError(f"got more than {bounds.items} values or {bounds.depth} levels; expected fewer.")
    if not isinstance(tree, list):
        if isinstance(tree, dict) or (isinstance(tree, str) and len(tree) > bounds.characters):
            raise ValueError(f"got {str(tree)[:50]}; expected a number, {bounds.characters} characters, or a list.")
        return tree
    kind, *rest = tree
    if kind == "tuple":
        return tuple(_unpack(item, tensors, depth + 1, left, bounds) for item in rest)
    if kind == "dict":
        left[1] -= len(rest)
        if left[1] < 0:
            raise ValueError(f"got more than {bounds.keys} keys in dictionaries; expected fewer.")
        pairs = [[_unpack(item, tensors, depth + 1, left, bounds) for item in pair] for pair in rest]
        return {_key(key): value for key, value in pairs}
    if kind == "complex":
        return complex(*rest)
    return _tensor(kind, tensors.pop(rest[0]), rest[1:])


def _tensor(kind: str, value: Tensor, order: list[int]) -> Tensor:
    if kind not in ("tensor", "complex tensor"):
        raise ValueError(f"got a value of kind {str(kind)[:50]!r}; expected tuple, dict, complex or tensor.")
    value = torch.view_as_complex(value) if kind == "complex tensor" else value
    value = value.view(torch.uint8) != 0 if value.dtype == torch.bool else value  # a byte may say neither 0 nor 1
    return value.permute(sorted(range(len(order)), key=order.__getitem__))
