"""Messages to the grader that are not what they seem, and changes to what the answers are sent with."""

from attack import BRIEF, Attack

_SENDING = """
import os

def attack(x):
    from course_lib.grading.sandbox import frames, wire
    from course_lib.checking.call import Outcome

    files = {int(n): os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n != "3"}
    pipe = next(n for n, what in files.items() if what.startswith("pipe"))

    def send(kind, value=None, task=0):
        os.write(pipe, frames.pack(kind, task, wire.dumps(value, wire.Bounds())))
"""

# Answers both cases by itself, and asks for the key as if it had been asked to go on.
_ASKING = """
import os
import signal

def attack(x):
    from course_lib.grading.sandbox import frames, wire

    names = [n for n in os.listdir("/proc/self/fd") if "pipe:" in os.path.realpath(f"/proc/self/fd/{n}")]
    out, key = sorted(map(int, names))

    def send(kind, value=None):
        os.write(out, frames.pack(kind, 0, wire.dumps(value, wire.Bounds())))

    for _ in range(2):
        send(frames.CASE, (x, None, False, False, ""))
"""

ATTACKS = {
    "asks_for_the_key_twice": Attack(
        says="Of two keys, the second would be left over for the next exercise.",
        cell=_ASKING
        + """
    send(frames.HIDDEN)
    send(frames.HIDDEN)
    return x * 2
""",
        status="killed",
        reason="no answer",
        n_outcomes=2,
    ),
    "fills_the_pipe_of_the_key": Attack(
        says="The outside could not hand it the key without waiting for ever.",
        cell=_ASKING
        + """
    full = os.open(f"/proc/self/fd/{key}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(full, b"x" * 4096)
    except BlockingIOError:
        pass
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    send(frames.HIDDEN)
    while True:
        signal.pause()
""",
        limits=BRIEF,
        status="killed",
        reason="no answer",
        n_outcomes=2,
    ),
    "floods_the_grader": Attack(
        says="Garbage on the way to the grader, as fast as it goes.",
        cell=_SENDING
        + """
    while True:
        os.write(pipe, b"C" * 2**16)
""",
        status="killed",
        reason="no answer",
    ),
    "floods_the_grader_with_notes": Attack(
        says="Well-formed messages without end.",
        cell=_SENDING
        + """
    while True:
        send(frames.NOTE, "hello")
""",
        status="killed",
        reason="no answer",
    ),
    "floods_the_terminal": Attack(
        says="Text without end on every stream.",
        cell="""
import os
import sys

def attack(x):
    line = "x" * 10**6
    for _ in range(100):
        print(line)
        print(line, file=sys.stderr)
        sys.__stdout__.write(line)
        os.write(2, line.encode())
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "forges_a_huge_shape": Attack(
        says="A small message that says it holds an enormous tensor.",
        cell=_SENDING
        + """
    import json

    entry = {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]}
    tree = json.dumps(["tuple", ["tensor", "0", 0, 1], None, False, False, ""])
    text = json.dumps({"__metadata__": {"tree": tree}, "0": entry}).encode()
    os.write(pipe, frames.pack(frames.CASE, 0, len(text).to_bytes(8, "little") + text))
    return x
""",
        status="killed",
        reason="could not be read",
    ),
    "forges_a_length": Attack(
        says="Announces four gigabytes.",
        cell=_SENDING
        + """
    import struct

    os.write(pipe, struct.pack("<cHI", b"C", 0, 2**32 - 1))
    return x
""",
        status="killed",
        reason="no answer",
    ),
    "forges_a_pickle": Attack(
        says="A pickle that runs a command when it is read.",
        cell=_SENDING
        + """
    import pickle

    class Command:
        def __reduce__(self):
            return os.system, ("touch /tmp/canary",)

    os.write(pipe, frames.pack(frames.CASE, 0, pickle.dumps(Command())))
    return x
""",
        status="killed",
        reason="could not be read",
    ),
    "forges_an_early_end": Attack(
        says="Says that it is done when it is not; what is missing does not count.",
        cell=_SENDING
        + """
    send(frames.DONE)
    return x * 2
""",
        status="ran",
        n_outcomes=0,
    ),
    "forges_its_own_description": Attack(
        says="What is said of the code before it runs cannot be said again.",
        cell=_SENDING
        + """
    send(frames.PROGRAM, (("all is well",), "pass", (), False))
    return x
""",
        status="killed",
        reason="no answer",
        not_noted="all is well",
    ),
    "forges_more_answers": Attack(
        says="More answers than there are cases, for every exercise.",
        cell=_SENDING
        + """
    for task in range(100):
        send(frames.CASE, (x, None, False, False, ""), task)
    return x
""",
        status="killed",
        reason="could not be read",
    ),
    "forges_strange_answers": Attack(
        says="Answers with more parts, fewer parts, and parts of the wrong kind.",
        cell=_SENDING
        + """
    for value in ((x,), (x, 1, 2, 3, 4), {"right": True}, x, (x, None, 1, 1, x), None, "right"):
        send(frames.CASE, value)
    return x
""",
        status="killed",
        reason="could not be read",
    ),
    "forges_the_wardens_messages": Attack(
        says="Messages that only the warden may send.",
        cell=_SENDING
        + """
    os.write(pipe, frames.pack(frames.ENDED, 0, b'["done", 0, 0.0]'))
    return x
""",
        status="killed",
        reason="no answer",
    ),
    "patches_comparisons": Attack(
        says="Everything that could compare says yes, in the only process that it can change.",
        cell="""
import builtins
import math
import operator

import numpy
import torch

def attack(x):
    def yes(*arguments, **options):
        return True

    for module in (torch, numpy, math, operator, torch.testing, numpy.testing):
        for name in ("allclose", "isclose", "equal", "array_equal", "eq", "assert_close", "assert_allclose"):
            if hasattr(module, name):
                setattr(module, name, yes)
    torch.Tensor.__eq__ = torch.Tensor.equal = torch.Tensor.allclose = yes
    builtins.all = builtins.any = builtins.isinstance = yes
    return x
""",
        n_right=0,
    ),
    "patches_the_exit": Attack(
        says="Replaces the ways out, so that the process goes on in the warden's code.",
        cell="""
import os
import sys

def attack(x):
    os._exit = sys.exit = lambda *_: None
    os.write = lambda pipe, content: len(content)
    return x
""",
        n_right=0,
    ),
    "patches_the_library": Attack(
        says="The modules with which its own answers are sent.",
        cell="""
import sys

def attack(x):
    from course_lib.grading.sandbox import child, frames, wire
    from course_lib.checking import call, compare

    wire.dumps = lambda *_: b"x" * 1000
    frames.pack = lambda *_: b"P" * 1000
    compare.plain = call.plain = lambda value: value
    child.Outcome.__eq__ = lambda *_: True
    return x
""",
        status="killed",
        reason="no answer|could not be read|crashed",
    ),
}
