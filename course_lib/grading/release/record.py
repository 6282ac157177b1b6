"""Record the outcomes of the answer and the named mistakes of an exercise, so that a release can leave them out."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from course_lib.checking.call import Outcome, call
from course_lib.checking.exercise import Case, Exercise
from course_lib.checking.trivial import by_heart
from course_lib.workbook.checks import SEED


class Tensors:
    """The tensors of one file, each content once: many mistakes return the same as the answer on some case."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, Tensor]] = {}

    def add(self, tensor: Tensor) -> list:
        """Return [number, shape, stride]: the stored memory of a tensor, gaps included, and its layout."""
        span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        memory = tensor.detach().as_strided((span if tensor.numel() else 0,), (1,)).clone()
        key = f"{memory.dtype} {hashlib.sha256(memory.view(torch.uint8).numpy().tobytes()).hexdigest()}"
        number, _ = self.found.setdefault(key, (len(self.found), memory))
        return [number, list(tensor.shape), list(tensor.stride())]

    def named(self) -> dict[str, Tensor]:
        return {str(number): memory for number, memory in self.found.values()}


def record(exercise: Exercise, seed: int = SEED) -> bytes:
    """Return the file next to an exercise in a student's copy. The bytes are the same for the same exercise."""
    tensors = Tensors()
    with one_thread():
        stored = _stored(exercise, tensors, seed)
    # One entry: safetensors does not keep the order of several.
    return save(tensors.named(), {"exercise": json.dumps(stored, ensure_ascii=False)})


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread, so that sums have the same order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _stored(exercise: Exercise, tensors: Tensors, seed: int) -> dict[str, Any]:
    cases = exercise.cases(torch.Generator().manual_seed(seed))
    fields = ("id", "title", "difficulty", "minutes", "points", "hints")
    return {name: getattr(exercise, name) for name in fields} | {
        "seed": seed,
        "cases": [[case.name, encode(case.arguments, tensors)] for case in cases],
        "reference": _outcomes(exercise.reference, cases, tensors),
        "mistakes": [
            {
                "name": mistake.name,
                "explanation": mistake.explanation,
                "functions": [_outcomes(function, cases, tensors) for function in mistake.functions],
            }
            for mistake in exercise.mistakes
        ],
        "trivial": [
            {"name": trivial.name, "outcomes": _outcomes(trivial.function, cases, tensors)}
            for trivial in exercise.trivial
        ],
        "by_heart": sorted(by_heart(exercise, cases)),
    }


def _outcomes(function: Callable, cases: list[Case], tensors: Tensors) -> list[dict]:
    return [_outcome(call(function, case.arguments), tensors) for case in cases]


def _outcome(outcome: Outcome, tensors: Tensors) -> dict[str, Any]:
    """Return the fields that differ from an empty outcome. Tracebacks are left out, because they quote the function."""
    if outcome.error is None:
        return {"value": encode(outcome.value, tensors)}
    flags = {name: True for name in ("unattempted", "endless") if getattr(outcome, name)}
    return {"error": outcome.error} | flags


def encode(value: Any, tensors: Tensors) -> Any:
    """Convert a plain value to JSON, which course_lib.checking.recorded reads.

    Raises:
        ValueError: for types that occur in no case and no answer of the course.
    """
    if isinstance(value, Tensor):
        return {"tensor": tensors.add(value)}
    if isinstance(value, tuple):
        return {"tuple": [encode(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key, tensors), encode(item, tensors)] for key, item in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"got a {type(value).__name__} among a case's arguments or an exercise's outcomes; expected tensors, numbers, "
        "text, and tuples and dicts of these, which can be given to students as data."
    )
