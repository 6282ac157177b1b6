"""A recursion without end and without the limit that Python sets."""

CELL = """
import sys

def attack(x):
    sys.setrecursionlimit(10**9)

    class Endless:
        def __getattr__(self, name):
            return getattr(self, name + "x"[:0])

    return Endless().nothing
"""
STATUS = None
OUTCOME = "crashed|MemoryError|RecursionError|memory"
