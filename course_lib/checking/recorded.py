"""Exercises without answers: in a student's copy the cases and outcomes of each exercise are stored next to it as data.

`course release` writes both. Expected values and those of each named mistake were recorded for the cases of the one
seed that `check` uses, so a check has the same result as with the functions themselves.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from course_lib.checking.call import Outcome, Recorded
from course_lib.checking.compare import up_to_rounding
from course_lib.checking.exercise import Case, Exercise, Mistake, Trivial

SUFFIX = ".safetensors"  # score.safetensors is next to score.py


def recorded(
    source: str,
    agree: Callable[[Any, Any, Case], str | None] = up_to_rounding,
    picture: Callable[[Case, Any, Any], "matplotlib.figure.Figure"] | None = None,
    library: Callable | None = None,
) -> Exercise:
    """Return an exercise without its answers.

    Args:
        source: the file of the exercise; its data is next to it.
        agree, picture, library: the functions of the exercise, if it has them.
    """
    with safe_open(Path(source).with_suffix(SUFFIX), framework="pt") as file:
        stored = json.loads(file.metadata()["exercise"])
        tensors = [file.get_tensor(str(i)) for i in range(len(file.keys()))]
    fields = ("id", "title", "difficulty", "minutes", "points")
    return Exercise(
        **{name: stored[name] for name in fields},
        reference=_recorded(stored["reference"], tensors),
        cases=_cases(stored, tensors),
        mistakes=tuple(_mistake(mistake, tensors) for mistake in stored["mistakes"]),
        also_right=(),
        hints=tuple(stored["hints"]),
        agree=agree,
        picture=picture,
        library=library,
        trivial=tuple(Trivial(each["name"], _recorded(each["outcomes"], tensors)) for each in stored["trivial"]),
        by_heart=tuple(stored["by_heart"]),
    )


def _cases(stored: dict, tensors: list[Tensor]) -> Callable[[torch.Generator], list[Case]]:
    def cases(generator: torch.Generator) -> list[Case]:
        if generator.initial_seed() != stored["seed"]:
            raise ValueError(
                f"got seed {generator.initial_seed()}; in a copy without answers {stored['id']} has only the cases "
                f"of seed {stored['seed']}."
            )
        return [Case(name, decode(arguments, tensors)) for name, arguments in stored["cases"]]

    return cases


def _mistake(stored: dict, tensors: list[Tensor]) -> Mistake:
    functions = (_recorded(function, tensors) for function in stored["functions"])
    return Mistake(stored["name"], stored["explanation"], tuple(functions))


def _recorded(stored: list[dict], tensors: list[Tensor]) -> Recorded:
    return Recorded(tuple(Outcome(**outcome | {"value": decode(outcome.get("value"), tensors)}) for outcome in stored))


def decode(value: Any, tensors: list[Tensor]) -> Any:
    """Decode a plain value from JSON, in which tensors and collections are written as {kind: content}."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        # With its strides, since what a function may do depends on them; its own memory, since functions may write.
        number, shape, stride = content
        return tensors[number].clone().as_strided(shape, stride)
    if kind == "tuple":
        return tuple(decode(item, tensors) for item in content)
    return {decode(key, tensors): decode(item, tensors) for key, item in content}
