"""The modules with which its own answers are sent."""

CELL = """
import sys

def attack(x):
    from course_lib.grading.sandbox import child, frames, wire
    from course_lib.checking import call, compare

    wire.dumps = lambda *_: b"x" * 1000
    frames.pack = lambda *_: b"P" * 1000
    compare.plain = call.plain = lambda value: value
    child.Outcome.__eq__ = lambda *_: True
    return x
"""
STATUS = "killed"
REASON = "no answer|could not be read|crashed"
