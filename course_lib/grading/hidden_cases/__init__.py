"""Cases that the students' copy of the course lacks: one file per lesson, each with HIDDEN = {exercise id: cases}.

They look where the cases of `check` do not: other shapes and sizes, ties, zeros, one row or token, large next to small
values. They ask nothing that the text of an exercise leaves open, and contain the dtypes that `check` shows, so that a
right answer never fails.
"""

import importlib
import importlib.util

import torch

from course_lib.checking.exercise import Case, Exercise


def hidden_cases(exercise: Exercise, generator: torch.Generator) -> list[Case]:
    """The hidden cases of an exercise, with new random numbers.

    Raises:
        ValueError: when its lesson has none, or forgot this exercise.
    """
    lesson = exercise.id.split(".")[0]
    name = f"{__name__}.{lesson}"
    known = importlib.import_module(name).HIDDEN if importlib.util.find_spec(name) else {}
    if exercise.id not in known:
        raise ValueError(
            f"got the exercise {exercise.id!r}, which has no hidden cases; expected HIDDEN[{exercise.id!r}] in "
            f"course_lib/grading/hidden_cases/{lesson}.py. Write a function that takes a generator and returns cases."
        )
    return known[exercise.id](generator)
