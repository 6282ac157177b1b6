"""Tensors far beyond the limit, caught and tried again."""

CELL = """
import torch

def attack(x):
    kept = []
    for power in range(34, 16, -1):
        try:
            while True:
                kept.append(torch.ones(2**power, dtype=torch.uint8))
        except RuntimeError:
            pass
    return torch.tensor(float(sum(map(len, kept))))
"""
MOST = 1073741824
