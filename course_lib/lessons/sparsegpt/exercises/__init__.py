"""Lesson 03: the exercises on SparseGPT, their cases and their named mistakes.

Dimension key: O outputs of a layer, I its inputs, N tokens, B columns of a block.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.checking.compare import close, tensor_like
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant
from course_lib.lessons.common.masks import compare_masks

LESSON = "03 SparseGPT"


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _inputs(generator: torch.Generator, n_tokens: int, n_inputs: int) -> Tensor:
    """Inputs that go together in part and are of different size, as those of a language model."""
    mixed = _randn(generator, n_tokens, n_inputs) @ (0.5 * _randn(generator, n_inputs, n_inputs) / n_inputs**0.5)
    return (mixed + _randn(generator, n_tokens, n_inputs)) * (0.3 + torch.rand(n_inputs, generator=generator))


def _damped(generator: torch.Generator, n_inputs: int) -> Tensor:
    x = _inputs(generator, 3 * n_inputs, n_inputs)
    return x.T @ x + 0.01 * x.square().sum(0).mean() * torch.eye(n_inputs)


# sparsegpt.layer_error -------------------------------------------------------------------------------------------


def _layer_error(weight: Tensor, pruned: Tensor, gram: Tensor) -> Tensor:
    change = weight - pruned
    return (change @ gram * change).sum()


def _layer_error_cases(generator: torch.Generator) -> list[Case]:
    # change (1, -0.5): (1, -0.5) G = (1.5, -0.5), so the error is 1.75; the diagonal alone would say 2.75
    by_hand = (torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 2.5]]), torch.tensor([[2.0, 1.0], [1.0, 3.0]]))

    def drawn(rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = _inputs(generator, 40, columns), _randn(generator, rows, columns)
        return weight, weight * (torch.rand(rows, columns, generator=generator) < 0.5), x.T @ x

    weight, _, gram = drawn(3, 5)
    return [
        Case("one output, two inputs, by hand: 1.75", by_hand),
        Case("7 outputs, 12 inputs, half zero", drawn(7, 12)),
        Case("a square layer", drawn(9, 9)),
        Case("nothing changed", (weight, weight.clone(), gram)),
    ]


LAYER_ERROR = Exercise(
    id="sparsegpt.layer_error",
    title="The error of a layer",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_layer_error,
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


# sparsegpt.hessian -----------------------------------------------------------------------------------------------


def _hessian(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    diagonal = gram.diagonal()
    return gram + torch.diag(damping * diagonal.mean() + (diagonal == 0).to(gram.dtype))


def _hessian_cases(generator: torch.Generator) -> list[Case]:
    # X^T X = [[5, 4], [4, 8]], mean diagonal 6.5
    by_hand = torch.tensor([[1.0, 2.0], [2.0, 1.0], [0.0, -(3.0**0.5)]])
    dead = _inputs(generator, 20, 6)
    dead[:, 2] = 0
    return [
        Case("three tokens, two inputs, damping 0.1", (by_hand, 0.1)),
        Case("50 tokens, 8 inputs", (_inputs(generator, 50, 8), 0.01)),
        Case("an input that is always zero", (dead, 0.01)),
        Case("as many tokens as inputs", (_inputs(generator, 6, 6), 0.05)),
        Case("fewer tokens than inputs", (_inputs(generator, 4, 7), 0.01)),
    ]


HESSIAN = Exercise(
    id="sparsegpt.hessian",
    title="A Hessian that can be inverted",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_hessian,
    cases=_hessian_cases,
    mistakes=(
        Mistake(
            "tokens instead of inputs",
            "X Xᵀ compares tokens. The Hessian has a row for each input: Xᵀ X.",
            lambda x, d: _hessian(x.T, d),
        ),
        Mistake(
            "damping not scaled",
            "λ is a share of the mean diagonal. Taken as it is, it drowns a quiet layer and is lost in a loud one.",
            lambda x, d: x.T @ x + torch.diag(d + (x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "damping on every entry",
            "The damping was added to the whole matrix. It belongs on the diagonal: times torch.eye(I).",
            lambda x, d: x.T @ x + d * x.square().sum(0).mean() + torch.diag((x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "mean over the whole matrix",
            "The mean runs over the diagonal, the squared sizes of the inputs; the other entries may be negative.",
            lambda x, d: x.T @ x + torch.diag(d * (x.T @ x).mean() + (x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "silent inputs forgotten",
            "An input that is always zero needs a 1 on the diagonal: without it the undamped matrix has no inverse.",
            lambda x, d: x.T @ x + d * x.square().sum(0).mean() * torch.eye(x.shape[1]),
        ),
        Mistake(
            "silent inputs before the mean",
            "The 1 of silent inputs was counted in the mean of the diagonal, as in the public code; the text asks for "
            "the mean of XᵀX alone.",
            lambda x, d: _silent_first(x, d),
        ),
        Mistake(
            "silent inputs set to 1",
            "A silent input gets 1 more, on top of the damping that every input gets.",
            lambda x, d: _silent_last(x, d),
        ),
        Mistake(
            "twice the Gram matrix",
            "The 2 of the second derivative was kept. It changes no order and no update; the text asks for XᵀX.",
            lambda x, d: (
                2 * (x.T @ x) + torch.diag(2 * d * x.square().sum(0).mean() + (x.square().sum(0) == 0).float())
            ),
            also=(lambda x, d: _hessian(2**0.5 * x, d),),
        ),
        Mistake(
            "no damping",
            "With fewer tokens than inputs XᵀX is singular. Add λ times the mean of its diagonal.",
            lambda x, d: x.T @ x + torch.diag((x.square().sum(0) == 0).float()),
        ),
        Mistake(
            "averaged over tokens",
            "This is XᵀX / N. The text asks for the sum; with a mean, the 1 of silent inputs counts N times as much.",
            lambda x, d: (
                x.T @ x / len(x) + torch.diag(d * x.square().sum(0).mean() / len(x) + (x.square().sum(0) == 0).float())
            ),
        ),
    ),
    also_right=(
        Variant("in place, on the diagonal", lambda x, d: _hessian_in_place(x, d)),
        Variant("float64", lambda x, d: _hessian(x.double(), d)),
        Variant("token by token", lambda x, d: _hessian_by_token(x, d)),
    ),
    hints=(
        "Three steps: XᵀX; λ times the mean of its diagonal on the diagonal; 1 more where the diagonal was 0.",
        "gram.diagonal() is a view: gram.diagonal().add_(...) changes the matrix. Take the mean first.",
    ),
)


def _silent_first(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    gram = gram + torch.diag((gram.diagonal() == 0).float())
    return gram + damping * gram.diagonal().mean() * torch.eye(len(gram))


def _silent_last(inputs: Tensor, damping: float) -> Tensor:
    hessian, silent = _hessian(inputs, damping), inputs.square().sum(0) == 0
    hessian[silent, silent] = 1
    return hessian


def _hessian_in_place(inputs: Tensor, damping: float) -> Tensor:
    gram = inputs.T @ inputs
    dead, amount = gram.diagonal() == 0, damping * gram.diagonal().mean()
    gram.diagonal().add_(amount)
    gram[dead, dead] += 1
    return gram


def _hessian_by_token(inputs: Tensor, damping: float) -> Tensor:
    gram = sum(torch.outer(token, token) for token in inputs)
    return gram + torch.eye(len(gram)) * (damping * gram.trace() / len(gram) + (gram.diagonal() == 0))


# sparsegpt.eliminate ---------------------------------------------------------------------------------------------


def _without(matrix: Tensor, q: int) -> Tensor:
    rest = [i for i in range(len(matrix)) if i != q]
    return matrix[rest][:, rest]


def _eliminate(inverse: Tensor, q: int) -> Tensor:
    return _without(inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q], q)


def _eliminate_cases(generator: torch.Generator) -> list[Case]:
    # H = [[2, 1], [1, 2]]: its inverse is [[2, -1], [-1, 2]] / 3, and without the first input H is [2], so [1/2]
    by_hand = torch.tensor([[2.0, -1.0], [-1.0, 2.0]]) / 3
    return [
        Case("2 × 2 by hand: what is left is 1/2", (by_hand, 0)),
        Case("8 inputs, the first leaves", (torch.linalg.inv(_damped(generator, 8)), 0)),
        Case("8 inputs, one in the middle leaves", (torch.linalg.inv(_damped(generator, 8)), 4)),
        Case("5 inputs, the last leaves", (torch.linalg.inv(_damped(generator, 5)), 4)),
    ]


ELIMINATE = Exercise(
    id="sparsegpt.eliminate",
    title="The inverse of what is left",
    difficulty=3,
    minutes=10,
    points=3,
    reference=_eliminate,
    cases=_eliminate_cases,
    mistakes=(
        Mistake(
            "row and column struck out",
            "The inverse of a part is not a part of the inverse. Before striking out, take away what input q explains.",
            _without,
        ),
        Mistake(
            "added instead of taken away",
            "The sign is wrong: without input q less is known of the others, and the diagonal must shrink here.",
            lambda inverse, q: _without(inverse + torch.outer(inverse[:, q], inverse[q]) / inverse[q, q], q),
        ),
        Mistake(
            "not divided by the pivot",
            "Gaussian elimination divides by the pivot [H⁻¹]_qq; otherwise column q does not become zero.",
            lambda inverse, q: _without(inverse - torch.outer(inverse[:, q], inverse[q]), q),
        ),
        Mistake(
            "zeros left in",
            "Row and column q are zero now, but still there. Return the matrix without them.",
            lambda inverse, q: inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q],
        ),
        Mistake(
            "divided by the square of the pivot",
            "The pivot stands under the outer product once, not squared.",
            lambda inverse, q: _without(inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q] ** 2, q),
        ),
    ),
    also_right=(
        Variant("from scratch", lambda inverse, q: torch.linalg.inv(_without(torch.linalg.inv(inverse), q))),
        Variant(
            "strike out first",
            lambda inverse, q: (
                _without(inverse, q)
                - torch.outer(
                    torch.cat([inverse[:q, q], inverse[q + 1 :, q]]), torch.cat([inverse[q, :q], inverse[q, q + 1 :]])
                )
                / inverse[q, q]
            ),
        ),
    ),
    hints=(
        "One step of Gaussian elimination: take a multiple of row q from every row, such that column q becomes zero.",
        "inverse − outer(inverse[:, q], inverse[q]) / inverse[q, q]; then leave out row and column q.",
    ),
)


# sparsegpt.factor ------------------------------------------------------------------------------------------------


def _factor(hessian: Tensor) -> Tensor:
    return torch.linalg.cholesky(torch.linalg.inv(hessian)).T


def _agree_on_factor(got: Any, expected: Tensor) -> str | None:
    """Factors agree when both are upper triangular and UᵀU is the same: the signs of whole rows are free."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    if close(got, expected) is None:
        return None
    got, expected = got.double(), expected.double()
    below = got.tril(-1).abs().max().item() if len(got) > 1 else 0.0
    if not below <= 1e-4 * got.abs().max().item():  # NaN fails too
        return f"an entry below the diagonal is {below:.3g}, expected an upper triangular matrix"
    difference = close(got.T @ got, expected.T @ expected)
    return f"UᵀU is not H⁻¹: {difference}" if difference else None


FACTOR = Exercise(
    id="sparsegpt.factor",
    title="One factor for all inverses",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_factor,
    # H = [[2, 1], [1, 2]]: U = [[sqrt(2/3), -1/sqrt(6)], [0, 1/sqrt(2)]]
    cases=lambda generator: [
        Case("2 × 2 by hand", (torch.tensor([[2.0, 1.0], [1.0, 2.0]]),)),
        Case("9 inputs", (_damped(generator, 9),)),
        Case("24 inputs", (_damped(generator, 24),)),
        Case("inputs that have nothing in common", (torch.diag(torch.tensor([4.0, 1.0, 9.0])),)),
    ],
    agree=_agree_on_factor,
    mistakes=(
        Mistake(
            "factor of H",
            "This factorises H itself. The updates need the inverse: UᵀU = H⁻¹.",
            lambda h: torch.linalg.cholesky(h).T,
        ),
        Mistake(
            "lower triangular",
            "This is L with LLᵀ = H⁻¹. U is its transpose: row j of U then holds the update to the right of column j.",
            lambda h: torch.linalg.cholesky(torch.linalg.inv(h)),
        ),
        Mistake(
            "UUᵀ instead of UᵀU",
            "Inverting the factor of H gives H⁻¹ = UUᵀ. That settles columns from the right; we start at the left.",
            lambda h: torch.linalg.inv(torch.linalg.cholesky(h)).T,
        ),
        Mistake(
            "the inverse itself",
            "This is the upper half of H⁻¹. Its rows still contain what the columns to the left explain.",
            lambda h: torch.linalg.inv(h).triu(),
            also=(torch.linalg.inv,),
        ),
        Mistake(
            "inverse of the factor of H",
            "UᵀU is H⁻¹, but this U is lower triangular: it would settle columns from the right. Factorise H⁻¹ itself.",
            lambda h: torch.linalg.inv(torch.linalg.cholesky(h)),
        ),
        Mistake(
            "ones on the diagonal",
            "Each row was divided by its diagonal entry. That is the update, but then UᵀU is not H⁻¹; divide later.",
            lambda h: _factor(h) / _factor(h).diagonal()[:, None],
        ),
        Mistake(
            "a symmetric root",
            "This root is symmetric, not triangular: it would update columns that are settled already.",
            lambda h: _symmetric_root(torch.linalg.inv(h)),
        ),
    ),
    also_right=(
        Variant("upper=True", lambda h: torch.linalg.cholesky(torch.linalg.inv(h), upper=True)),
        Variant("without inverting first", lambda h: torch.linalg.inv(torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1))),
        Variant("by elimination, column by column", lambda h: _factor_by_elimination(h)),
        Variant("rows of the other sign", lambda h: -_factor(h)),
        Variant("float64", lambda h: _factor(h.double())),
    ),
    hints=(
        "torch.linalg.cholesky(A) gives the lower L with LLᵀ = A. Which A, and what is its transpose?",
        "U = Lᵀ for A = H⁻¹: then UᵀU = LLᵀ = H⁻¹.",
    ),
)


def _symmetric_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.T


def _factor_by_elimination(hessian: Tensor) -> Tensor:
    upper, inverse = torch.zeros_like(hessian), torch.linalg.inv(hessian)
    for column in range(len(hessian)):
        upper[column, column:] = inverse[0] / inverse[0, 0].sqrt()
        inverse = _eliminate(inverse, 0)
    return upper


# sparsegpt.settle ------------------------------------------------------------------------------------------------


def _settle(weight: Tensor, keep: Tensor, upper: Tensor, j: int, scale: float = 1.0) -> Tensor:
    settled = weight.clone()
    error = weight[:, j] * ~keep
    settled[:, j] = weight[:, j] * keep
    settled[:, j + 1 :] -= scale * torch.outer(error / upper[j, j], upper[j, j + 1 :])
    return settled


def _settle_cases(generator: torch.Generator) -> list[Case]:
    # U_00 = 2, U_01 = -1: a deleted weight of 6 moves its neighbour by -(6 / 2) * (-1) = 3
    by_hand = (
        torch.tensor([[6.0, 1.0], [4.0, 5.0]]),
        torch.tensor([False, True]),
        torch.tensor([[2.0, -1.0], [0.0, 3.0]]),
    )

    def drawn(rows: int, columns: int, j: int) -> tuple:
        keep = torch.rand(rows, generator=generator) < 0.5
        keep[:2] = torch.tensor([True, False])
        return _randn(generator, rows, columns), keep, _factor(_damped(generator, columns)), j

    return [
        Case("two outputs, two inputs, by hand", (*by_hand, 0)),
        Case("6 × 10, the first column", drawn(6, 10, 0)),
        Case("5 × 8, a column in the middle", drawn(5, 8, 3)),
        Case("7 × 6, the last column: nobody is left to make up", drawn(7, 6, 5)),
    ]


SETTLE = Exercise(
    id="sparsegpt.settle",
    title="Settle one column",
    difficulty=3,
    minutes=12,
    points=3,
    reference=_settle,
    cases=_settle_cases,
    mistakes=(
        Mistake(
            "no update",
            "Nothing to the right moved. Was the weight zeroed before its error was taken? Otherwise: subtract "
            "(error / U_jj) · U_jk from every column k to the right.",
            lambda w, keep, u, j: torch.cat([w[:, :j], (w[:, j] * keep)[:, None], w[:, j + 1 :]], dim=1),
        ),
        Mistake(
            "row of the whole inverse",
            "This row of H⁻¹ = UᵀU still knows the settled columns. What is left has another inverse: use row j of U.",
            lambda w, keep, u, j: torch.cat([w[:, :j], _settle_by_inverse(w, keep, u, j)[:, j:]], dim=1),
        ),
        Mistake(
            "settled columns moved",
            "Columns left of j changed too. They are settled: update only those to the right.",
            lambda w, keep, u, j: _settle_by_inverse(w, keep, u, j),
        ),
        Mistake(
            "error not divided by U_jj",
            "Divide the error by U_jj before it is spread along row j of U.",
            lambda w, keep, u, j: _settle(w, keep, u, j, float(u[j, j])),
        ),
        Mistake(
            "divided twice",
            "[H⁻¹]_jj of what is left is U_jj², but the row of H⁻¹ is U_jj times that of U: one division remains.",
            lambda w, keep, u, j: _settle(w, keep, u, j, 1 / float(u[j, j])),
        ),
        Mistake(
            "wrong sign",
            "The update goes against the error: subtract it. Check by hand that the layer error falls.",
            lambda w, keep, u, j: _settle(w, keep, u, j, -1.0),
        ),
        Mistake(
            "kept weights spread too",
            "Outputs that keep their weight in column j have no error to spread. The error is w · (1 − keep).",
            lambda w, keep, u, j: torch.cat(
                [
                    w[:, :j],
                    (w[:, j] * keep)[:, None],
                    w[:, j + 1 :] - torch.outer(w[:, j] / u[j, j], u[j, j + 1 :]),
                ],
                dim=1,
            ),
        ),
        Mistake(
            "the wrong ones leave",
            "keep is True where the weight stays.",
            lambda w, keep, u, j: _settle(w, ~keep, u, j),
        ),
        Mistake(
            "column not emptied",
            "The others make up for the weight, but it is still there: column j must become w · keep.",
            lambda w, keep, u, j: torch.cat([w[:, : j + 1], _settle(w, keep, u, j)[:, j + 1 :]], dim=1),
        ),
    ),
    also_right=(
        Variant("in place, from column j on", lambda w, keep, u, j: _settle_in_place(w, keep, u, j)),
        Variant("row by row", lambda w, keep, u, j: _settle_by_row(w, keep, u, j)),
        Variant("float64", lambda w, keep, u, j: _settle(w.double(), keep, u.double(), j)),
    ),
    hints=(
        "error = weight[:, j] where it leaves, else 0. What column j becomes is easy; now those to its right.",
        "weight[:, j + 1:] −= outer(error / upper[j, j], upper[j, j + 1:]).",
    ),
)


def _settle_by_inverse(weight: Tensor, keep: Tensor, upper: Tensor, j: int) -> Tensor:
    inverse, error = upper.T @ upper, weight[:, j] * ~keep
    settled = weight - torch.outer(error / inverse[j, j], inverse[j])
    settled[:, j] = weight[:, j] * keep
    return settled


def _settle_in_place(weight: Tensor, keep: Tensor, upper: Tensor, j: int) -> Tensor:
    error = (weight[:, j] - weight[:, j] * keep) / upper[j, j]
    weight[:, j:] -= error[:, None] * upper[j, j:]  # column j itself: w − error · U_jj / U_jj
    return weight


def _settle_by_row(weight: Tensor, keep: Tensor, upper: Tensor, j: int) -> Tensor:
    rows = [
        row
        if stays
        else torch.cat([row[:j], row.new_zeros(1), row[j + 1 :] - row[j] * upper[j, j + 1 :] / upper[j, j]])
        for row, stays in zip(weight, keep, strict=True)
    ]
    return torch.stack(rows)


# sparsegpt.mask --------------------------------------------------------------------------------------------------


def _lowest_leave(score: Tensor, n: int) -> Tensor:
    keep = torch.ones(score.numel(), dtype=torch.bool)
    keep[score.flatten().sort(stable=True).indices[:n]] = False
    return keep.reshape(score.shape)


def _n_leaving(weight: Tensor, sparsity: float) -> int:
    return int(weight.numel() * sparsity + 1e-6)


def _block_mask(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return _lowest_leave((weight / diagonal).square(), _n_leaving(weight, sparsity))


def _mask_cases(generator: torch.Generator) -> list[Case]:
    # scores 4, 4, 1 and 36, 1, 0.25: four of six leave (0.25, 1, 1 and one of the tied fours)
    by_hand = (torch.tensor([[2.0, 4.0, 0.5], [6.0, 2.0, 0.25]]), torch.tensor([1.0, 2.0, 0.5]), 2 / 3)
    loud = torch.cat([0.1 * _randn(generator, 5, 12), 3 * _randn(generator, 5, 12)])

    def spread() -> Tensor:
        return 0.2 + 2 * torch.rand(12, generator=generator)

    return [
        Case("2 × 3 by hand, two scores tie", by_hand),
        Case("9 × 12, 35 % leaves: 37.8, so 37", (_randn(generator, 9, 12), spread(), 0.35)),
        Case("half of the outputs are quiet", (loud, spread(), 0.5)),
        Case("all scores equal", (torch.ones(4, 6), torch.ones(6), 0.5)),
    ]


def _agree_on_block(got: Any, expected: Tensor, case: Case) -> str | None:
    """Masks agree when as many stay, of the same worth: which of two equal scores stays is free."""
    got, problem = tensor_like(got, expected)
    if problem:
        return problem
    if not ((got == 0) | (got == 1)).all():
        return "the mask holds values other than True and False: return which weights stay, not the weights"
    if got.sum() != expected.sum():
        return f"{int(got.sum())} of {got.numel()} stay, expected {int(expected.sum())}"
    weight, diagonal, _ = case.arguments
    score = (weight.double() / diagonal.double()).abs()
    mine, right = (score[keep.bool()].sort().values for keep in (got, expected))
    if torch.isclose(mine, right, rtol=1e-5, atol=0).all():  # float32 may rank near ties either way
        return None
    return (
        f"what stays is worth {mine.square().sum():.4g} together, expected {right.square().sum():.4g}: "
        "others should have left"
    )


MASK = Exercise(
    id="sparsegpt.mask",
    title="Who leaves a block",
    difficulty=3,
    minutes=8,
    points=2,
    reference=_block_mask,
    cases=_mask_cases,
    agree=_agree_on_block,
    picture=lambda case, got, expected: compare_masks(got, expected),
    mistakes=(
        Mistake(
            "within each row",
            "Each output lost the same share. SparseGPT ranks all weights of the block together.",
            lambda w, d, s: torch.cat([_lowest_leave(row[None], int(len(row) * s + 1e-6)) for row in (w / d).square()]),
        ),
        Mistake(
            "weights alone",
            "The factor is not used: this is magnitude pruning of the block.",
            lambda w, d, s: _block_mask(w, torch.ones_like(d), s),
        ),
        Mistake(
            "multiplied instead of divided",
            "A large U_jj means that the others cannot be asked for little: the cost of deleting is w² / U_jj².",
            lambda w, d, s: _block_mask(w, 1 / d, s),
        ),
        Mistake(
            "U_jj not squared",
            "The score is w² / U_jj²: U_jj² is [H⁻¹]_jj of the columns that are left.",
            lambda w, d, s: _lowest_leave(w.square() / d, _n_leaving(w, s)),
        ),
        Mistake(
            "best ones dropped",
            "The weights that cost most to delete left. Drop the lowest scores.",
            lambda w, d, s: _lowest_leave(-(w / d).square(), _n_leaving(w, s)),
        ),
        Mistake(
            "True where it leaves",
            "The mask is True where a weight leaves. In this course True means that it stays.",
            lambda w, d, s: ~_block_mask(w, d, s),
        ),
        Mistake(
            "rounded to nearest",
            "When O · B · s does not come out even, round down: the floor of it leaves.",
            lambda w, d, s: _lowest_leave((w / d).square(), round(w.numel() * s)),
        ),
        Mistake(
            "a threshold",
            "`score <= sorted[n]` drops one weight too many and every tie, as the public code does. Take n by index.",
            lambda w, d, s: (w / d).square() > (w / d).square().flatten().sort().values[_n_leaving(w, s)],
            also=(lambda w, d, s: (w / d).square() > (w / d).square().flatten().sort().values[_n_leaving(w, s) - 1],),
        ),
    ),
    also_right=(
        Variant("topk of the absolute values", lambda w, d, s: _mask_by_topk(w, d, s)),
        Variant("zeros and ones", lambda w, d, s: _block_mask(w, d, s).float()),
    ),
    hints=(
        "The score of a weight is w² / U_jj²; the diagonal lines up with the columns of the block.",
        "Flatten the scores, find the int(O · B · s) lowest by topk(largest=False), and set those to False.",
    ),
)


def _mask_by_topk(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    lowest = (weight.abs() / diagonal).flatten().topk(_n_leaving(weight, sparsity), largest=False).indices
    return torch.ones(weight.numel(), dtype=torch.bool).index_fill(0, lowest, False).reshape(weight.shape)


# sparsegpt.prune -------------------------------------------------------------------------------------------------


def _prune(
    weight: Tensor,
    upper: Tensor,
    sparsity: float,
    block_size: int,
    lazy: bool = True,
    ahead: Tensor | None = None,
    update: bool = True,
    choose: Callable[[Tensor, Tensor, float], Tensor] = _block_mask,
    undivided: bool = False,
    times: int = 1,
) -> Tensor:
    """SparseGPT as it stands in the paper; the settings after the block size are where it goes wrong."""
    weight = weight.clone()
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        here = slice(start, end)
        keep = choose(weight[:, here], upper.diagonal()[here], sparsity) if ahead is None else ahead[:, here]
        errors = torch.zeros_like(weight[:, here])
        for j in range(start, end):
            errors[:, j - start] = weight[:, j] * ~keep[:, j - start] / upper[j, j]
            weight[:, j] *= keep[:, j - start]
            if update:
                weight[:, j + 1 : end] -= torch.outer(errors[:, j - start], upper[j, j + 1 : end])
        if lazy and update:
            sent = errors * upper.diagonal()[here] if undivided else errors
            weight[:, end:] -= times * sent @ upper[here, end:]
    return weight


def _prune_cases(generator: torch.Generator) -> list[Case]:
    def drawn(rows: int, columns: int, sparsity: float, block_size: int) -> tuple:
        return _randn(generator, rows, columns), _factor(_damped(generator, columns)), sparsity, block_size

    # One row, U = [[1, -1/2], [0, 1]]: the score of 1 is lower than that of 3, and 3 becomes 3 + 1/2.
    upper = torch.tensor([[1.0, -0.5], [0.0, 1.0]])
    return [
        Case("one output, two inputs, by hand: (0, 3.5)", (torch.tensor([[1.0, 3.0]]), upper, 0.5, 2)),
        Case("8 × 16, one block", drawn(8, 16, 0.5, 16)),
        Case("8 × 24, three blocks", drawn(8, 24, 0.5, 8)),
        Case("10 × 18, blocks of 4: the last is smaller", drawn(10, 18, 0.5, 4)),
    ]


def _mask_of_all(weight: Tensor, upper: Tensor, sparsity: float) -> Tensor:
    return _block_mask(weight, upper.diagonal(), sparsity)


def _masks_ahead(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    parts = zip(weight.split(block_size, 1), upper.diagonal().split(block_size), strict=True)
    return torch.cat([_block_mask(part, diagonal, sparsity) for part, diagonal in parts], dim=1)


PRUNE = Exercise(
    id="sparsegpt.prune",
    title="SparseGPT",
    difficulty=5,
    minutes=25,
    points=5,
    reference=_prune,
    cases=_prune_cases,
    mistakes=(
        Mistake(
            "errors stop at the end of the block",
            "The columns behind never hear of the errors. At the end: weight[:, end:] −= errors @ upper[block, end:].",
            lambda w, u, s, b: _prune(w, u, s, b, lazy=False),
        ),
        Mistake(
            "masks chosen before the start",
            "The masks of later blocks were chosen from the dense weights. Choose each when its block is reached, "
            "from the weights as updated.",
            lambda w, u, s, b: _prune(w, u, s, b, ahead=_masks_ahead(w, u, s, b)),
        ),
        Mistake(
            "one mask for the whole layer",
            "All columns were ranked together before the start. SparseGPT ranks block by block, on the way.",
            lambda w, u, s, b: _prune(w, u, s, b, ahead=_mask_of_all(w, u, s)),
        ),
        Mistake(
            "no updates",
            "The masks are SparseGPT's, but nothing makes up for what leaves.",
            lambda w, u, s, b: _prune(w, u, s, b, update=False),
        ),
        Mistake(
            "ranked within each row",
            "Each output lost the same share of every block. SparseGPT ranks the block over all rows together.",
            lambda w, u, s, b: _prune(w, u, s, b, choose=_mask_by_row),
        ),
        Mistake(
            "ranked by magnitude",
            "The updates are right, but the masks are those of magnitude pruning: divide by U_jj before ranking.",
            lambda w, u, s, b: _prune(w, u, s, b, choose=lambda w, d, s: _block_mask(w, torch.ones_like(d), s)),
        ),
        Mistake(
            "errors not divided behind the block",
            "Within the block the errors are divided by U_jj, behind it they are not. Keep error / U_jj.",
            lambda w, u, s, b: _prune(w, u, s, b, undivided=True),
        ),
        Mistake(
            "behind updated twice",
            "Each column sent its error to the very end, and the block sent it again. Inside, stop at the block's end.",
            lambda w, u, s, b: _prune(w, u, s, b, times=2),
        ),
        Mistake(
            "last block left out",
            "A last block narrower than the others was skipped: range(0, I, block_size), with end = min(start + "
            "block_size, I).",
            lambda w, u, s, b: _without_last(w, u, s, b),
        ),
        Mistake(
            "updated, not emptied",
            "The updates are right, but the weights that leave are still there.",
            lambda w, u, s, b: _never_emptied(w, u, s, b),
        ),
        Mistake(
            "updates without removal in between",
            "All errors come from the dense weights and are added at the end. Each column must see those before it.",
            lambda w, u, s, b: _all_at_once(w, u, s, b),
        ),
    ),
    also_right=(
        Variant("every column sends to the end at once", lambda w, u, s, b: _prune_eagerly(w, u, s, b)),
        Variant("float64", lambda w, u, s, b: _prune(w.double(), u.double(), s, b)),
    ),
    hints=(
        "For each block: choose its mask with the last exercise, then settle its columns from left to right.",
        "Within the block, column j updates only j + 1 … end. Keep each error / U_jj as a column of `errors`.",
        "After the block: weight[:, end:] −= errors @ upper[start:end, end:].",
    ),
)


def _mask_by_row(weight: Tensor, diagonal: Tensor, sparsity: float) -> Tensor:
    return torch.cat([_block_mask(row[None], diagonal, sparsity) for row in weight])


def _without_last(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    whole = weight.shape[1] - weight.shape[1] % block_size
    settled = _prune(weight[:, :whole], upper[:whole, :whole], sparsity, block_size)
    errors = (weight[:, :whole] - settled) @ torch.linalg.inv(upper[:whole, :whole])
    return torch.cat([settled, weight[:, whole:] - errors @ upper[:whole, whole:]], dim=1)


def _prune_eagerly(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        keep = _block_mask(weight[:, start:end], upper.diagonal()[start:end], sparsity)
        for j in range(start, end):
            weight = _settle(weight, keep[:, j - start], upper, j)
    return weight


def _never_emptied(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    weight = weight.clone()
    for start in range(0, weight.shape[1], block_size):
        end = min(start + block_size, weight.shape[1])
        keep = _block_mask(weight[:, start:end], upper.diagonal()[start:end], sparsity)
        for j in range(start, end):
            error = weight[:, j] * ~keep[:, j - start] / upper[j, j]
            weight[:, j + 1 :] -= torch.outer(error, upper[j, j + 1 :])
    return weight


def _all_at_once(weight: Tensor, upper: Tensor, sparsity: float, block_size: int) -> Tensor:
    keep = _masks_ahead(weight, upper, sparsity, block_size)
    errors = weight * ~keep / upper.diagonal()
    return (weight - errors @ upper.triu(1)) * keep


# sparsegpt.bits --------------------------------------------------------------------------------------------------


def _bits(sparsity: float, value_bits: int, group_size: int, grid_bits: int) -> float:
    return (1 if sparsity else 0) + (1 - sparsity) * value_bits + grid_bits / group_size


BITS = Exercise(
    id="sparsegpt.bits",
    title="Bits a weight",
    difficulty=2,
    minutes=8,
    points=2,
    reference=_bits,
    cases=lambda generator: [
        Case("half of the weights, 4 bits: 1 + 2 + 32/128", (0.5, 4, 128, 32)),
        Case("dense, 3 bits, the same grid", (0.0, 3, 128, 32)),
        Case("three quarters gone, 8 bits, groups of 64", (0.75, 8, 64, 32)),
        Case("drawn", (float(0.1 + 0.8 * torch.rand((), generator=generator)), 5, 32, 24)),
    ],
    mistakes=(
        Mistake(
            "the map forgotten",
            "Someone must say which weights are stored: a bitmap takes one bit for every weight, stored or not.",
            lambda s, v, g, q: (1 - s) * v + q / g,
        ),
        Mistake(
            "a map for a dense layer",
            "Where all weights are stored, no map is needed.",
            lambda s, v, g, q: 1 + (1 - s) * v + q / g,
        ),
        Mistake(
            "zeros stored too",
            "Only the share 1 − s of the values is stored.",
            lambda s, v, g, q: (1 if s else 0) + v + q / g,
        ),
        Mistake(
            "the zeros stored instead",
            "s is the share that leaves; 1 − s is stored.",
            lambda s, v, g, q: (1 if s else 0) + s * v + q / g,
        ),
        Mistake(
            "the grid forgotten",
            "Each group of weights needs its scale and zero point: grid_bits for group_size weights.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * v,
        ),
        Mistake(
            "a grid for each weight",
            "One grid serves group_size weights: divide.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * v + q,
        ),
        Mistake(
            "a grid for what is stored only",
            "The groups run over all weights of the layer, pruned ones included: grid_bits / group_size a weight.",
            lambda s, v, g, q: (1 if s else 0) + (1 - s) * (v + q / g),
        ),
        Mistake(
            "a map for what is stored only",
            "The map has a bit for every weight, stored or not.",
            lambda s, v, g, q: (1 - s) * (v + (1 if s else 0)) + q / g,
        ),
    ),
    also_right=(
        Variant(
            "for one group, then divided",
            lambda s, v, g, q: (g * (s > 0) + g * (1 - s) * v + q) / g,
        ),
        Variant("a tensor", lambda s, v, g, q: torch.tensor(_bits(s, v, g, q), dtype=torch.float64)),
    ),
    hints=(
        "Count for one group of group_size weights: its values, its map, its grid. Then divide.",
        "Values: (1 − s) · value_bits a weight. Map: 1 bit a weight, if s > 0. Grid: grid_bits / group_size a weight.",
    ),
)


EXERCISES = (LAYER_ERROR, HESSIAN, ELIMINATE, FACTOR, SETTLE, MASK, PRUNE, BITS)
