"""The exercise compress.initial, "Where a prompt begins": its cases and its named mistakes.

Dimension key: V tokens of the vocabulary, P vectors of the prompt, D width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import as_tensor, close, short, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

Answer = Callable[[Tensor, Tensor, int, Tensor], Any]


def _kind(got: Any, case: Case, asked: Tensor) -> str | None:
    """What kind of wrong prompt or table this is, where another prompt is asked for; None where that cannot be said."""
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
    """Prompt and table. A mistake that is one of a kind gives the kind, and what would be right."""
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


def _largest(table: Tensor, lots: Tensor, n: int) -> Tensor:
    return lots.argsort(descending=True)[:n]


def _from(rows: Callable[[Tensor, Tensor, int], Tensor]) -> Answer:
    """A prompt that begins with other vectors: (table, lots, n) -> (P, D)."""
    return lambda table, lots, n, step: (rows(table, lots, n) - step, table)


def _at(ids: Callable[[Tensor, Tensor, int], Tensor]) -> Answer:
    """A prompt that begins with the rows of other tokens: (table, lots, n) -> (P,)."""
    return _from(lambda table, lots, n: table[ids(table, lots, n)])


def _moved(ids: Callable[[Tensor, Tensor, int], Tensor]) -> Answer:
    """The rows of the table themselves take the step."""

    def answer(table: Tensor, lots: Tensor, n: int, step: Tensor) -> tuple[Tensor, Tensor]:
        which = ids(table, lots, n)
        moved = table.index_copy(0, which, table[which] - step)
        return moved[which], moved

    return answer


def _first(table: Tensor, lots: Tensor, n: int) -> Tensor:
    return torch.arange(n)


def _drawn_again(table: Tensor, lots: Tensor, n: int) -> Tensor:
    """Each lot names a token by itself, so that two may name the same."""
    return (lots * len(table)).long()[:n].clamp(max=len(table) - 1)


def _normal(table: Tensor, n: int) -> Tensor:
    return torch.randn(n, table.shape[1], generator=torch.Generator().manual_seed(0), dtype=table.dtype)


def _initial_cases(generator: torch.Generator) -> list[Case]:
    def drawn(vocabulary: int, n: int, width: int, size: float = 1.0) -> tuple[Any, ...]:
        """Short rows, as those of a trained table, and a step that is visible beside them."""
        table = size * (torch.randn(vocabulary, width, generator=generator) + 0.3)
        lots = torch.rand(vocabulary, generator=generator)
        return table, lots, n, size * torch.randn(n, width, generator=generator)

    by_hand = (
        torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 5.0], [4.0, 0.0]]),
        torch.tensor([0.1, 0.7, 0.9, 0.3]),
        2,
        torch.tensor([[1.0, 1.0], [0.5, 0.0]]),
    )
    table, lots, n, step = drawn(25, 6, 5)
    return [
        Case("4 tokens, by hand: tokens 2 and 1, less the step", by_hand),
        Case("50 tokens, 8 vectors", drawn(50, 8, 6)),
        Case("400 tokens, 20 vectors, short rows", drawn(400, 20, 12, 0.05)),
        Case("a single vector", drawn(60, 1, 9)),
        Case("nearly the whole vocabulary, as many channels as tokens", drawn(18, 16, 18)),
        Case("not contiguous", (table.T.contiguous().T, lots, n, step)),
    ]


def _library(table: Tensor, lots: Tensor, n: int, step: Tensor) -> tuple[Tensor, Tensor]:
    from course_lib.lessons.compress.steps.initial import begun

    return begun(table, lots, n, step)


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
    mistakes=(
        Mistake(
            "the table moves too",
            "The step went into the table as well: the prompt is a view of its rows. Copy the rows before anything "
            "learns, or training the prompt rewrites tokens of the model.",
            _moved(_largest),
            also=(
                _moved(_first),
                lambda t, lots, n, s: (_at(_largest)(t, lots, n, s)[0], _moved(_largest)(t, lots, n, s)[1]),
            ),
        ),
        Mistake(
            "the first ids",
            "These are the first P rows of the vocabulary, as in the published code. There stand special tokens, rare "
            "bytes and whatever was learned first: take those that the lots name.",
            _at(_first),
            also=(_at(lambda t, lots, n: torch.arange(1, n + 1)),),
        ),
        Mistake(
            "the last ids",
            "These are the last P rows of the vocabulary. Take those that the lots name.",
            _at(lambda t, lots, n: torch.arange(len(t) - n, len(t))),
        ),
        Mistake(
            "smallest lots",
            "The rows of the smallest lots were taken. The largest count.",
            _at(lambda t, lots, n: lots.argsort()[:n]),
        ),
        Mistake(
            "in another order",
            "The right rows, but not from the largest lot to the smallest: a mask, or a sorted index, gives them in "
            "the order of the table.",
            _at(lambda t, lots, n: _largest(t, lots, n).sort().values),
            also=(_at(lambda t, lots, n: _largest(t, lots, n).flip(0)),),
        ),
        Mistake(
            "step forgotten",
            "These are rows of the table as they were. The first step of the training is to be subtracted from them.",
            lambda t, lots, n, s: (t[_largest(t, lots, n)], t),
            also=(
                lambda t, lots, n, s: (t[:n], t),
                lambda *given: ("rows without the step", *_at(_largest)(*given)),
            ),
        ),
        Mistake(
            "step added",
            "The step was added. It is what is taken away.",
            lambda t, lots, n, s: (t[_largest(t, lots, n)] + s, t),
        ),
        Mistake(
            "steps in another order",
            "The rows are the right ones, but each lost the step of another vector, or all lost the mean of the steps. "
            "Row i of `step` is subtracted from vector i.",
            lambda t, lots, n, s: (t[_largest(t, lots, n)] - s.flip(0), t),
            also=(
                lambda t, lots, n, s: (t[_largest(t, lots, n)] - s.mean(dim=0), t),
                lambda t, lots, n, s: (t[_largest(t, lots, n)] - s[:1], t),
            ),
        ),
        Mistake(
            "the table in the prompt's place",
            "The prompt stayed and the table moved. It is the other way round.",
            lambda t, lots, n, s: (t[_largest(t, lots, n)], _moved(_largest)(t, lots, n, s)[1]),
        ),
        Mistake(
            "mean of the vocabulary",
            "All vectors begin with the mean of the table. They would all get the same slope in the same place, and "
            "no token has that vector.",
            _from(lambda t, lots, n: t.mean(dim=0).expand(n, -1)),
        ),
        Mistake(
            "rows made longer or shorter",
            "The rows were weighed with their lots, or brought to length one. A row of the vocabulary is taken as it "
            "is.",
            _from(lambda t, lots, n: t[_largest(t, lots, n)] * lots[_largest(t, lots, n)][:, None]),
            also=(
                _from(lambda t, lots, n: torch.nn.functional.normalize(t[_largest(t, lots, n)], dim=1)),
                _from(lambda t, lots, n: (t * lots[:, None])[:n]),
            ),
        ),
        Mistake(
            "with repetition",
            "A token comes twice. Two equal vectors are one vector less to begin with: draw without putting back, "
            "which is what the largest lots do.",
            _at(_drawn_again),
            also=(
                _from(lambda t, lots, n: t[lots.argmax()].expand(n, -1)),
                lambda *given: ("rows that repeat", *_at(_largest)(*given)),
            ),
        ),
        Mistake(
            "rows of other tokens",
            "These are rows of the table, each once, but not those of the P largest lots.",
            _at(lambda t, lots, n: torch.randperm(len(t), generator=torch.Generator().manual_seed(1))[:n]),
            also=(lambda *given: ("other rows", *_at(_largest)(*given)),),
        ),
        Mistake(
            "no rows of the table",
            "With the step added back, these vectors are no rows of the table. Either the prompt began with other "
            "vectors, for example random ones, or something else than `step` was subtracted.",
            _from(lambda t, lots, n: _normal(t, n)),
            also=(
                _from(lambda t, lots, n: t.std() * _normal(t, n)),
                _from(lambda t, lots, n: torch.zeros_like(t[:n])),
                lambda *given: ("no rows of the table", *_at(_largest)(*given)),
            ),
        ),
        Mistake(
            "another table",
            "The prompt is right, and the table is not as it came. The model goes on using all of its rows: return it "
            "unchanged, whole and in its order.",
            lambda t, lots, n, s: (_at(_largest)(t, lots, n, s)[0], t.index_fill(0, _largest(t, lots, n), 0.0)),
            also=(
                lambda t, lots, n, s: (_at(_largest)(t, lots, n, s)[0], t[lots.argsort(descending=True)[n:]]),
                lambda t, lots, n, s: (_at(_largest)(t, lots, n, s)[0], t[lots.argsort(descending=True)]),
                lambda *given: ("another table", *_at(_largest)(*given)),
            ),
        ),
        Mistake(
            "tokens, not vectors",
            "These are the numbers of the tokens. Their rows of the table are asked for.",
            lambda t, lots, n, s: (_largest(t, lots, n), t),
            also=(lambda t, lots, n, s: _largest(t, lots, n),),
        ),
        Mistake(
            "one of the two, or the other way round",
            "Two values are asked for: the prompt after the step, and then the table.",
            lambda *given: _at(_largest)(*given)[0],
            also=(lambda *given: _at(_largest)(*given)[::-1],),
        ),
    ),
    also_right=(
        Variant("by topk, in place on a copy", lambda t, lots, n, s: (t[lots.topk(n).indices].sub_(s), t)),
        Variant("one after the other", lambda t, lots, n, s: _one_by_one(t, lots, n, s)),
        Variant("an embedding that is detached", lambda t, lots, n, s: _by_embedding(t, lots, n, s)),
    ),
    hints=(
        "Which tokens have the largest lots, and in which order? The rows of these tokens are what the prompt begins "
        "with.",
        "lots.topk(n).indices has the tokens from the largest lot on; table[ids] copies their rows.",
        "prompt = table[ids] − step. The table is returned as it came.",
    ),
)


def _one_by_one(table: Tensor, lots: Tensor, n: int, step: Tensor) -> tuple[list[Tensor], Tensor]:
    left, rows = lots.tolist(), []
    for vector in range(n):
        best = max(range(len(left)), key=left.__getitem__)
        rows.append(table[best] - step[vector])
        left[best] = -1.0
    return rows, table


def _by_embedding(table: Tensor, lots: Tensor, n: int, step: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.nn.functional.embedding(lots.topk(n).indices, table).detach().clone()
    rows -= step
    return rows, table
