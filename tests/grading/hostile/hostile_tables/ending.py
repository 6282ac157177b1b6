"""The way out of the sandbox and the end of its processes, where the first set of attacks does not look."""

from hostile_answer import HostileAnswer

_OUT = """
import os
import stat

def pipes():
    return [n for n in map(int, os.listdir("/proc/self/fd")) if n != 3 and is_pipe(n)]

def is_pipe(n):
    try:
        return stat.S_ISFIFO(os.fstat(n).st_mode)
    except OSError:
        return False
"""

ANSWERS = {
    "drips": HostileAnswer(
        says="The beginning of a message, a byte at a time, and then a right answer behind it.",
        cell=_OUT
        + """
import time

def attack(weight, inputs):
    for pipe in pipes():
        for byte in b"C\\x00\\x00\\x00\\x00\\x00":
            os.write(pipe, bytes([byte]))
            time.sleep(0.01)
    return weight.abs() * inputs.norm(dim=0)
""",
        earns=0.0,
    ),
    "two_meanings": HostileAnswer(
        says="A header in which each name stands twice, so that two parsers could read two answers.",
        cell=_OUT
        + """
import json
import struct

def attack(weight, inputs):
    from course_lib.checking.call import Outcome
    from course_lib.grading.sandbox import frames, wire

    packed = wire.dumps((weight, None, False, False, ""), wire.Bounds())
    (length,) = struct.unpack("<Q", packed[:8])
    header = packed[8 : 8 + length].rstrip()
    twice = header[:-1] + b"," + header[1:]
    packed = struct.pack("<Q", len(twice)) + twice + packed[8 + length :]
    for pipe in pipes():
        os.write(pipe, frames.pack(frames.CASE, 0, packed))
    return weight.abs() * inputs.norm(dim=0)
""",
        earns=0.0,
    ),
    "answers_twice": HostileAnswer(
        says="Sends its first answer by itself, and then lets the process send it once more.",
        cell=_OUT
        + """
def attack(weight, inputs):
    from course_lib.grading.sandbox import frames, wire

    score = weight.abs() * inputs.norm(dim=0)
    packed = wire.dumps((score, None, False, False, ""), wire.Bounds())
    for pipe in pipes() if len(weight) == 3 else []:
        os.write(pipe, frames.pack(frames.CASE, 0, packed))
    return score
""",
        earns=0.0,  # from then on every answer stands where that of the case before belongs
    ),
    "says_it_was_not_found": HostileAnswer(
        says="Text of the grader's own in an error: what a student reads is still that the function raised.",
        cell="""
def attack(weight, inputs):
    raise ValueError("The grader failed: RuntimeError: no points were lost here. Grade by hand: 2 of 2.")
""",
        earns=0.0,
        reason="it raised ValueError: The grader failed",
    ),
    "aborts": HostileAnswer(
        says="Ends its process by abort after the first case.",
        cell="""
import os

def attack(weight, inputs):
    if len(weight) != 3:
        os.abort()
    return weight.abs() * inputs.norm(dim=0)
""",
        earns=0.0,
    ),
    "stops_itself": HostileAnswer(
        says="Kills itself where the second case begins.",
        cell="""
import os
import signal

def attack(weight, inputs):
    if len(weight) != 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return weight.abs() * inputs.norm(dim=0)
""",
        earns=0.0,
    ),
    "ends_in_a_finaliser": HostileAnswer(
        says="Wrong values, whose deletion ends the process with the code of success.",
        cell="""
import os

class Last:
    def __del__(self):
        os._exit(0)

def attack(weight, inputs):
    weight.last = Last()
    return weight
""",
        earns=0.0,
    ),
    "reaches_for_a_terminal": HostileAnswer(
        says="Terminals, locked pages, a second stack: what is refused is refused, and the answer is still right.",
        cell="""
import ctypes
import os
import pty

def attack(weight, inputs):
    libc = ctypes.CDLL(None, use_errno=True)
    for attempt in (pty.fork, os.forkpty, lambda: os.posix_spawn("/bin/true", ["true"], {}), lambda: os.system("true")):
        try:
            if attempt() == 0:
                return "started a process" if attempt is not os.system else weight
        except (OSError, RuntimeError):
            pass
    libc.mlockall(3)
    return weight.abs() * inputs.norm(dim=0)
""",
        earns=1.0,
        never="started a process",
    ),
}
