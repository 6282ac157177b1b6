"""A list that contains itself."""

CELL = """
def attack(x):
    loop = []
    loop.append(loop)
    return loop
"""
STATUS = "ran"
ERROR = "cannot be compared"
