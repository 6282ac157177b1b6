"""The exercise sparsegpt.layer_error, "The error of a layer": its cases and its named mistakes."""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.sparsegpt.exercises.common import correlated_inputs


def _layer_error(weight: Tensor, pruned: Tensor, gram: Tensor) -> Tensor:
    change = weight - pruned
    return (change @ gram * change).sum()


def _layer_error_cases(generator: torch.Generator) -> list[Case]:
    # change (1, -0.5): (1, -0.5) G = (1.5, -0.5), so the error is 1.75; the diagonal alone would say 2.75
    by_hand = (torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 2.5]]), torch.tensor([[2.0, 1.0], [1.0, 3.0]]))

    # changes (1, 1) and (0, -1): 4 · 2² and 4 · 1²
    equal = (torch.tensor([[1.0, 2.0], [2.0, 0.0]]), torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.full((2, 2), 4.0))

    def drawn(rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = correlated_inputs(generator, 40, columns), randn(generator, rows, columns)
        return weight, weight * (torch.rand(rows, columns, generator=generator) < 0.5), x.T @ x

    weight, _, gram = drawn(3, 5)
    return [
        Case("one output, two inputs, by hand: 1.75", by_hand),
        Case("7 outputs, 12 inputs, half zero", drawn(7, 12)),
        Case("a square layer", drawn(9, 9)),
        Case("nothing changed", (weight, weight.clone(), gram)),
        Case("two inputs that are always equal, so that G has no inverse, by hand: 20", equal),
    ]


def _library(weight: Tensor, pruned: Tensor, gram: Tensor) -> Tensor:
    from course_lib.lessons.sparsegpt.measure import output_change

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
    mistakes=(
        Mistake(
            "the diagonal alone",
            "Only G_jj is used, as if no two inputs went together. Errors of two inputs can cancel: take all of G.",
            lambda w, p, g: ((w - p).square() * g.diagonal()).sum(),
        ),
        Mistake(
            "size of the new output",
            "This is the squared size of what the pruned layer gives. The error is that of the change W − Ŵ.",
            lambda w, p, g: (p @ g * p).sum(),
        ),
        Mistake(
            "difference of two sizes",
            "‖XWᵀ‖² − ‖XŴᵀ‖² is not ‖XWᵀ − XŴᵀ‖²: subtract the weights first, then square.",
            lambda w, p, g: (w @ g * w).sum() - (p @ g * p).sum(),
        ),
        Mistake(
            "not squared",
            "This is the norm of the error. The objective is its square.",
            lambda w, p, g: _layer_error(w, p, g).sqrt(),
        ),
        Mistake(
            "mean instead of sum",
            "Sum over the outputs; a mean makes wide and narrow layers look alike.",
            lambda w, p, g: (((w - p) @ g) * (w - p)).sum(1).mean(),
            also=(lambda w, p, g: (((w - p) @ g) * (w - p)).mean(),),
        ),
        Mistake(
            "G on both sides",
            "This is ‖ΔG‖². G = XᵀX already holds X twice: it stands once between Δ and Δᵀ.",
            lambda w, p, g: ((w - p) @ g).square().sum(),
        ),
        Mistake(
            "one output times another",
            "All entries of ΔGΔᵀ are added. Only its diagonal compares an output with itself: take the trace.",
            lambda w, p, g: ((w - p) @ g @ (w - p).T).sum(),
        ),
        Mistake(
            "one number for each output",
            "This is the error output by output. The layer's error is their sum.",
            lambda w, p, g: ((w - p) @ g * (w - p)).sum(1),
        ),
        Mistake(
            "not summed",
            "The error of a layer is one number: add up change · G · change over all outputs and inputs.",
            lambda w, p, g: (w - p) @ g @ (w - p).T,
            also=(lambda w, p, g: (w - p) @ g * (w - p),),
        ),
        Mistake(
            "multiplied by G, not by the change again",
            "ΔG is summed here. The error is quadratic in the change: ΔG is still to be multiplied by Δ.",
            lambda w, p, g: ((w - p) @ g).sum(),
        ),
        Mistake(
            "squared before G",
            "The changes were squared and then multiplied by G. Squares have lost the signs by which the errors of "
            "two inputs cancel.",
            lambda w, p, g: ((w - p).square() @ g).sum(),
        ),
        Mistake(
            "as a share of the output",
            "This is divided by the squared size of the dense output. The text asks for the error itself.",
            lambda w, p, g: _layer_error(w, p, g) / _layer_error(w, 0 * w, g),
        ),
        Mistake(
            "half of it",
            "The ½ belongs to the cost of a deletion by Taylor's formula. The objective here has none.",
            lambda w, p, g: _layer_error(w, p, g) / 2,
        ),
        Mistake(
            "the change alone",
            "The inputs are not used: this is the squared change of the weights, not of the outputs.",
            lambda w, p, g: (w - p).square().sum(),
        ),
    ),
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
