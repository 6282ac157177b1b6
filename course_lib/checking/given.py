"""What a case hands to a function, written down where that is little enough to calculate with."""

import inspect
import re

from torch import Tensor

from course_lib.checking.call import Recorded
from course_lib.checking.exercise import Case, Exercise
from course_lib.checking.short import short

SMALL, LONG = 24, 240  # numbers of a tensor, and characters of all arguments together


def given(exercise: Exercise, case: Case) -> str:
    """ "weight = [[1, -2]], n = 1", with the names of the exercise's own function; empty where it would be long."""
    names = names_of(exercise)
    written = [_in_full(argument) for argument in case.arguments]
    if None in written or len(names) != len(written):
        return ""
    text = ", ".join(f"{name} = {argument}" for name, argument in zip(names, written, strict=True))
    return text if len(text) <= LONG else ""


def names_of(exercise: Exercise) -> list[str]:
    """What the exercise's own function calls its arguments."""
    if isinstance(exercise.reference, Recorded):
        return list(exercise.reference.names)
    return list(inspect.signature(exercise.reference).parameters)


def _in_full(value: object) -> str | None:
    """A number, a word, or a small tensor with four digits; None for anything else."""
    if isinstance(value, Tensor) and value.numel() <= SMALL and not value.is_complex():
        return re.sub(r"-?\d+\.\d+(e[-+]\d+)?", lambda found: f"{float(found[0]):.4g}", str(value.tolist()))
    return short(value) if isinstance(value, bool | int | float | str) else None
