"""Right once, then gone: the first case counts, the second does not."""

CELL = """
import os

calls = []

def attack(x):
    calls.append(1)
    if len(calls) > 1:
        os._exit(0)
    return x * 2
"""
STATUS = "killed"
REASON = "ended the process"
RIGHT = 1
