"""A list in a list in a list."""

CELL = """
def attack(x):
    nested = x
    for _ in range(100 if len(x) == 3 else 10**4):
        nested = [nested]
    return nested
"""
STATUS = None
OUTCOME = "cannot be compared|crashed"
