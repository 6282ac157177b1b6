"""A constant that the function needs is never finished."""

CELL = """
NEVER = any(iter(int, 1))

def attack(x):
    return NEVER
"""
GROUP = "endless"
STATUS = "killed"
REASON = "stopped after 3 seconds"
