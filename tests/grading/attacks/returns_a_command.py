"""Objects that run a command where they are unpickled, or are hidden in an array."""

CELL = """
import os

import numpy

class Command:
    def __reduce__(self):
        return os.system, ("touch /tmp/canary",)

def attack(x):
    return Command() if len(x) == 3 else numpy.array([Command()], dtype=object)
"""
STATUS = "ran"
ERROR = "cannot be compared"
