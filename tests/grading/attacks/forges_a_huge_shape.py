"""A small message that says it holds an enormous tensor."""

CELL = """
import os

def attack(x):
    from course_lib.grading.sandbox import frames, wire
    from course_lib.checking.call import Outcome

    files = {int(n): os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n != "3"}
    pipe = next(n for n, what in files.items() if what.startswith("pipe"))

    def send(kind, value=None, task=0):
        os.write(pipe, frames.pack(kind, task, wire.dumps(value, wire.Bounds())))


    import json

    entry = {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]}
    tree = json.dumps(["tuple", ["tensor", "0", 0, 1], None, False, False, ""])
    text = json.dumps({"__metadata__": {"tree": tree}, "0": entry}).encode()
    os.write(pipe, frames.pack(frames.CASE, 0, len(text).to_bytes(8, "little") + text))
    return x
"""
STATUS = "killed"
REASON = "could not be read"
