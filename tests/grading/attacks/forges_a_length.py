"""Announces four gigabytes."""

CELL = """
import os

def attack(x):
    from course_lib.grading.sandbox import frames, wire
    from course_lib.checking.call import Outcome

    files = {int(n): os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n != "3"}
    pipe = next(n for n, what in files.items() if what.startswith("pipe"))

    def send(kind, value=None, task=0):
        os.write(pipe, frames.pack(kind, task, wire.dumps(value, wire.Bounds())))


    import struct

    os.write(pipe, struct.pack("<cHI", b"C", 0, 2**32 - 1))
    return x
"""
STATUS = "killed"
REASON = "no answer"
