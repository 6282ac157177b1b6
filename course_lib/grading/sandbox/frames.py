"""Encode messages on a pipe: a letter, the task's number, a length, the content. Sizes are checked before reading."""

import struct

_HEAD = struct.Struct("<cHI")

# From the process that runs a student's function to the warden, and on to the outside.
# HIDDEN asks for the key to the hidden cases; after it, no text of the process is kept.
CASE, NOTE, TOUCHED, UNUSABLE, HIDDEN, DONE = b"C", b"N", b"T", b"U", b"H", b"D"
# From the process that reads the notebook and runs none of it: that its cells are parsed, what it found for an
# answer, and the code to run. The first and the last stay inside.
LOADED, PROGRAM, CODE = b"L", b"P", b"K"
# From the warden alone.
READY, STARTED, ENDED = b"R", b"S", b"E"
FROM_CHILD = frozenset((CASE, NOTE, TOUCHED, UNUSABLE, HIDDEN, DONE))
FROM_READER = frozenset((LOADED, PROGRAM, CODE, UNUSABLE, DONE))
FROM_WARDEN = FROM_CHILD | {PROGRAM, READY, STARTED, ENDED}


def most_bytes(result_bytes: int) -> int:
    """Return the most bytes that one process may send in all messages together: results and texts."""
    return result_bytes + 2**20


def pack(kind: bytes, task: int = 0, content: bytes = b"") -> bytes:
    """Encode one message as bytes."""
    return _HEAD.pack(kind, task, len(content)) + content


class Reader:
    """Decode bytes in pieces of any size into whole messages.

    Args:
        kinds: the kinds of messages that are allowed.
        n_bytes, n_messages: the most of all messages together.
    """

    def __init__(self, kinds: frozenset[bytes], n_bytes: int, n_messages: int):
        self.kinds, self.n_bytes, self.n_messages = kinds, n_bytes, n_messages
        self.rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, int, bytes]]:
        """Return the messages that these bytes complete: (kind, task, content).

        Raises:
            ValueError: if they are not messages, or exceed the limits.
        """
        self.rest += data
        messages = []
        while len(self.rest) >= _HEAD.size:
            kind, task, length = _HEAD.unpack_from(self.rest)
            self._allow(kind, length)
            if len(self.rest) < _HEAD.size + length:
                break
            messages.append((kind, task, bytes(self.rest[_HEAD.size : _HEAD.size + length])))
            del self.rest[: _HEAD.size + length]
            self.n_bytes -= length
            self.n_messages -= 1
        return messages

    def _allow(self, kind: bytes, length: int) -> None:
        if kind not in self.kinds:
            raise ValueError(f"got a message of kind {kind!r}; expected one of {sorted(self.kinds)}.")
        if length > self.n_bytes or self.n_messages < 1:
            raise ValueError(f"got a message of {length} bytes; at most {self.n_bytes} bytes may still come.")
