"""The exercise sparsegpt.eliminate, "The inverse of what is left": its cases and its named mistakes.

Dimension key: I inputs of a layer.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
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
    mistakes=(
        Mistake(
            "rows and columns struck out",
            "The inverse of a part is not a part of the inverse. Before striking out, take away what the settled "
            "inputs explain.",
            without_inputs,
        ),
        Mistake(
            "places not moved",
            "After the first elimination the matrix is smaller, and what stood in place 3 stands in place 2. Strike "
            "out at the end, or begin with the last of the settled inputs.",
            lambda inverse, settled: _in_turn(inverse, settled),
            also=(lambda inverse, settled: _in_turn(inverse, settled.sort().values),),
        ),
        Mistake(
            "each from the first inverse",
            "Every step took its row and pivot from the inverse that was given. What two settled inputs share is taken "
            "away twice so: the second step needs the matrix that the first has left.",
            _each(lambda left, first, q: left - _outer(first, q) / first[q, q]),
        ),
        Mistake(
            "pivots of the first inverse",
            "The rows are those of the matrix so far, and the pivots those of the inverse that was given. Both change "
            "with each step.",
            _each(lambda left, first, q: left - _outer(left, q) / first[q, q]),
        ),
        Mistake(
            "added instead of taken away",
            "The sign is wrong: with fewer inputs to make up for an error the diagonal of the inverse must shrink.",
            _each(lambda left, first, q: left + _outer(left, q) / left[q, q]),
            also=(lambda inverse, settled: 2 * without_inputs(inverse, settled) - _eliminate(inverse, settled),),
        ),
        Mistake(
            "not divided by the pivot",
            "Gaussian elimination divides by the pivot; otherwise column q does not become zero.",
            _each(lambda left, first, q: left - _outer(left, q)),
            also=(_each(lambda left, first, q: left - _outer(left, q) * left[q, q]),),
        ),
        Mistake(
            "divided by the whole diagonal",
            "Column k was divided by the k-th entry of the diagonal. One pivot serves all: that of input q.",
            _each(lambda left, first, q: left - _outer(left, q) / left.diagonal()),
            also=(_each(lambda left, first, q: left - _outer(left, q) / left.diagonal()[:, None]),),
        ),
        Mistake(
            "no outer product",
            "Row and column q were multiplied entry by entry. Entry (i, k) loses the product of entries (i, q) and "
            "(q, k): an outer product.",
            _each(lambda left, first, q: left - left[:, q] * left[q] / left[q, q]),
        ),
        Mistake(
            "only one of them",
            "One input is eliminated, and the others are only struck out. Is there a return inside the loop?",
            lambda inverse, settled: _only(inverse, settled, settled[:1]),
            also=(lambda inverse, settled: _only(inverse, settled, settled[-1:]),),
        ),
        Mistake(
            "the settled ones returned",
            "This is the part of the matrix that belongs to the settled inputs. Asked for are those that are left.",
            lambda inverse, settled: torch.linalg.inv(torch.linalg.inv(inverse)[settled][:, settled]),
            also=(lambda inverse, settled: inverse[settled][:, settled],),
        ),
        Mistake(
            "inverted once too often",
            "This is H without the settled inputs, or the inverse of a part of H⁻¹. You have H⁻¹; asked for is the "
            "inverse of a part of H.",
            lambda inverse, settled: without_inputs(torch.linalg.inv(inverse), settled),
            also=(lambda inverse, settled: torch.linalg.inv(without_inputs(inverse, settled)),),
        ),
        Mistake(
            "zeros left in",
            "Rows and columns of settled inputs are zero now, but still there. Return the matrix without them.",
            lambda inverse, settled: _with_zeros(inverse, settled),
        ),
    ),
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
