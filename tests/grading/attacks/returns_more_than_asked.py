"""The right shape within more arrays, names and levels."""

CELL = """
def attack(x):
    return {"answer": x * 2, "grade": 100.0} if len(x) == 3 else ((x * 2, x * 2), x * 2)
"""
STATUS = "ran"
