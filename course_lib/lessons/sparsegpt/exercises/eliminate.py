"""The exercise sparsegpt.eliminate, "The inverse of what is left": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, eliminate_input, without_inputs


def _eliminate(inverse: Tensor, settled: Tensor) -> Tensor:
    for q in settled.sort(descending=True).values:  # from the last, so that no place moves
        inverse = eliminate_input(inverse, q)
    return inverse


def _cases(generator: torch.Generator) -> list[Case]:
    # H = [[2, 1, 0], [1, 2, 1], [0, 1, 3]]. Without its first two inputs H is [3], so what is left is 1/3.
    by_hand = torch.tensor([[5.0, -3.0, 1.0], [-3.0, 6.0, -2.0], [1.0, -2.0, 3.0]]) / 7

    def places(*inputs: int) -> Tensor:
        return torch.tensor(inputs, dtype=torch.int64)

    def drawn(n_inputs: int, *inputs: int) -> tuple[Tensor, Tensor]:
        return torch.linalg.inv(damped_gram(generator, n_inputs)), places(*inputs)

    return [
        Case("3 × 3 by hand, the first is settled", (by_hand, places(0))),
        Case("3 × 3 by hand, the first two: what is left is 1/3", (by_hand, places(0, 1))),
        Case("9 inputs, the first four, as in a sweep", drawn(9, 0, 1, 2, 3)),
        Case("8 inputs, three of them in no order", drawn(8, 2, 5, 1)),
        Case("6 inputs, none is settled", drawn(6)),
    ]


def _each(step: Callable[[Tensor, Tensor, int | Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """One step an input, on the whole matrix: (matrix so far, matrix at first, q) -> matrix. Struck out at the end."""

    def eliminated(inverse: Tensor, settled: Tensor) -> Tensor:
        left = inverse.clone()
        for q in settled:
            left = step(left, inverse, q)
        return without_inputs(left, settled)

    return eliminated


def _outer(matrix: Tensor, q: int | Tensor) -> Tensor:
    return torch.outer(matrix[:, q], matrix[q])


ELIMINATE = Exercise(
    id="sparsegpt.eliminate",
    title="The inverse of what is left",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_eliminate,
    cases=_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("from scratch", lambda inverse, settled: torch.linalg.inv(_hessian_left(inverse, settled))),
        Variant("one after the other, struck out at the end", _each(lambda left, first, q: _step(left, q))),
        Variant("all at once", lambda inverse, settled: _at_once(inverse, settled)),
    ),
    hints=(
        "By equation 5 one input is taken out. Take out the next from what that has left, and mind that the places "
        "move.",
        "Or all at once: with the settled inputs S and the others R, block elimination gives B_RR − B_RS B_SS⁻¹ B_SR.",
    ),
)


def _in_turn(inverse: Tensor, settled: Tensor) -> Tensor:
    for q in settled:
        inverse = eliminate_input(inverse, q)
    return inverse


def _step(left: Tensor, q: int | Tensor) -> Tensor:
    return left - _outer(left, q) / left[q, q]


def _only(inverse: Tensor, settled: Tensor, eliminated: Tensor) -> Tensor:
    for q in eliminated:
        inverse = _step(inverse, q)
    return without_inputs(inverse, settled)


def _with_zeros(inverse: Tensor, settled: Tensor) -> Tensor:
    for q in settled:
        inverse = _step(inverse, q)
    return inverse


def _hessian_left(inverse: Tensor, settled: Tensor) -> Tensor:
    return without_inputs(torch.linalg.inv(inverse), settled)


def _at_once(inverse: Tensor, settled: Tensor) -> Tensor:
    rest = [i for i in range(len(inverse)) if i not in settled]
    shared = torch.linalg.solve(inverse[settled][:, settled], inverse[settled][:, rest])
    return inverse[rest][:, rest] - inverse[rest][:, settled] @ shared
