"""Objects that are equal to everything."""

CELL = """
import torch

class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        return True if function.__name__ in ("equal", "allclose", "isclose", "eq") else torch.Tensor(1)

class Number(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__

class Text(str):
    __eq__ = Number.__eq__
    __hash__ = str.__hash__

def attack(x):
    return x.as_subclass(Liar) if len(x) == 3 else (Number(0), Text("x"), x.as_subclass(Liar))
"""
STATUS = None
