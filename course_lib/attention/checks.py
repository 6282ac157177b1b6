"""Settings are numbers of a kind and a range, and tensors hold numbers: what is neither is refused by name."""

import math
from numbers import Integral, Real

from torch import Tensor


def check_whole(name: str, value: object, least: int = 0, meaning: str = "") -> None:
    """Raises ValueError for anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        of_what = f" of {meaning}" if meaning else ""
        raise ValueError(f"got {name} {value!r}; expected a whole number{of_what}, {least} or more.")


def check_below_one(name: str, value: object) -> None:
    """Raises ValueError for anything but a number from 0 to below 1."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"got {name} {value!r}; expected a fraction from 0.0 to below 1.0.")


def check_layers(name: str, value: object) -> None:
    """Raises ValueError for anything but a tuple of whole numbers."""
    if not isinstance(value, tuple) or any(type(layer) is not int for layer in value):
        raise ValueError(f"got {name} {value!r}; expected a tuple of layers, such as (0, 1, -1).")


def check_flag(name: str, value: object) -> None:
    """Raises ValueError for anything but True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"got {name} {value!r}; expected True or False.")


def is_number(value: object) -> bool:
    """Whether something is a finite or infinite real number, neither a truth value nor NaN."""
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def check_finite(what: str, *tensors: Tensor) -> None:
    """Raises ValueError where tensors hold NaN or infinity, so that nothing is chosen by comparing with these."""
    bad = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    if bad:
        n_all = sum(tensor.numel() for tensor in tensors)
        raise ValueError(
            f"got {what} of which {bad} of {n_all} values are NaN or infinite; expected numbers. Look for NaN in the "
            "model's weights, or for an overflow."
        )
