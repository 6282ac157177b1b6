"""The arguments of a case in words, written in full if they are small enough to calculate with."""

import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from torch import Tensor

from course_lib.checking.exercise import Case, Exercise
from course_lib.checking.short import short

SMALL, LONG = 30, 240  # numbers of a tensor, and characters of all arguments together
NAMES = Path(__file__).with_name("parameters.json")  # `course build` writes it from the stubs of the masters


def given(exercise: Exercise, case: Case, names: tuple[str, ...] = ()) -> str:
    """Write the small arguments of a case in full, and the large ones by their shapes.

    For example "weight of shape (64, 32), n = 1". The result is empty if all arguments are large.

    Args:
        names: the parameter names of the student's function; without any, those of the exercise's stub.
    """
    names = names or stub_names(exercise.id)
    if len(names) != len(case.arguments):
        return ""
    full = {name: text for name, value in zip(names, case.arguments, strict=True) if (text := in_full(value))}
    brief = {name: _in_brief(value) for name, value in zip(names, case.arguments, strict=True)}
    while full:
        text = ", ".join(f"{name} = {full[name]}" if name in full else f"{name} {brief[name]}" for name in names)
        if len(text) <= LONG:
            return text
        del full[max(full, key=lambda name: len(full[name]))]
    return ""


def own_names(function: Callable, case: Case) -> tuple[str, ...]:
    """Return a function's parameter names for the arguments of a case; empty if it does not take them one by one."""
    try:
        bound = inspect.signature(function).bind(*case.arguments)
        one_by_one = all(bound.signature.parameters[name].kind.name != "VAR_POSITIONAL" for name in bound.arguments)
    except Exception:  # a signature that does not fit, or an object that has none or a broken one
        return ()
    return tuple(bound.arguments) if one_by_one else ()


def stub_names(exercise_id: str) -> tuple[str, ...]:
    """Return the parameter names of an exercise's stub; empty for an exercise that is in no lesson."""
    return tuple(_stubs().get(exercise_id, ()))


@cache
def _stubs() -> dict[str, list[str]]:
    return json.loads(NAMES.read_text(encoding="utf-8"))


def in_full(value: object) -> str | None:
    """Write a value with all its numbers: numbers, words, small tensors with four digits, and collections of these.

    Return None for anything else.
    """
    if isinstance(value, Tensor):
        if value.numel() > SMALL or value.is_complex() or (not value.numel() and value.ndim > 1):
            return None
        return re.sub(r"-?\d+\.\d+(e[-+]\d+)?", lambda found: f"{float(found[0]):.4g}", str(value.tolist()))
    if isinstance(value, tuple | list | dict):
        items = [in_full(item) for item in (value.values() if isinstance(value, dict) else value)]
        return None if None in items else _bracketed(value, items)
    return short(value) if value is None or isinstance(value, bool | int | float | str) else None


def _bracketed(collection: tuple | list | dict, items: list[str]) -> str:
    if isinstance(collection, dict):
        return f"{{{', '.join(f'{key!r}: {item}' for key, item in zip(collection, items, strict=True))}}}"
    if isinstance(collection, tuple):
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    return f"[{', '.join(items)}]"


def _in_brief(value: object) -> str:
    if isinstance(value, Tensor):
        return f"of shape {tuple(value.shape)}"
    return f"with {len(value)} values" if isinstance(value, tuple | list | dict) else f"of type {type(value).__name__}"
