"""As many files as fit, each at the largest allowed size."""

CELL = """
import os

def attack(x):
    for number in range(10_000):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(b"x" * 2**20)
    return number
"""
ERROR = "No space left|too large"
