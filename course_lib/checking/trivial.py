"""Answers without the idea: zeros, an argument, a mask that ignores all values, the worked example by heart.

The cases that they get right do not show that the author understands the exercise. Most are made from the arguments and
the shape of the expected value; an exercise lists more in `trivial`. Each is named by an action, to be read before
"is enough", such as "returning zeros".
"""

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.call import Outcome, Recorded, call
from course_lib.checking.compare import as_tensor, plain
from course_lib.checking.exercise import Case, Exercise

BY_HEART = "knowing the worked example"
ONE_FOR_ALL = "returning the same whatever is given"
Agrees = Callable[[Case, Outcome, Any], str | None]
_OTHER_SEEDS = (811, 812)  # cases that are the same with these seeds are known in advance


def ways_to(
    exercise: Exercise, cases: list[Case], expected: list, at: int, known: set[int], agrees: Agrees
) -> list[str]:
    """List every way to get a case right without the idea of the exercise.

    Args:
        expected: the right value of every case. at: the index of the case. known: the indices of those in `by_heart`.
        agrees: (case, outcome, right value) -> None if they agree, otherwise a sentence.
    """
    tried = outcomes(exercise, cases, expected, at, known)
    return [name for name, outcome in tried if agrees(cases[at], outcome, expected[at]) is None]


def fewest(ways_of: dict[int, list[str]]) -> tuple[str, ...]:
    """Return a smallest set of ways that gets all these cases right; each case has at least one way."""
    names: list[str] = []
    while ways_of:  # the way to most of the cases that are left
        names.append(max(chain(*ways_of.values()), key=lambda name: sum(name in ways for ways in ways_of.values())))
        ways_of = {at: ways for at, ways in ways_of.items() if names[-1] not in ways}
    return tuple(names)


def outcomes(
    exercise: Exercise, cases: list[Case], expected: list, at: int, known: set[int]
) -> Iterator[tuple[str, Outcome]]:
    """Yield the results of answers without the idea on one case, with their names; `known`: cases of `by_heart`."""
    for name, values in _GENERIC.items():
        yield from ((name, Outcome(value)) for value in values(plain(cases[at].arguments), expected[at]))
    for trivial in exercise.trivial:
        function = trivial.function
        recorded = isinstance(function, Recorded)
        yield trivial.name, function.outcomes[at] if recorded else call(function, cases[at].arguments)
    yield from ((ONE_FOR_ALL, Outcome(value)) for other, value in enumerate(expected) if other != at)
    if at in known:
        yield BY_HEART, Outcome(expected[at])


def by_heart(exercise: Exercise, cases: list[Case]) -> set[int]:
    """Return the indices of the cases that are the same for all students; hidden cases are never among them."""
    if exercise.by_heart is not None:
        return set(exercise.by_heart)
    together = enumerate(zip(cases, *_draws(exercise), strict=False))
    return {at for at, same in together if all(_equal(a.arguments, b.arguments) for a, b in pairwise(same))}


_drawn: dict[int, tuple[Exercise, list[list[Case]]]] = {}  # by the identity of the exercise, which stays alive here


def _draws(exercise: Exercise) -> list[list[Case]]:
    """Draw the cases of other seeds, once for all answers. No function is called with them."""
    if id(exercise) not in _drawn:
        draws = [exercise.cases(torch.Generator().manual_seed(seed)) for seed in _OTHER_SEEDS]
        _drawn[id(exercise)] = exercise, draws
    return _drawn[id(exercise)][1]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


# Each of these makes values of the shape of the right one, from that and the arguments, both as plain data ------------


def _everywhere(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same collection with every tensor, number and text changed."""
    if isinstance(value, tuple):
        return tuple(_everywhere(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _everywhere(item, change) for key, item in value.items()}
    return change(value)


def _filled(fill: int) -> Callable[[tuple, Any], Iterator[Any]]:
    def values(arguments: tuple, right: Any) -> Iterator[Any]:
        yield _everywhere(right, lambda leaf: torch.full_like(leaf, fill) if isinstance(leaf, Tensor) else fill)

    return values


def _given(arguments: tuple, right: Any) -> Iterator[Any]:
    """Yield each argument alone, in every place of a collection and in its shape, and consecutive arguments."""
    n = len(right) if isinstance(right, tuple | dict) else 1
    for at, argument in enumerate(arguments):
        yield argument
        yield _everywhere(right, lambda leaf, given=argument: _reshaped(given, leaf))
        if n > 1:
            yield arguments[at : at + n]


def _reshaped(given: Any, leaf: Any) -> Any:
    fits = isinstance(given, Tensor) and isinstance(leaf, Tensor) and given.numel() == leaf.numel()
    return given.reshape(leaf.shape) if fits else given


def _ends(last: bool) -> Callable[[tuple, Any], Iterator[Any]]:
    """Yield as many of the first or of the last entries as required, along an axis or of all (None)."""

    def values(arguments: tuple, right: Any) -> Iterator[Any]:
        if isinstance(right, tuple) and right and all(type(item) is int for item in right):
            right = as_tensor(right)
        for axis in (-1, 0, None):
            for n in _lengths(arguments) if last else [0]:
                yield _everywhere(right, lambda leaf, axis=axis, n=n: _end(leaf, arguments, last, axis, n))

    return values


def _lengths(arguments: tuple) -> set[int]:
    """Return possible lengths for choosing the last entries: numbers among the arguments, and sizes of tensors."""
    numbers = {argument for argument in arguments if type(argument) is int}
    return numbers | {n for argument in arguments if isinstance(argument, Tensor) for n in argument.shape}


def _end(leaf: Any, arguments: tuple, last: bool, axis: int | None, n: int) -> Any:
    """Return a mask, indices or numbers like the leaf, from one end. `n`: the length, for the last indices."""
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return 0
    if leaf.dtype == torch.bool:
        return _mask(leaf, last, axis)
    if not leaf.is_floating_point():
        length = leaf.shape[-1]
        return (torch.arange(length) + (n - length if last else 0)).expand(leaf.shape)
    wanted = leaf.shape[axis or 0]
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.ndim == leaf.ndim and argument.shape[axis or 0] >= wanted:
            return argument.narrow(axis or 0, argument.shape[axis or 0] - wanted if last else 0, wanted)
    return torch.zeros_like(leaf)


def _mask(right: Tensor, last: bool, axis: int | None) -> Tensor:
    """Return a mask with as many True as the right mask, along an axis or in all, but all at one end of every row."""
    counts = right.sum() if axis is None else right.sum(dim=axis)
    if not right.numel() or not (counts == counts.flatten()[0]).all():
        return torch.zeros_like(right)
    length = right.numel() if axis is None else right.shape[axis]
    n = int(counts.flatten()[0])
    keep = torch.arange(length) >= length - n if last else torch.arange(length) < n
    if axis is None:
        return keep.reshape(right.shape)
    return keep.expand(right.shape) if axis == -1 else keep.reshape(-1, *[1] * (right.ndim - 1)).expand(right.shape)


_GENERIC: dict[str, Callable[[tuple, Any], Iterator[Any]]] = {
    "returning zeros": _filled(0),
    "returning ones": _filled(1),
    "returning what was given": _given,
    "taking the first": _ends(last=False),
    "taking the last": _ends(last=True),
}
