"""Well-formed messages without end."""

CELL = """
import os

def attack(x):
    from course_lib.grading.sandbox import frames, wire
    from course_lib.checking.call import Outcome

    files = {int(n): os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n != "3"}
    pipe = next(n for n, what in files.items() if what.startswith("pipe"))

    def send(kind, value=None, task=0):
        os.write(pipe, frames.pack(kind, task, wire.dumps(value, wire.Bounds())))


    while True:
        send(frames.NOTE, "hello")
"""
STATUS = "killed"
REASON = "no answer"
