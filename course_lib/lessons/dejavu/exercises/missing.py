"""The exercise dejavu.missing, "A key that is missing": its cases and its named mistakes.

Dimension key: N tokens, M of them without a key, D width, d size of the head, P positions of a text.
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.checking.near import all_near


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Keys and values, up to the rounding of a product with D terms, which may cancel."""
    return all_near(got, expected, {"keys": 3e-6 * _largest(expected, 0), "values": 3e-6 * _largest(expected, 1)})


def _largest(expected: Any, which: int) -> float:
    return expected[which].abs().max().item()


def _rows(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got[0]), expected[0], "token", "entry of its key")


def _complete(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    keys, values = keys.clone(), values.clone()
    at = position[missing]
    made = stored @ key_weight.T
    turned = _turn(made, cos[at], sin[at])
    added = stored @ value_weight.T
    rows = missing
    keys[rows], values[rows] = turned, added
    return keys, values


def _turn(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = rows.chunk(2, dim=-1)
    return rows * cos + torch.cat([-second, first], dim=-1) * sin


def _neighbours(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    other = torch.stack([-rows[:, 1::2], rows[:, 0::2]], dim=2).flatten(1)
    return rows * cos + other * sin


def _each_twice(table: Tensor) -> Tensor:
    """The angles of the halves, for neighbours as pairs."""
    return table[:, : table.shape[1] // 2].repeat_interleave(2, dim=1)


def _missing_cases(generator: torch.Generator) -> list[Case]:
    def drawn(tokens: int, missing: int, width: int, size: int, texts: int, base: float = 100.0) -> tuple[Tensor, ...]:
        """Tokens of a text of which some have left the cache; the rows of missing ones hold leftovers."""
        position = torch.randperm(texts - 1, generator=generator)[:tokens].sort().values
        old = torch.randperm(tokens - 1, generator=generator)[: missing - 1].sort().values
        matrices = [torch.randn(size, width, generator=generator) for _ in range(2)]
        cache = [width**0.5 * torch.randn(tokens, size, generator=generator) for _ in range(2)]
        angle = torch.arange(texts)[:, None] * base ** (-torch.arange(0, size, 2) / size)
        cos, sin = (table.repeat(1, 2) for table in (angle.cos(), angle.sin()))
        stored = torch.randn(missing, width, generator=generator)
        return *cache, position, torch.cat([old, torch.tensor([tokens - 1])]), stored, *matrices, cos, sin

    by_hand = (
        torch.tensor([[5.0, 6.0], [9.0, 9.0], [9.0, 9.0]]),
        torch.tensor([[7.0, 8.0], [9.0, 9.0], [9.0, 9.0]]),
        torch.tensor([0, 1, 3]),
        torch.tensor([1, 2]),
        torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        torch.tensor([[1.0, 1.0], [0.0, 1.0]]),
        torch.tensor([[2.0, 0.0], [0.0, 3.0]]),
        torch.tensor([1.0, 0.0, -1.0, 0.0, 1.0])[:, None].repeat(1, 2),  # a quarter turn for each position
        torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0])[:, None].repeat(1, 2),
    )
    turned = drawn(9, 4, 10, 8, 25)
    turned = tuple(x.T.contiguous().T if x.ndim == 2 else x for x in turned)
    return [
        Case("3 tokens, quarter turns, by hand: keys (0, 1) and (2, -2) for the last two", by_hand),
        Case("12 tokens, 5 of them missing, width 20, head of 8", drawn(12, 5, 20, 8, 40)),
        Case("a head as wide as the stream, 6 of 10 missing", drawn(10, 6, 12, 12, 30)),
        Case("the newest alone is missing", drawn(7, 1, 9, 4, 20)),
        Case("chosen for the first time: all are missing", drawn(6, 6, 14, 6, 50)),
        Case("many tokens have left, 4 of 8 missing, head of 8", drawn(8, 4, 16, 8, 200, 1000.0)),
        Case("not contiguous", turned),
    ]


def _library(*arguments: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.dejavu.steps import completed

    return completed(*arguments)


MISSING = Exercise(
    id="dejavu.missing",
    title="A key that is missing",
    difficulty=4,
    minutes=12,
    points=3,
    reference=_complete,
    cases=_missing_cases,
    agree=_agree_on_both,
    picture=_rows,
    library=_library,
    mistakes=read_mistakes(globals(), steps_of=_complete),
    also_right=(
        Variant("token by token", lambda *a: _one_by_one(*a)),
        Variant("complex numbers", lambda *a: _complex(*a)),
        Variant("in float64", lambda *a: _complete(*(x.double() if x.is_floating_point() else x for x in a))),
        Variant("index_copy", lambda *a: _copied(*a)),
    ),
    hints=(
        "The stored rows are the inputs of the attention at these tokens. Which matrix turns them into keys, and "
        "which into values? Which of the two depends on the position?",
        "stored @ key_weight.T is (M, d), one key per row. The positions of the tokens are position[missing]: cos and "
        "sin have a row for each of them.",
        "Each key times cos of its position, plus its rotated half times sin, goes into the rows `missing` of the "
        "keys; the products with the other matrix go into those of the values, without rotation.",
    ),
)


def _one_by_one(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    half = keys.shape[1] // 2
    keys, values = list(keys), list(values)
    for row, x in zip(missing.tolist(), stored, strict=True):
        p, key = int(position[row]), key_weight @ x
        low = key[:half] * cos[p, :half] - key[half:] * sin[p, :half]
        high = key[half:] * cos[p, half:] + key[:half] * sin[p, half:]
        keys[row], values[row] = torch.cat([low, high]), value_weight @ x
    return keys, values


def _complex(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    keys, values, at = keys.clone(), values.clone(), position[missing]
    first, second = (stored @ key_weight.T).chunk(2, dim=1)
    half = first.shape[1]
    turned = torch.complex(first, second) * torch.complex(cos[at, :half], sin[at, :half])
    keys[missing], values[missing] = torch.cat([turned.real, turned.imag], dim=1), stored @ value_weight.T
    return keys, values


def _copied(keys, values, position, missing, stored, key_weight, value_weight, cos, sin):
    """The keys turned in all rows, of which those of missing tokens are copied."""
    made = torch.zeros_like(keys).index_copy(0, missing, stored @ key_weight.T)
    is_missing = torch.isin(torch.arange(len(keys)), missing)[:, None]
    values = values.index_copy(0, missing, stored @ value_weight.T)
    return torch.where(is_missing, _turn(made, cos[position], sin[position]), keys), values
