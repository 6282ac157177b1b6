"""Text without end on every stream."""

CELL = """
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
"""
STATUS = "ran"
VALUE = 0.0
