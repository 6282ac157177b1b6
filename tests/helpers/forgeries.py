"""What somebody might hand in instead of an answer. Each takes the case's arguments and the right value.

FORGED must not earn a single case. LAZY is what a constant may be right about here and there.
"""

import math

import torch
from torch import Tensor


def leaves(value, change):
    """The same collection with every tensor, number and text changed."""
    if isinstance(value, tuple):
        return tuple(leaves(item, change) for item in value)
    if isinstance(value, dict):
        return {key: leaves(item, change) for key, item in value.items()}
    return change(value)


def filled(value, fill, dtype=None):
    """As many entries as expected, all the same."""

    def change(leaf):
        return torch.full(leaf.shape if isinstance(leaf, Tensor) else (), fill, dtype=dtype)

    return leaves(value, change)


def _times(factor):
    """Every number times a factor; text stays right, so that the numbers alone are what is wrong."""
    return lambda leaf: leaf if isinstance(leaf, str) else leaf * factor


def _other_text(value):
    """The right numbers beside other text; where no text is wanted, text in every place."""
    texts = []
    leaves(value, lambda leaf: texts.append(leaf) if isinstance(leaf, str) else None)
    return leaves(value, lambda leaf: f"{leaf} or another" if isinstance(leaf, str) or not texts else leaf)


def _nested_text(leaf):
    if isinstance(leaf, Tensor) and leaf.ndim == 2:
        return tuple(tuple(map(str, row)) for row in leaf.tolist())
    return ("1",)


def _one_axis_more(leaf):
    """[None] would do for tensors; a number in brackets is a number to most people, and two of it are none."""
    if isinstance(leaf, str):
        return (leaf, leaf)
    return leaf[None] if isinstance(leaf, Tensor) and leaf.ndim else torch.tensor([float(leaf)] * 2)


def _longer(leaf):
    """The right entries, and one more row of them."""
    if isinstance(leaf, str):
        return (leaf, leaf)
    return torch.cat([leaf, leaf[:1]]) if isinstance(leaf, Tensor) and leaf.ndim else torch.tensor([float(leaf)] * 2)


def _with_more(value):
    if isinstance(value, dict):
        return value | {"more": 1.0}
    return (*value, torch.zeros(3)) if isinstance(value, tuple) else (value, torch.zeros(3))


def _keyed(value):
    """A dictionary where none is wanted; where one is, its keys with nothing behind them."""
    return dict.fromkeys(value, math.nan) if isinstance(value, dict) else {"value": value}


FORGED = {
    "NaN": lambda case, right: filled(right, math.nan),
    "infinity": lambda case, right: filled(right, math.inf),
    "minus infinity": lambda case, right: filled(right, -math.inf),
    "more than float32 holds": lambda case, right: filled(right, 1e300, torch.float64),
    "complex zeros": lambda case, right: filled(right, 0, torch.complex64),
    "complex ones": lambda case, right: filled(right, 1 + 1j, torch.complex128),
    "right, with an imaginary part": lambda case, right: leaves(right, _times(1 + 1j)),
    "right, as complex numbers": lambda case, right: leaves(right, _times(1 + 0j)),
    "one axis more": lambda case, right: leaves(right, _one_axis_more),
    "one row more": lambda case, right: leaves(right, _longer),
    "in one more tuple": lambda case, right: (right,),
    "in a list of two": lambda case, right: (right, right),
    "with one more array": lambda case, right: _with_more(right),
    "in a dictionary": lambda case, right: _keyed(right),
    "without an entry": lambda case, right: torch.empty(0),
    "an empty tuple": lambda case, right: (),
    "an empty dictionary": lambda case, right: {},
    "endless": lambda case, right: torch.zeros(()).expand(2**40),
    "endless rows": lambda case, right: torch.ones(1, 1).expand(2**30, 2**20),
    "endless without an entry": lambda case, right: torch.zeros(2**40, 0, dtype=torch.int8),
    "None": lambda case, right: None,
    "nothing in its place": lambda case, right: leaves(right, lambda leaf: None),
    "text": lambda case, right: "right",
    "other text": lambda case, right: _other_text(right),
    "numbers as text": lambda case, right: leaves(right, str),
    "rows of text": lambda case, right: leaves(right, _nested_text),
    "a number without end": lambda case, right: 10**5000,
}

LAZY = {
    "zeros": lambda case, right: filled(right, 0.0),
    "zeros below zero": lambda case, right: filled(right, -0.0),
    "ones": lambda case, right: filled(right, 1.0),
    "minus ones": lambda case, right: filled(right, -1, torch.int8),
    "one byte ones": lambda case, right: filled(right, 1, torch.int8),
    "True": lambda case, right: filled(right, True),
    "False": lambda case, right: filled(right, False),
    "one number": lambda case, right: 1.0,
    "nought": lambda case, right: 0,
    "all that was given": lambda case, right: case.arguments,
    "the first that was given": lambda case, right: case.arguments[0],
    "the first, in every place": lambda case, right: leaves(right, lambda leaf: case.arguments[0]),
    "the last that was given": lambda case, right: case.arguments[-1],
    "the first entries kept": lambda case, right: leaves(right, _first_ones),
    "counting": lambda case, right: leaves(right, _counting),
    "one small number, repeated": lambda case, right: filled(right, 0.5),
}


def _first_ones(leaf):
    """A mask of the right size that looks at nothing."""
    if not isinstance(leaf, Tensor):
        return 1.0
    n = int(leaf.double().sum().clamp(0, leaf.numel())) if leaf.dtype == torch.bool else leaf.numel() // 2
    return (torch.arange(leaf.numel()) < n).reshape(leaf.shape)


def _counting(leaf):
    return torch.arange(leaf.numel()).reshape(leaf.shape) if isinstance(leaf, Tensor) else 1
