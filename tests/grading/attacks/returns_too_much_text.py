"""A string of hundreds of megabytes, and a number of thousands of digits."""

CELL = """
def attack(x):
    return "x" * 2**28 if len(x) == 3 else 10**5000
"""
STATUS = "ran"
ERROR = "cannot be compared"
