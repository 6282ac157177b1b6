"""The exercise sparse_attention.smallest_set, "As few as hold a fraction": its cases and its named mistakes.

Dimension key: R rows, N entries.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Trivial, Variant
from course_lib.checking.mistakes import read_mistakes

Answer = Callable[[Tensor, float], Any]
Count = Callable[[Tensor, float], Tensor]  # (mass sorted down, share) -> how many entries of each row are chosen


def _agree(got: Any, expected: Any, case: Case) -> str | None:
    """The same number of entries, and the same sum: which of equals stay is left open."""
    if not isinstance(expected, Tensor) or expected.dtype != torch.bool:
        return close(got, expected)
    mine, problem = tensor_like(got, expected)
    if problem or not ((mine == 0) | (mine == 1)).all():
        return problem or "expected True for chosen entries and False for the rest"
    mass, share = case.arguments
    for row, (a, b) in enumerate(zip(mine.bool(), expected, strict=True)):
        held, most = mass[row][a].double().sum(), mass[row][b].double().sum()
        if int(a.sum()) != int(b.sum()):
            whole = mass[row].double().sum()
            return (
                f"row {row}: {int(a.sum())} entries are chosen and hold {held / whole:.3f} of the row; expected "
                f"{int(b.sum())} entries, which hold {most / whole:.3f}, for a fraction of {share}"
            )
        if not torch.isclose(held, most, rtol=1e-6, atol=0):
            return f"row {row}: the chosen entries sum to {held:.4g}; expected the largest entries, {most:.4g}"
    return None


def _picture(case: Case, got: Any, expected: Any) -> "matplotlib.figure.Figure":
    from course_lib.lessons.common.answers import compare_chosen

    mine = torch.as_tensor(got).bool()
    row = int((mine != expected).any(dim=1).int().argmax())
    return compare_chosen(
        case.arguments[0][row], mine[row].nonzero(), expected[row].nonzero(), f"entry of row {row}", "mass"
    )


def _enough(ordered: Tensor, share: float) -> Tensor:
    reached = ordered.double().cumsum(dim=1)
    return (reached < share * reached[:, -1:]).sum(dim=1, keepdim=True) + 1


def _enough_of(mass: Tensor, share: float) -> Tensor:
    return _enough(mass.sort(dim=1, descending=True).values, share)


def _by(count: Count, largest: bool = True) -> Answer:
    """As many of each row as `count` says, the largest or the smallest first."""

    def answer(mass: Tensor, share: float) -> Tensor:
        ordered, order = mass.sort(dim=1, descending=largest, stable=True)
        n = count(ordered, share)
        keep = torch.arange(mass.shape[1]) < n
        return torch.zeros_like(mass, dtype=torch.bool).scatter(1, order, keep)

    return answer


def _more(by: int) -> Count:
    return lambda ordered, share: (_enough(ordered, share) + by).clamp(min=0, max=ordered.shape[1])


def _share_of_entries(round_: Callable[[float], int]) -> Count:
    return lambda ordered, share: torch.full((len(ordered), 1), round_(share * ordered.shape[1]))


def _not_divided(ordered: Tensor, share: float) -> Tensor:
    """As if every row summed to one."""
    return ((ordered.double().cumsum(dim=1) < share).sum(dim=1, keepdim=True) + 1).clamp(max=ordered.shape[1])


def _in_order(mass: Tensor, share: float) -> Tensor:
    """The first of a row until it is enough, not the largest."""
    return torch.arange(mass.shape[1]) < _enough(mass, share)


def _together(mass: Tensor, share: float) -> Tensor:
    return _by(_enough)(mass.reshape(1, -1), share).reshape(mass.shape)


def _not_put_back(mass: Tensor, share: float) -> Tensor:
    """The mask in the order of the sorted row."""
    return torch.arange(mass.shape[1]) < _enough(mass.sort(dim=1, descending=True).values, share)


def _ranks_for_places(mass: Tensor, share: float) -> Tensor:
    """Where the order is taken for the rank."""
    return mass.argsort(dim=1, descending=True, stable=True) < _enough(mass.sort(1, descending=True).values, share)


def _most_of_any(mass: Tensor, share: float) -> Tensor:
    """So many for each row as one of them needs."""
    return _by(lambda ordered, s: _enough(ordered, s).max().expand(len(ordered), 1))(mass, share)


def _above(mass: Tensor, share: float) -> Tensor:
    return mass >= share * mass.amax(dim=1, keepdim=True)


def _set_cases(generator: torch.Generator) -> list[Case]:
    def drawn(n_rows: int, n: int, sharp: float = 2.0) -> Tensor:
        """Rows of sums between 0.3 and 3, flat and peaked."""
        peak = sharp * (0.4 + torch.rand(n_rows, 1, generator=generator))
        rows = (peak * torch.randn(n_rows, n, generator=generator)).exp()
        return rows / rows.sum(dim=1, keepdim=True) * (0.3 + 2.7 * torch.rand(n_rows, 1, generator=generator))

    by_hand = torch.tensor([[0.125, 0.5, 0.125, 0.25], [0.0, 0.0, 4.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    normal = drawn(5, 12)
    peaked = torch.cat([torch.full((3, 1), 0.0), drawn(3, 9)], dim=1)
    peaked[0, 4] = 50.0
    return [
        Case("3 rows by hand, three quarters: 2, 1 and 3 entries", (by_hand, 0.75)),
        Case("5 rows that sum to 1, 90 %", (normal / normal.sum(dim=1, keepdim=True), 0.9)),
        Case("6 rows of several sums, 60 %", (drawn(6, 15), 0.6)),
        Case("one row is a single peak, 95 %", (peaked, 0.95)),
        Case("as many rows as entries, half", (drawn(8, 8, 4.0), 0.5)),
        Case("many entries, 99 %", (drawn(3, 200), 0.99)),
        Case("not contiguous, a tenth", (drawn(9, 6).T.contiguous().T, 0.1)),
    ]


def _library(mass: Tensor, share: float) -> Tensor:
    from course_lib.attention.prefill.cumulative import smallest_set

    return smallest_set(mass, share)


SMALLEST_SET = Exercise(
    id="sparse_attention.smallest_set",
    title="As few as hold a fraction",
    difficulty=3,
    minutes=9,
    points=3,
    reference=_by(_enough),
    cases=_set_cases,
    agree=_agree,
    picture=_picture,
    library=_library,
    trivial=(Trivial("keeping the largest alone", _by(lambda ordered, share: torch.ones(len(ordered), 1))),),
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("row by row", lambda m, s: _in_loops(m, s)),
        Variant(
            "what was reached before each",
            _by(lambda o, s: (o.double().cumsum(1) - o.double() < s * o.double().sum(1, keepdim=True)).sum(1, True)),
        ),
        Variant("zeros and ones", lambda m, s: _by(_enough)(m, s).long()),
        Variant("of equals the last", lambda m, s: _by(_enough)(m.flip(1), s).flip(1)),
    ),
    hints=(
        "Sort each row downwards and add up. How many entries are needed until the sum is at least this fraction of "
        "the whole row?",
        "Choose an entry if the sum of those before it in this order is below the fraction. That is never one too few.",
        "sort gives the order; scatter along it puts True back in the places of the entries.",
    ),
)


def _in_loops(mass: Tensor, share: float) -> Tensor:
    keep = torch.zeros_like(mass, dtype=torch.bool)
    for row, values in enumerate(mass.double().tolist()):
        held = 0.0
        for at in sorted(range(len(values)), key=lambda i: -values[i]):
            if held >= share * sum(values):
                break
            keep[row, at], held = True, held + values[at]
    return keep
