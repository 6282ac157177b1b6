"""A regular expression that backtracks for years."""

CELL = """
import re

def attack(x):
    return re.match("(a+)+$", "a" * 60 + "b")
"""
GROUP = "endless"
STATUS = "killed"
REASON = "stopped after 3 seconds"
