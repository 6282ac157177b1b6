"""Shapes that broadcast, have no entries, or a billion rows."""

CELL = """
import torch

def attack(x):
    return torch.empty(0, 3) if len(x) == 3 else torch.empty(10**12, 0)
"""
STATUS = "ran"
OUTCOME = "cannot be compared"
