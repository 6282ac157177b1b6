"""Folders nested so deeply that the usual ways to remove them fail."""

CELL = """
import os

def attack(x):
    os.chdir("/tmp")
    for _ in range(3000):
        os.makedirs("d" * 100, exist_ok=True)
        os.chdir("d" * 100)
    return 0
"""
VALUE = 0
