"""A constant whose making ends the process, with the code of success."""

CELL = """
import os

GONE = os._exit(0)

def attack(x):
    return GONE
"""
STATUS = "killed"
REASON = "ended the process"
