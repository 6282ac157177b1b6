"""The exercise sparsegpt.eliminate, "The inverse without some inputs": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.sparsegpt.exercises.common import damped_gram, eliminate_input, without_inputs


def _eliminate(inverse: Tensor, frozen: Tensor) -> Tensor:
    for q in frozen.sort(descending=True).values:  # starting with the last, so that no position changes
        inverse = eliminate_input(inverse, q)
    return inverse


def _cases(generator: torch.Generator) -> list[Case]:
    # H = [[2, 1, 0], [1, 2, 1], [0, 1, 3]]. Without its first two inputs H is [3], so the result is 1/3.
    by_hand = torch.tensor([[5.0, -3.0, 1.0], [-3.0, 6.0, -2.0], [1.0, -2.0, 3.0]]) / 7

    def positions(*inputs: int) -> Tensor:
        return torch.tensor(inputs, dtype=torch.int64)

    def random_case(n_inputs: int, *inputs: int) -> tuple[Tensor, Tensor]:
        return torch.linalg.inv(damped_gram(generator, n_inputs)), positions(*inputs)

    return [
        Case("3 × 3 by hand, the first is frozen", (by_hand, positions(0))),
        Case("3 × 3 by hand, the first two are frozen: 1/3", (by_hand, positions(0, 1))),
        Case("9 inputs, the first four, as in a sweep", random_case(9, 0, 1, 2, 3)),
        Case("8 inputs, three of them in any order", random_case(8, 2, 5, 1)),
        Case("6 inputs, none is frozen", random_case(6)),
    ]


def _each(step: Callable[[Tensor, Tensor, int | Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """One step per input: (current matrix, first matrix, q) -> matrix. Rows and columns are deleted at the end."""

    def eliminated(inverse: Tensor, frozen: Tensor) -> Tensor:
        left = inverse.clone()
        for q in frozen:
            left = step(left, inverse, q)
        return without_inputs(left, frozen)

    return eliminated


def _outer(matrix: Tensor, q: int | Tensor) -> Tensor:
    return torch.outer(matrix[:, q], matrix[q])


ELIMINATE = Exercise(
    id="sparsegpt.eliminate",
    title="The inverse without some inputs",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_eliminate,
    cases=_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("from scratch", lambda inverse, frozen: torch.linalg.inv(_hessian_left(inverse, frozen))),
        Variant("one after the other, deleted at the end", _each(lambda left, first, q: _step(left, q))),
        Variant("all at once", lambda inverse, frozen: _at_once(inverse, frozen)),
    ),
    hints=(
        "Equation 5 eliminates one input. Apply it to its own result for the next input, and note that positions "
        "change.",
        "Or all in one step: with the frozen inputs F and the others R, elimination gives B_RR − B_RF B_FF⁻¹ B_FR.",
    ),
)


def _in_turn(inverse: Tensor, frozen: Tensor) -> Tensor:
    for q in frozen:
        inverse = eliminate_input(inverse, q)
    return inverse


def _step(left: Tensor, q: int | Tensor) -> Tensor:
    return left - _outer(left, q) / left[q, q]


def _only(inverse: Tensor, frozen: Tensor, eliminated: Tensor) -> Tensor:
    for q in eliminated:
        inverse = _step(inverse, q)
    return without_inputs(inverse, frozen)


def _with_zeros(inverse: Tensor, frozen: Tensor) -> Tensor:
    for q in frozen:
        inverse = _step(inverse, q)
    return inverse


def _hessian_left(inverse: Tensor, frozen: Tensor) -> Tensor:
    return without_inputs(torch.linalg.inv(inverse), frozen)


def _at_once(inverse: Tensor, frozen: Tensor) -> Tensor:
    rest = [i for i in range(len(inverse)) if i not in frozen]
    shared = torch.linalg.solve(inverse[frozen][:, frozen], inverse[frozen][:, rest])
    return inverse[rest][:, rest] - inverse[rest][:, frozen] @ shared
