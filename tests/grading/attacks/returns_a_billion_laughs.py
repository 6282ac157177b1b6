"""A value of thirty objects that has a billion leaves when it is followed."""

CELL = """
def attack(x):
    laughs = (1.0,)
    for _ in range(30):
        laughs = (laughs, laughs)
    return laughs
"""
GROUP = "endless"
STATUS = None
OUTCOME = "memory|Memory|cannot be compared|stopped after"
