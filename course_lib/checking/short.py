"""Describe any value in a few words: for messages, and for values that cannot be trusted."""

from itertools import islice
from typing import Any

from torch import Tensor

LONG, MANY, DEEP = 200, 12, 4  # characters of a message, entries it shows, levels it goes into


def short(value: Any, depth: int = DEEP) -> str:
    """Describe a value in a few words for a message. This is fast and never fails, whatever the value contains."""
    if isinstance(value, Tensor):
        return _short_tensor(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list | dict) and not depth:
        return "..."
    if isinstance(value, tuple):
        text = f"({_items(short(item, depth - 1) for item in value[:MANY])}{', ...' * (len(value) > MANY)})"
    elif isinstance(value, dict):
        items = (f"{short(key)}: {short(item, depth - 1)}" for key, item in islice(value.items(), MANY))
        text = f"{{{_items(items)}{', ...' * (len(value) > MANY)}}}"
    else:
        text = _short_repr(value[:LONG] if isinstance(value, str | list) else value)
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def _items(texts) -> str:
    return ", ".join(texts)


def _short_repr(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return f"a {type(value).__name__} too long to write"


def _short_tensor(value: Tensor) -> str:
    head = f"tensor {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if not 0 < value.numel() <= MANY:  # without entries an axis may still be as long as it likes
        return head
    if not value.is_floating_point():
        return f"{head} {value.tolist()}"
    return f"{head} [{', '.join(f'{x:.4g}' for x in value.flatten().tolist())}]"
