"""Memory that is not there."""

CELL = """
import ctypes

def attack(x):
    return ctypes.string_at(0)
"""
STATUS = "killed"
REASON = "crashed .signal 11"
