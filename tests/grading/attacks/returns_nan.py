"""NaN and infinities where a careless comparison is never wrong."""

CELL = """
def attack(x):
    return x * float("nan") if len(x) == 3 else x / 0
"""
STATUS = "ran"
