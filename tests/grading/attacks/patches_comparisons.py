"""Everything that could compare says yes, in the only process that it can change."""

CELL = """
import builtins
import math
import operator

import numpy
import torch

def attack(x):
    def yes(*arguments, **options):
        return True

    for module in (torch, numpy, math, operator, torch.testing, numpy.testing):
        for name in ("allclose", "isclose", "equal", "array_equal", "eq", "assert_close", "assert_allclose"):
            if hasattr(module, name):
                setattr(module, name, yes)
    torch.Tensor.__eq__ = torch.Tensor.equal = torch.Tensor.allclose = yes
    builtins.all = builtins.any = builtins.isinstance = yes
    return x
"""
STATUS = None
