"""Matrix products for ever, most of the time in torch."""

CELL = """
import torch

def attack(x):
    square = torch.ones(300, 300)
    while True:
        square = square @ square / 300
"""
GROUP = "endless"
STATUS = "killed"
REASON = "stopped after 3 seconds"
