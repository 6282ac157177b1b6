"""The exercise compress.initial, "Where a prompt begins": its cases and its named mistakes.

Dimension key: V tokens of the vocabulary, P vectors of the prompt, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import as_tensor, close, short, tensor_like
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, Tensor, int, Tensor], Any]


def _kind(got: Any, case: Case, asked: Tensor) -> str | None:
    """The kind of a wrong prompt or table, where another prompt is right; None where that is not clear."""
    table, _, n, step = case.arguments
    prompt, after = map(as_tensor, got) if isinstance(got, tuple) and len(got) == 2 else (None, None)
    if not isinstance(prompt, Tensor) or prompt.shape != step.shape or not prompt.double().isfinite().all():
        return None
    began, right, unmoved = (_rows(table, rows) for rows in (prompt + step.double(), asked + step.double(), prompt))
    if close(after, table):
        return "another table" if began is not None and torch.equal(began, right) else None
    if began is None:
        return "no rows of the table" if unmoved is None else "rows without the step"
    if len(began.unique()) < n:
        return "rows that repeat"
    return None if torch.equal(began.sort().values, right.sort().values) else "other rows"


def _rows(table: Tensor, vectors: Tensor) -> Tensor | None:
    """Which row of the table each vector is; None where one is none of them."""
    apart = (vectors[:, None] - table.double()).abs().amax(dim=2)
    same = apart < 1e-4 * table.abs().max()
    return same.long().argmax(dim=1) if same.any(dim=1).all() else None


def _agree_on_both(got: Any, expected: Any, case: Case) -> str | None:
    """Prompt and table. A mistake that is a whole kind returns the kind, and the right values."""
    if not isinstance(expected, tuple):
        return close(got, expected)
    if isinstance(expected[0], str):
        kind = got[0] if isinstance(got, tuple) and got and isinstance(got[0], str) else _kind(got, case, expected[1])
        other = kind == expected[0] and _agree_on_both(got, expected[1:], case)
        return None if other else f"got {short(got)}, expected {expected[0]}"
    if not isinstance(got, tuple) or len(got) != len(expected):
        return f"got {short(got)}, expected {len(expected)} values: the prompt and the table"
    for name, mine, right in zip(("prompt", "table"), got, expected, strict=False):
        mine, problem = tensor_like(mine, right)
        problem = problem or close(mine, right)
        if problem:
            return f"{name}: {problem}"
    return None


def _prompts(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_matrices

    return compare_matrices(torch.as_tensor(got[0]), expected[0], "vector of the prompt", "channel")


def _largest(table: Tensor, keys: Tensor, n: int) -> Tensor:
    return keys.argsort(descending=True)[:n]


def _from(rows: Callable[[Tensor, Tensor, int], Tensor]) -> Answer:
    """A prompt initialised with other vectors: (table, keys, n) -> (P, D)."""
    return lambda table, keys, n, step: (rows(table, keys, n) - step, table)


def _at(ids: Callable[[Tensor, Tensor, int], Tensor]) -> Answer:
    """A prompt initialised with the rows of other tokens: (table, keys, n) -> (P,)."""
    return _from(lambda table, keys, n: table[ids(table, keys, n)])


def _moved(ids: Callable[[Tensor, Tensor, int], Tensor]) -> Answer:
    """The rows of the table themselves change."""

    def answer(table: Tensor, keys: Tensor, n: int, step: Tensor) -> tuple[Tensor, Tensor]:
        which = ids(table, keys, n)
        moved = table.index_copy(0, which, table[which] - step)
        return moved[which], moved

    return answer


def _first(table: Tensor, keys: Tensor, n: int) -> Tensor:
    return torch.arange(n)


def _drawn_again(table: Tensor, keys: Tensor, n: int) -> Tensor:
    """Each key names a token by itself, so that two may name the same."""
    return (keys * len(table)).long()[:n].clamp(max=len(table) - 1)


def _normal(table: Tensor, n: int) -> Tensor:
    return torch.randn(n, table.shape[1], generator=torch.Generator().manual_seed(0), dtype=table.dtype)


def _initial_cases(generator: torch.Generator) -> list[Case]:
    def drawn(vocabulary: int, n: int, width: int, size: float = 1.0) -> tuple[Any, ...]:
        """Short rows, as in a trained table, and a step of similar size."""
        table = size * (torch.randn(vocabulary, width, generator=generator) + 0.3)
        keys = torch.rand(vocabulary, generator=generator)
        return table, keys, n, size * torch.randn(n, width, generator=generator)

    by_hand = (
        torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 5.0], [4.0, 0.0]]),
        torch.tensor([0.1, 0.7, 0.9, 0.3]),
        2,
        torch.tensor([[1.0, 1.0], [0.5, 0.0]]),
    )
    table, keys, n, step = drawn(25, 6, 5)
    return [
        Case("4 tokens, by hand: tokens 2 and 1, minus the step", by_hand),
        Case("50 tokens, 8 vectors", drawn(50, 8, 6)),
        Case("400 tokens, 20 vectors, short rows", drawn(400, 20, 12, 0.05)),
        Case("a single vector", drawn(60, 1, 9)),
        Case("nearly the whole vocabulary, as many channels as tokens", drawn(18, 16, 18)),
        Case("not contiguous", (table.T.contiguous().T, keys, n, step)),
    ]


def _library(table: Tensor, keys: Tensor, n: int, step: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.compress.steps import initial_prompt

    return initial_prompt(table, keys, n, step)


INITIAL = Exercise(
    id="compress.initial",
    title="Where a prompt begins",
    difficulty=1,
    minutes=5,
    points=2,
    reference=_at(_largest),
    cases=_initial_cases,
    agree=_agree_on_both,
    picture=_prompts,
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("by topk, in place on a copy", lambda t, keys, n, s: (t[keys.topk(n).indices].sub_(s), t)),
        Variant("one after the other", lambda t, keys, n, s: _one_by_one(t, keys, n, s)),
        Variant("an embedding that is detached", lambda t, keys, n, s: _by_embedding(t, keys, n, s)),
    ),
    hints=(
        "Which function of PyTorch returns the indices of the P largest numbers, from the largest on?",
        "keys.topk(n).indices holds the tokens from the largest key on; table[ids] copies their rows.",
        "prompt = table[ids] − step. Return the table unchanged.",
    ),
)


def _one_by_one(table: Tensor, keys: Tensor, n: int, step: Tensor) -> tuple[list[Tensor], Tensor]:
    left, rows = keys.tolist(), []
    for vector in range(n):
        best = max(range(len(left)), key=left.__getitem__)
        rows.append(table[best] - step[vector])
        left[best] = -1.0
    return rows, table


def _by_embedding(table: Tensor, keys: Tensor, n: int, step: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.nn.functional.embedding(keys.topk(n).indices, table).detach().clone()
    rows -= step
    return rows, table
