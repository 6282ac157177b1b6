"""A loop that never ends."""

CELL = """
def attack(x):
    while True:
        pass
"""
GROUP = "endless"
STATUS = "killed"
REASON = "stopped after 3 seconds"
