"""Encrypt the hidden cases: they are in the sandbox from the start, but unreadable before the key arrives.

A process gets the key after it has sent all its words. Processes of other exercises hold the same bytes in
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
_GIVEN = b"\1"  # how the answer to a request for the key begins


def new_key() -> bytes:
    """Return a new random key; each exercise gets a new one each time it runs."""
    return secrets.token_bytes(KEY_BYTES)


def seal(value: Any, key: bytes) -> Tensor:
    """Encrypt a plain value: (n,) uint8."""
    return _mixed(numpy.frombuffer(wire.dumps(value, wire.JOB), dtype=numpy.uint8), key)


def unseal(sealed: Tensor, key: bytes) -> Any:
    """Decrypt a value that was sealed with the same key.

    Raises:
        ValueError: if the key is another one.
    """
    return wire.loads(_mixed(sealed.numpy(), key).numpy().tobytes(), wire.JOB)


def _mixed(content: numpy.ndarray, key: bytes) -> Tensor:
    """Return content XOR SHAKE-256(key), which is its own inverse."""
    noise = numpy.frombuffer(hashlib.shake_256(key).digest(len(content)), dtype=numpy.uint8)
    return torch.from_numpy(content ^ noise)


def answer_to_request(key: bytes | None) -> bytes:
    """Return the outside's answer to a request for the key: the key, or for None a refusal of the same length."""
    return _GIVEN + key if key else bytes(len(_GIVEN) + KEY_BYTES)


def hand_over(source: int, to: int) -> None:
    """Wait for the answer to a request, and pass the key on without keeping it: the next process begins as a copy of
    this one.

    Args:
        to: a pipe that does not block. A process can fill the pipe on which it waits for the key.

    Raises:
        EOFError: if the outside is gone.
        ValueError: if the request is refused, or the key does not fit into the pipe.
    """
    answer = bytearray(len(_GIVEN) + KEY_BYTES)
    try:
        got = 0
        while got < len(answer):
            part = os.readv(source, [memoryview(answer)[got:]])
            if not part:
                raise EOFError("got no answer to the request for the key; the outside is gone.")
            got += part
        if not answer.startswith(_GIVEN):
            raise ValueError("got a request for the key at the wrong time; expected it after all visible cases.")
        os.write(to, memoryview(answer)[len(_GIVEN) :])
    except BlockingIOError:
        raise ValueError("got a full pipe for the key; expected an empty one.") from None
    except BrokenPipeError:
        pass  # the process has ended in the meantime
    finally:
        answer[:] = bytes(len(answer))


def is_at_end(source: int) -> bool:
    """Check whether the outside is gone. Unrequested bytes are dropped, and do not count as its end."""
    unasked = bytearray(2**12)
    try:
        return os.readv(source, [unasked]) == 0
    finally:
        unasked[:] = bytes(len(unasked))
