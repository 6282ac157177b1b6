"""Settings of torch that would change every later calculation."""

CELL = """
import torch

def attack(x):
    torch.set_default_dtype(torch.float16)
    torch.set_num_threads(8)
    torch.set_grad_enabled(False)
    torch.set_num_interop_threads(8) if x.numel() == 3 else None
    torch.Tensor.__mul__ = lambda *_: None
    return 0.0
"""
STATUS = "ran"
VALUE = 0.0
