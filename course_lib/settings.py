"""Checks of single settings: the message says what was received and what is expected."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path


def is_count(value: object, least: int = 1) -> bool:
    """Return whether the value is a whole number of at least `least`; True and False do not count as numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= least


def check_count(name: str, value: object, least: int = 1, unit: str = "") -> None:
    """Raise ValueError unless the value is a whole number of at least `least`, such as "a whole number of tokens"."""
    if not is_count(value, least):
        of_what = f" of {unit}" if unit else ""
        raise ValueError(f"got {name} {value!r}; expected a whole number{of_what}, {least} or more.")


def is_real(value: object) -> bool:
    """Return whether the value is a real number, finite or infinite, but not a Boolean or NaN."""
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def is_number(value: object, least: float = 0.0, above: bool = False) -> bool:
    """Return whether the value is a finite number of at least `least`; with `above`, a larger one."""
    return is_real(value) and value < math.inf and bool(value > least if above else value >= least)


def check_number(name: str, value: object, least: float = 0.0, above: bool = False) -> None:
    """Raise ValueError unless the value is a finite number of at least `least`; with `above`, a larger one."""
    if not is_number(value, least, above):
        raise ValueError(f"got {name} {value!r}; expected a number {'above' if above else 'of at least'} {least:g}.")


def check_option(name: str, value: object, options: Iterable[object]) -> None:
    """Raise ValueError unless the value is one of the options, which are texts or numbers."""
    options = tuple(options)
    if not any(type(value) is type(option) and value == option for option in options):
        raise ValueError(f"got {name} {value!r}; expected one of {', '.join(map(repr, options))}.")


def check_flag(name: str, value: object) -> None:
    """Raise ValueError unless the value is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"got {name} {value!r}; expected True or False.")


def check_below_one(name: str, value: object) -> None:
    """Raise ValueError unless the value is a number x with 0 ≤ x < 1."""
    if not is_real(value) or not 0 <= value < 1:
        raise ValueError(f"got {name} {value!r}; expected a fraction from 0.0 to below 1.0.")


def check_layers(name: str, value: object) -> None:
    """Raise ValueError unless the value is a tuple of whole numbers."""
    if not isinstance(value, tuple) or any(type(layer) is not int for layer in value):
        raise ValueError(f"got {name} {value!r}; expected a tuple of layers, such as (0, 1, -1).")


MOST_SEED = 2**32 - 1  # the largest seed that all generators of torch and numpy accept


def check_seed(name: str, value: object) -> None:
    """Raise ValueError unless the value is a whole number from 0 to MOST_SEED."""
    check_count(name, value, least=0)
    if value > MOST_SEED:
        raise ValueError(f"got {name} {value!r}; expected at most {MOST_SEED}.")


def check_folder(name: str, value: object) -> None:
    """Raise ValueError unless the value is the path of a folder that exists or can be made."""
    if not isinstance(value, str | Path):
        raise ValueError(f"got {name} {value!r}; expected the path of a folder.")
    path = Path(value)
    there = next((part for part in (path, *path.parents) if part.exists()), None)
    if there is not None and not there.is_dir():
        raise ValueError(f"got {name} {str(path)!r}, and {there} is a file; expected a folder. Give another path.")


def check_stop(until: object, folder: object) -> None:
    """Raise ValueError unless `until` is a number of steps or None, and `folder` a possible folder or None."""
    if until is not None:
        check_count("until", until, least=0)
    if folder is not None:
        check_folder("folder", folder)
