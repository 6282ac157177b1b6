"""The exercise sparsegpt.layer_error, "The error of a layer": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.sparsegpt.exercises.common import correlated_inputs


def _layer_error(weight: Tensor, pruned: Tensor, gram: Tensor) -> Tensor:
    change = weight - pruned
    return (change @ gram * change).sum()


def _layer_error_cases(generator: torch.Generator) -> list[Case]:
    # change (1, -0.5): (1, -0.5) G = (1.5, -0.5), so the error is 1.75; the diagonal alone would give 2.75
    by_hand = (torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 2.5]]), torch.tensor([[2.0, 1.0], [1.0, 3.0]]))

    # changes (1, 1) and (0, -1): 4 · 2² and 4 · 1²
    equal = (torch.tensor([[1.0, 2.0], [2.0, 0.0]]), torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.full((2, 2), 4.0))

    def random_case(rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = correlated_inputs(generator, 40, columns), randn(generator, rows, columns)
        return weight, weight * (torch.rand(rows, columns, generator=generator) < 0.5), x.T @ x

    weight, _, gram = random_case(3, 5)
    return [
        Case("one output, two inputs, by hand: 1.75", by_hand),
        Case("7 outputs, 12 inputs, half zero", random_case(7, 12)),
        Case("a square layer", random_case(9, 9)),
        Case("nothing changed", (weight, weight.clone(), gram)),
        Case("two inputs that are always equal, so that G has no inverse, by hand: 20", equal),
    ]


def _library(weight: Tensor, pruned: Tensor, gram: Tensor) -> Tensor:
    from course_lib.lessons.sparsegpt.experiments.sparsegpt_layers import output_change

    return output_change(weight, pruned, gram)


LAYER_ERROR = Exercise(
    id="sparsegpt.layer_error",
    title="The error of a layer",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_layer_error,
    library=_library,
    cases=_layer_error_cases,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("a trace", lambda w, p, g: ((w - p) @ g @ (w - p).T).trace()),
        Variant(
            "einsum, in float64", lambda w, p, g: torch.einsum("oi,ij,oj->", *(x.double() for x in (w - p, g, w - p)))
        ),
        Variant("row by row", lambda w, p, g: sum(float(d @ g @ d) for d in w - p)),
    ),
    hints=(
        "‖XΔᵀ‖² with Δ = W − Ŵ. Write the squared norm of one output as d Xᵀ X dᵀ, for d a row of Δ.",
        "XᵀX is the Gram matrix. Sum d G dᵀ over the rows d: (change @ gram * change).sum().",
    ),
)
