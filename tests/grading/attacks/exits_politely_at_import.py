"""exit() where the notebook is loaded."""

CELL = """
import sys

GONE = sys.exit(0)

def attack(x):
    return GONE
"""
STATUS = "ran"
ERROR = "NameError"
