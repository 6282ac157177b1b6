"""A loop inside one instruction, where no alarm of Python rings."""

CELL = """
def attack(x):
    return sum(range(10**15))
"""
GROUP = "endless"
STATUS = "killed"
REASON = "stopped after 3 seconds"
