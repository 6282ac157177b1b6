"""Takes apart what stops a call, by name and by frame."""

CELL = """
import sys

def attack(x):
    from course_lib.checking import call

    call.LIMIT = 10**9
    frame = sys._getframe()
    while frame:
        frame.f_locals.update(limits=None, content=b"", code=0)
        frame = frame.f_back
    raise call.DidNotFinish
"""
STATUS = "ran"
ERROR = "did not finish"
