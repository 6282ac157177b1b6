"""Tensors without storage, quantised, sparse, conjugate, of one number a billion times."""

CELL = """
import torch

def attack(x):
    if len(x) == 3:
        return torch.zeros(1, device="meta")
    return torch.zeros(1).expand(10**12)
"""
STATUS = "ran"
ERROR = "cannot be compared"
