"""A list that grows without end."""

CELL = """
def attack(x):
    kept = []
    while True:
        kept.append([0.0] * 10**6)
"""
ERROR = "MemoryError"
MACHINE = "x86_64 aarch64"
