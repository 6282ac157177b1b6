"""Hidden cases on their way: in the sandbox from the start, but of use to nobody before the key comes.

Whoever gets the key has said all that it had to say in words. Processes of other exercises hold the same bytes in
their memory, without the key.
"""

import hashlib
import os
import secrets
from typing import Any

import numpy
import torch
from torch import Tensor

from course_lib.grading.sandbox import wire

KEY_BYTES = 32


def new_key() -> bytes:
    """One for each exercise and each time it is run."""
    return secrets.token_bytes(KEY_BYTES)


def seal(value: Any, key: bytes) -> Tensor:
    """A plain value as bytes that look like noise: (n,) uint8."""
    return _mixed(numpy.frombuffer(wire.dumps(value, wire.JOB), dtype=numpy.uint8), key)


def unseal(sealed: Tensor, key: bytes) -> Any:
    """The value that was sealed with the same key.

    Raises:
        ValueError: with another one.
    """
    return wire.loads(_mixed(sealed.numpy(), key).numpy().tobytes(), wire.JOB)


def _mixed(content: numpy.ndarray, key: bytes) -> Tensor:
    """Content XOR SHAKE-256(key), which undoes itself."""
    noise = numpy.frombuffer(hashlib.shake_256(key).digest(len(content)), dtype=numpy.uint8)
    return torch.from_numpy(content ^ noise)


def hand_over(source: int, to: int) -> bool:
    """Pass a key on without keeping it: the next process begins as a copy of this one. False when there is none."""
    key = bytearray(KEY_BYTES)
    try:
        got = 0
        while got < KEY_BYTES:
            part = os.readv(source, [memoryview(key)[got:]])
            if not part:
                return False
            got += part
        os.write(to, key)
    except BrokenPipeError:
        pass  # it has ended meanwhile
    finally:
        key[:] = bytes(KEY_BYTES)
    return True
