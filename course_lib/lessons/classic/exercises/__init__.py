"""Lesson 02: the exercises on optimal brain damage and surgeon, their cases and their named mistakes.

Dimension key: P patterns, d weights; in a layer I units below, L units above.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.call import DidNotFinish
from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

LESSON = "02 Optimal brain damage and surgeon"


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _hessian(generator: torch.Generator, d: int) -> Tensor:
    """Positive definite, with strong correlations."""
    rows = _randn(generator, 2 * d, d) + 0.7 * _randn(generator, 2 * d, 1)
    return rows.T @ rows / (2 * d)


def _only(weight: Tensor, q: int) -> Tensor:
    """Zero everywhere but at q."""
    return torch.zeros_like(weight).index_put((torch.tensor(q),), weight[q])


# classic.taylor --------------------------------------------------------------------------------------------------


def _taylor_cases(generator: torch.Generator) -> list[Case]:
    hessian = torch.tensor([[4.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    d = 6
    return [
        Case("two weights by hand", (_vector(0.5, -1.0), hessian, _vector(1.0, 2.0))),
        Case("six weights", (_randn(generator, d), _hessian(generator, d), _randn(generator, d))),
        Case(
            "at a minimum: the gradient is zero",
            (torch.zeros(d).double(), _hessian(generator, d), _randn(generator, d)),
        ),
        Case("one weight moves", (_randn(generator, d), _hessian(generator, d), _only(_randn(generator, d), 3))),
        Case("downhill: the error falls", (_vector(1.0, 1.0), hessian, _vector(-0.25, 0.0))),
    ]


TAYLOR = Exercise(
    id="classic.taylor",
    title="What a change costs",
    difficulty=1,
    minutes=5,
    points=2,
    reference=lambda gradient, hessian, change: (gradient @ change + 0.5 * change @ hessian @ change).item(),
    cases=_taylor_cases,
    mistakes=(
        Mistake(
            "half forgotten",
            "The second-order term of a Taylor expansion carries ½.",
            lambda g, h, c: g @ c + c @ h @ c,
        ),
        Mistake(
            "half of both terms",
            "The ½ belongs to the second-order term alone: gᵀδ + ½ δᵀHδ.",
            lambda g, h, c: 0.5 * (g @ c + c @ h @ c),
        ),
        Mistake(
            "made positive",
            "A change may also lower the error. Keep the sign.",
            lambda g, h, c: (g @ c + 0.5 * c @ h @ c).abs(),
            also=(
                lambda g, h, c: (g @ c).abs() + 0.5 * c @ h @ c,
                lambda g, h, c: (g @ c + 0.5 * c @ h @ c).clamp(min=0),
            ),
        ),
        Mistake(
            "gradient dropped",
            "The first-order term vanishes only at a minimum; the function is asked about any point.",
            lambda g, h, c: 0.5 * c @ h @ c,
        ),
        Mistake(
            "diagonal only",
            "Σ h_ii δ_i² leaves out the products δ_i δ_j. That is OBD's approximation, the next exercise.",
            lambda g, h, c: g @ c + 0.5 * (h.diagonal() * c.square()).sum(),
        ),
        Mistake(
            "sign of the gradient",
            "The error rises by gᵀδ when the weights move by δ. The minus belongs to a descent step.",
            lambda g, h, c: -(g @ c) + 0.5 * c @ h @ c,
        ),
    ),
    also_right=(
        Variant("einsum", lambda g, h, c: torch.einsum("i,i", g, c) + torch.einsum("i,ij,j", c, h, c) / 2),
        Variant("a Python number", lambda g, h, c: ((g + 0.5 * h @ c) @ c).item()),
        Variant("one row and one column", lambda g, h, c: g[None] @ c[:, None] + 0.5 * c[None] @ h @ c[:, None]),
    ),
    hints=(
        "Two terms: one linear in the change, one quadratic.",
        "gradient @ change, and half of change @ hessian @ change.",
    ),
)


# classic.obd_saliency --------------------------------------------------------------------------------------------


OBD_SALIENCY = Exercise(
    id="classic.obd_saliency",
    title="OBD's saliency",
    difficulty=1,
    minutes=4,
    points=2,
    reference=lambda weight, diagonal: 0.5 * diagonal * weight.square(),
    cases=lambda generator: [
        Case("two weights by hand", (_vector(0.2, -0.3), _vector(4.0, 1.0))),
        Case("ten weights", (_randn(generator, 10), _randn(generator, 10).square())),
        Case(
            "curvatures of which some are negative", (_randn(generator, 8), _vector(*[(-1.0) ** i for i in range(8)]))
        ),
        Case("a weight that is zero already", (_vector(1.0, 0.0, 2.0), _vector(1.0, 5.0, 0.5))),
    ],
    mistakes=(
        Mistake(
            "half forgotten",
            "The order is right, but each number is twice what the deletion costs: the Taylor term carries ½.",
            lambda w, h: h * w.square(),
        ),
        Mistake(
            "weight not squared",
            "A deletion moves the weight by −w, and the term is quadratic in the move: w².",
            lambda w, h: 0.5 * h * w.abs(),
            also=(lambda w, h: h * w.abs(), lambda w, h: 0.5 * h * w),
        ),
        Mistake(
            "magnitude alone",
            "The curvature is unused: this ranks like magnitude pruning.",
            lambda w, h: 0.5 * w.square(),
            also=(lambda w, h: w.abs(), lambda w, h: w.square()),
        ),
        Mistake(
            "curvature made positive",
            "Where the error bends down, deleting makes it fall, to second order. Keep the sign of h.",
            lambda w, h: 0.5 * h.abs() * w.square(),
            also=(lambda w, h: 0.5 * h.clamp(min=0) * w.square(),),
        ),
        Mistake(
            "divided by the curvature",
            "A flat direction (small h) is cheap to move along, so the saliency must grow with h.",
            lambda w, h: 0.5 * w.square() / h,
        ),
    ),
    also_right=(
        Variant("in place", lambda w, h: w.square_().mul_(h).div_(2)),
        Variant("a loop", lambda w, h: torch.stack([h_k * w_k * w_k / 2 for w_k, h_k in zip(w, h, strict=True)])),
    ),
    hints=(
        "Put the change of one deletion, −w_k at place k and zero elsewhere, into the last exercise, without gradient.",
        "With a diagonal Hessian one product is left: ½ h_k w_k².",
    ),
)


# classic.back_one_layer ------------------------------------------------------------------------------------------


def _back(weight: Tensor, second: Tensor, to_unit: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    return slope.square() * (second @ weight.square()) + bend * to_unit


def _back_cases(generator: torch.Generator) -> list[Case]:
    def layer(n_patterns: int, above: int, below: int) -> tuple:
        said = torch.tanh(_randn(generator, n_patterns, below))
        slope = 1 - said.square()
        to_unit, second = _randn(generator, n_patterns, below), _randn(generator, n_patterns, above)
        return _randn(generator, above, below), second, to_unit, slope, -2 * said * slope

    by_hand = (_vector(2.0, -1.0)[:, None], _vector(3.0, 5.0)[None], *(_vector(v)[None] for v in (4.0, 0.5, -0.25)))
    return [
        Case("one unit below two, by hand", by_hand),
        Case("7 patterns, 4 units above, 3 below", layer(7, 4, 3)),
        Case("as many units above as below", layer(5, 5, 5)),
        Case("one pattern", layer(1, 2, 6)),
    ]


BACK_ONE_LAYER = Exercise(
    id="classic.back_one_layer",
    title="Curvature, one layer down",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_back,
    cases=_back_cases,
    mistakes=(
        Mistake(
            "weights not squared",
            "Gradients travel down through w, second derivatives through w².",
            lambda w, s, t, f1, f2: f1.square() * (s @ w) + f2 * t,
        ),
        Mistake(
            "squared after the sum",
            "Σ_l w_li² ∂²E/∂a_l² squares each weight, not the sum over the units above.",
            lambda w, s, t, f1, f2: f1.square() * (s @ w).square() + f2 * t,
        ),
        Mistake(
            "slope not squared",
            "f' enters twice, once for each derivative: f'(a)².",
            lambda w, s, t, f1, f2: f1 * (s @ w.square()) + f2 * t,
        ),
        Mistake(
            "slope forgotten",
            "What comes from above passes through the unit itself: multiply it by its slope squared, f'(a)².",
            lambda w, s, t, f1, f2: s @ w.square() + f2 * t,
        ),
        Mistake(
            "slope over both terms",
            "f'² belongs to the curvature from above alone; f'' ∂E/∂x stands beside it.",
            lambda w, s, t, f1, f2: f1.square() * (s @ w.square() + f2 * t),
        ),
        Mistake(
            "terms multiplied",
            "The two parts are added: the curvature from above, and the bend of the unit.",
            lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) * (f2 * t),
        ),
        Mistake(
            "bend forgotten",
            "Without f'' ∂E/∂x this is the Levenberg-Marquardt form. The exercise asks for the full one.",
            lambda w, s, t, f1, f2: f1.square() * (s @ w.square()),
        ),
        Mistake(
            "bend without the gradient",
            "f'' is multiplied by ∂E/∂x, the first derivative with respect to what the unit says.",
            lambda w, s, t, f1, f2: f1.square() * (s @ w.square()) + f2,
        ),
        Mistake(
            "slope and bend exchanged",
            "f'² belongs to the curvature from above, f'' to the gradient.",
            lambda w, s, t, f1, f2: f2.square() * (s @ w.square()) + f1 * t,
        ),
    ),
    also_right=(
        Variant("einsum", lambda w, s, t, f1, f2: torch.einsum("pl,li,pi->pi", s, w**2, f1**2) + t * f2),
        Variant(
            "a loop over the units above",
            lambda w, s, t, f1, f2: sum(s[:, [l]] * w[l] ** 2 for l in range(len(w))) * f1 * f1 + f2 * t,  # noqa: E741
        ),
    ),
    hints=(
        "Two parts: what comes from above, through the weights, and how the unit itself bends.",
        "From above: second @ weight.square() sums over the units l. Then the unit's own slope, squared.",
        "Add second_derivative_of_f * to_unit, entry by entry.",
    ),
)


# classic.recursion -----------------------------------------------------------------------------------------------


def _recursion(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.eye(gradients.shape[1], dtype=gradients.dtype) / alpha
    for x in gradients:
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (len(gradients) + x @ moved)
    return inverse


def _direct(gradients: Tensor, alpha: float, n: float | None = None) -> Tensor:
    d = gradients.shape[1]
    return torch.linalg.inv(
        alpha * torch.eye(d, dtype=gradients.dtype) + gradients.T @ gradients / (n or len(gradients))
    )


def _recursion_from(gradients: Tensor, start: float) -> Tensor:
    inverse = torch.eye(gradients.shape[1], dtype=gradients.dtype) * start
    for x in gradients:
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (len(gradients) + x @ moved)
    return inverse


def _recursion_with(gradients: Tensor, alpha: float, step) -> Tensor:
    inverse = torch.eye(gradients.shape[1], dtype=gradients.dtype) / alpha
    for x in gradients:
        inverse = inverse + step(inverse, x, len(gradients))
    return inverse


def _recursion_with_running_count(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.eye(gradients.shape[1], dtype=gradients.dtype) / alpha
    for n, x in enumerate(gradients, 1):
        moved = inverse @ x
        inverse = inverse - torch.outer(moved, moved) / (n + x @ moved)
    return inverse


RECURSION = Exercise(
    id="classic.recursion",
    title="The inverse without inverting",
    difficulty=3,
    minutes=12,
    points=4,
    reference=_recursion,
    cases=lambda generator: [
        Case("one pattern, two weights, by hand", (torch.ones(1, 2, dtype=torch.float64), 1.0)),
        Case("two patterns, three weights", (_vector(1.0, 0.0, 2.0, 0.0, 1.0, -1.0).reshape(2, 3), 0.5)),
        Case("20 patterns, 6 weights", (_randn(generator, 20, 6), 0.1)),
        Case("fewer patterns than weights: H alone is singular", (_randn(generator, 3, 7), 0.01)),
    ],
    mistakes=(
        Mistake(
            "number of patterns forgotten",
            "The denominator is P + XᵀH⁻¹X. With 1 in place of P you invert αI + ΣXXᵀ, the sum and not the mean.",
            lambda g, a: _direct(g, a, 1.0),
        ),
        Mistake(
            "patterns so far instead of all",
            "The denominator holds P, the number of all patterns, in every step; a running count gives another mean.",
            _recursion_with_running_count,
        ),
        Mistake(
            "alpha forgotten",
            "This is the inverse of 1/P ΣXXᵀ alone, which is singular when there are fewer patterns than weights.",
            lambda g, a: torch.linalg.inv(g.T @ g / len(g)),
            also=(lambda g, a: torch.linalg.pinv(g.T @ g / len(g)),),
        ),
        Mistake(
            "start not inverted",
            "H⁻¹ starts at I/α, the inverse of αI. The smaller α, the larger it starts.",
            _recursion_from,
        ),
        Mistake(
            "added instead of subtracted",
            "Every pattern adds curvature to H, so its inverse shrinks: subtract.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: torch.outer(h @ x, h @ x) / (n + x @ h @ x)),
        ),
        Mistake(
            "one factor of the inverse missing",
            "The numerator is H⁻¹X XᵀH⁻¹: the inverse stands on both sides of XXᵀ.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, x) / (n + x @ h @ x)),
            also=(lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(x, x) / (n + x @ h @ x)),),
        ),
        Mistake(
            "divided by P at the end",
            "P belongs into every denominator: P + XᵀH⁻¹X. One factor at the end scales α as well.",
            lambda g, a: _direct(g, a, 1.0) * len(g),
            also=(lambda g, a: _direct(g, a, 1.0) / len(g),),
        ),
        Mistake(
            "P taken out of the sum",
            "1 + XᵀH⁻¹X with a factor 1/P is another number: P + XᵀH⁻¹X, or 1 + XᵀH⁻¹X / P where P is outside.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (n * (1 + x @ h @ x))),
            also=(
                lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / (1 + x @ h @ x / n)),
            ),
        ),
        Mistake(
            "H instead of its inverse",
            "This is αI + 1/P ΣXXᵀ itself. The recursion carries the inverse.",
            lambda g, a: a * torch.eye(g.shape[1], dtype=g.dtype) + g.T @ g / len(g),
        ),
        Mistake(
            "denominator without the curvature",
            "P + XᵀH⁻¹X: the second part says how much of this pattern is known already.",
            lambda g, a: _recursion_with(g, a, lambda h, x, n: -torch.outer(h @ x, h @ x) / n),
        ),
    ),
    also_right=(
        Variant("direct inversion", _direct),
        Variant(
            "in place, columns as matrices",
            lambda g, a: _columns(g, a),
        ),
    ),
    hints=(
        "Start from torch.eye(d) / alpha, in the dtype of the gradients, and correct it once for each row X.",
        "moved = inverse @ x is used three times: twice in the numerator, once in the denominator.",
        "inverse = inverse - torch.outer(moved, moved) / (P + x @ moved)",
    ),
)


def _columns(gradients: Tensor, alpha: float) -> Tensor:
    inverse = torch.diag(torch.full((gradients.shape[1],), 1 / alpha, dtype=gradients.dtype))
    for row in gradients:
        x = row[:, None]
        inverse -= (inverse @ x @ x.T @ inverse) / (len(gradients) + x.T @ inverse @ x)
    return inverse


# classic.obs_saliency, classic.obs_update ------------------------------------------------------------------------


def _obs_saliency(weight: Tensor, inverse: Tensor) -> Tensor:
    return 0.5 * weight.square() / inverse.diagonal()


def _surface_cases(generator: torch.Generator) -> list[tuple[str, Tensor, Tensor]]:
    by_hand = torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64) / 3  # of [[2, 1], [1, 2]]
    return [
        ("two weights by hand", _vector(1.0, 3.0), by_hand),
        ("nine weights", _randn(generator, 9), torch.linalg.inv(_hessian(generator, 9))),
        ("no correlations: the limit that is OBD", _randn(generator, 4), torch.diag(_vector(4.0, 1.0, 0.5, 0.1))),
    ]


OBS_SALIENCY = Exercise(
    id="classic.obs_saliency",
    title="The surgeon's saliency",
    difficulty=2,
    minutes=5,
    points=2,
    reference=_obs_saliency,
    cases=lambda generator: [Case(name, (w, inverse)) for name, w, inverse in _surface_cases(generator)],
    mistakes=(
        Mistake(
            "half forgotten",
            "The order is right, but each number is twice the rise of the error: L_q = ½ w_q² / [H⁻¹]_qq.",
            lambda w, i: w.square() / i.diagonal(),
        ),
        Mistake(
            "diagonal of H",
            "h_qq prices a deletion in which nothing else moves. That is OBD; the surgeon divides by [H⁻¹]_qq.",
            lambda w, i: 0.5 * w.square() * torch.linalg.inv(i).diagonal(),
        ),
        Mistake(
            "multiplied instead of divided",
            "A large [H⁻¹]_qq means that the others can make up for weight q, so it is cheap: divide.",
            lambda w, i: 0.5 * w.square() * i.diagonal(),
        ),
        Mistake(
            "weight not squared",
            "The cost is quadratic in the weight that leaves: w_q².",
            lambda w, i: 0.5 * w.abs() / i.diagonal(),
            also=(lambda w, i: w.abs() / i.diagonal(), lambda w, i: 0.5 * w / i.diagonal()),
        ),
        Mistake(
            "whole column instead of the diagonal",
            "Only [H⁻¹]_qq itself belongs under the fraction, not the norm of its column.",
            lambda w, i: 0.5 * w.square() / i.norm(dim=0),
            also=(lambda w, i: 0.5 * w.square() / i.sum(0), lambda w, i: 0.5 * w.square() / i.abs().sum(0)),
        ),
    ),
    also_right=(
        Variant("a loop", lambda w, i: torch.stack([w[q] ** 2 / (2 * i[q, q]) for q in range(len(w))])),
        Variant("einsum for the diagonal", lambda w, i: w.pow(2).div(2 * torch.einsum("ii->i", i))),
    ),
    hints=(
        "The left half of the surgeon's formula, for all q at once.",
        "inverse.diagonal() is the vector of [H⁻¹]_qq.",
    ),
)


def _obs_update(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    return (weight - weight[q] / inverse[q, q] * inverse[:, q]).index_fill(0, torch.tensor(q), 0.0)


OBS_UPDATE = Exercise(
    id="classic.obs_update",
    title="The others make up for it",
    difficulty=3,
    minutes=8,
    points=3,
    reference=_obs_update,
    cases=lambda generator: [
        Case(f"{name}, weight {q} leaves", (w, inverse, q))
        for q, (name, w, inverse) in zip((0, 4, 2), _surface_cases(generator), strict=True)
    ],
    mistakes=(
        Mistake(
            "nothing else moves",
            "Weight q is gone, and the rest stayed as it was. That is OBD's deletion; add the column of H⁻¹. "
            "If you did: was weight[q] set to zero before the update used it?",
            lambda w, i, q: w.index_fill(0, torch.tensor(q), 0.0),
        ),
        Mistake(
            "wrong direction",
            "The others moved away from where they help. δw = −w_q / [H⁻¹]_qq · H⁻¹ e_q, and at q it must give −w_q.",
            lambda w, i, q: w + w[q] / i[q, q] * i[:, q],
            also=(lambda w, i, q: (w + w[q] / i[q, q] * i[:, q]).index_fill(0, torch.tensor(q), 0.0),),
        ),
        Mistake(
            "not divided by the pivot",
            "Without 1 / [H⁻¹]_qq weight q does not end at zero, and the others move by a wrong amount.",
            lambda w, i, q: w - w[q] * i[:, q],
            also=(lambda w, i, q: (w - w[q] * i[:, q]).index_fill(0, torch.tensor(q), 0.0),),
        ),
        Mistake(
            "column of H",
            "The direction is a column of the inverse. A column of H itself points up the steepest slope.",
            lambda w, i, q: w - w[q] / torch.linalg.inv(i)[q, q] * torch.linalg.inv(i)[:, q],
        ),
        Mistake(
            "change instead of the weights",
            "This is δw. Return the weights after it: w + δw.",
            lambda w, i, q: -w[q] / i[q, q] * i[:, q],
        ),
        Mistake(
            "diagonal instead of the column",
            "Each weight moves by its entry in column q of H⁻¹, not by its own entry on the diagonal.",
            lambda w, i, q: w - w[q] / i[q, q] * i.diagonal(),
        ),
    ),
    also_right=(
        Variant("without forcing the zero", lambda w, i, q: w - w[q] * i[:, q] / i[q, q]),
        Variant("by the row, H⁻¹ is symmetric", lambda w, i, q: w.sub_(i[q] * (w[q] / i[q, q]))),
        Variant("a direct solution", lambda w, i, q: _solved(w, i, q)),
    ),
    hints=(
        "H⁻¹ e_q is column q of the inverse: inverse[:, q].",
        "Scale the column so that its q-th entry becomes −w_q, and add it to the weights.",
    ),
)


def _solved(weight: Tensor, inverse: Tensor, q: int) -> Tensor:
    hessian, rest = torch.linalg.inv(inverse), [k for k in range(len(weight)) if k != q]
    moved = torch.linalg.solve(hessian[rest][:, rest], hessian[rest, q] * weight[q])
    return torch.zeros_like(weight).index_put((torch.tensor(rest),), weight[rest] + moved)


# classic.prune ---------------------------------------------------------------------------------------------------


def _prune(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse = torch.linalg.inv(hessian[keep][:, keep])
        left = weight[keep]
        saliency = _obs_saliency(left, inverse)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight = weight.index_put((keep.nonzero().flatten(),), _obs_update(left, inverse, q))
        keep[keep.nonzero().flatten()[q]] = False
    return weight


def _prune_too_far(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Looks at the saliency after the deletion."""
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse, left = torch.linalg.inv(hessian[keep][:, keep]), weight[keep]
        saliency = _obs_saliency(left, inverse)
        q = int(saliency.argmin())
        weight = weight.index_put((keep.nonzero().flatten(),), _obs_update(left, inverse, q))
        keep[keep.nonzero().flatten()[q]] = False
        if saliency[q] > limit:
            break
    return weight


def _prune_without_update(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        saliency = _obs_saliency(weight[keep], torch.linalg.inv(hessian[keep][:, keep]))
        if saliency.min() > limit:
            break
        keep[keep.nonzero().flatten()[int(saliency.argmin())]] = False
    return weight * keep


def _prune_at_once(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    return weight * (_obs_saliency(weight, torch.linalg.inv(hessian)) > limit)


def _prune_with_first_inverse(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Never takes the deleted row and column out of H, so that deleted weights come back."""
    inverse, keep = torch.linalg.inv(hessian), torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        saliency = _obs_saliency(weight, inverse).masked_fill(~keep, torch.inf)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight, keep[q] = _obs_update(weight, inverse, q), False
    return weight


def _prune_in_first_order(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Sorts once, and goes through that order."""
    inverse = torch.linalg.inv(hessian)
    saliency = _obs_saliency(weight, inverse)
    for q in saliency.argsort().tolist():
        if saliency[q] > limit:
            break
        weight = weight - weight[q] / inverse[q, q] * inverse[:, q]
    return weight


def _prune_what_is_not_zero(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Takes a weight for deleted while it is zero, which ends with the next update."""
    inverse = torch.linalg.inv(hessian)
    for _ in range(len(weight)):
        saliency = _obs_saliency(weight, inverse).masked_fill(weight == 0, torch.inf)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight = _obs_update(weight, inverse, q)
    return weight


def _prune_by_damage(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    return weight * (0.5 * hessian.diagonal() * weight.square() > limit)


def _prune_by_total(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Compares the sum of all saliencies so far with the limit."""
    keep, spent = torch.ones(len(weight), dtype=torch.bool), 0.0
    while keep.any():
        inverse, left = torch.linalg.inv(hessian[keep][:, keep]), weight[keep]
        saliency = _obs_saliency(left, inverse)
        q = int(saliency.argmin())
        spent += saliency[q].item()
        if spent > limit:
            break
        weight = weight.index_put((keep.nonzero().flatten(),), _obs_update(left, inverse, q))
        keep[keep.nonzero().flatten()[q]] = False
    return weight


def _prune_with(
    weight: Tensor,
    hessian: Tensor,
    limit: float,
    *,
    price: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda left, hessian, inverse: _obs_saliency(left, inverse),
    inverse_of: Callable[[Tensor, Tensor], Tensor] = lambda hessian, keep: torch.linalg.inv(hessian[keep][:, keep]),
    choose: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    at_least: int = 1,
) -> Tensor:
    """The right loop with one of its parts exchanged."""
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.sum() >= at_least:
        inverse, left, places = inverse_of(hessian, keep), weight[keep], keep.nonzero().flatten()
        parts = left, hessian[keep][:, keep], inverse
        saliency = price(*parts)
        q = int((choose or price)(*parts).argmin())
        if saliency[q] > limit:
            break
        weight = weight.index_put((places,), _obs_update(left, inverse, q))
        keep[places[q]] = False
    return weight


def _damage(left: Tensor, hessian: Tensor, inverse: Tensor) -> Tensor:
    return 0.5 * hessian.diagonal() * left.square()


def _prune_by_place(weight: Tensor, hessian: Tensor, limit: float, zero: bool = True) -> Tensor:
    """Takes the place among the kept weights for an index of all."""
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse, left, places = torch.linalg.inv(hessian[keep][:, keep]), weight[keep], keep.nonzero().flatten()
        saliency = _obs_saliency(left, inverse)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        if not keep[q]:  # the weight at that place is near zero now, and stays the cheapest
            raise DidNotFinish
        weight = weight.index_put((places,), left - left[q] / inverse[q, q] * inverse[:, q])
        if zero:
            weight = weight.index_fill(0, torch.tensor(q), 0.0)
        keep[q] = False
    return weight


def _prune_until_nothing(weight: Tensor, hessian: Tensor, limit: float, lowest: Callable = Tensor.min) -> Tensor:
    """Never asks whether a weight is left, and looks for the lowest of nothing."""
    pruned = _prune(weight, hessian, limit)
    return pruned if pruned.any() else lowest(pruned[:0])


def _prune_by_downdate(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    inverse, gone = torch.linalg.inv(hessian), []
    while len(gone) < len(weight):
        saliency = weight**2 / (2 * inverse.diagonal())
        saliency[gone] = torch.inf
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight = weight - weight[q] / inverse[q, q] * inverse[:, q]
        gone.append(q)
        weight[gone] = 0
        inverse = inverse - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q]
    return weight


def _prune_cases(generator: torch.Generator) -> list[Case]:
    by_hand = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    coupled = torch.tensor([[2.0, 1.8, 0.0], [1.8, 2.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)

    def drawn(d: int, n_leaving: int) -> tuple:
        """A limit between the largest of the first n costs and the next, so that rounding decides nothing."""
        weight, hessian = _randn(generator, d), _hessian(generator, d)
        worst, left, costs = 0.0, weight, []
        keep = torch.ones(d, dtype=torch.bool)
        while keep.any():
            inverse = torch.linalg.inv(hessian[keep][:, keep])
            saliency = _obs_saliency(left[keep], inverse)
            q = int(saliency.argmin())
            costs.append(saliency[q].item())
            left = left.index_put((keep.nonzero().flatten(),), _obs_update(left[keep], inverse, q))
            keep[keep.nonzero().flatten()[q]] = False
        for n in range(n_leaving, d):
            worst = max(costs[:n])
            if costs[n] > 1.05 * worst:
                return weight, hessian, (worst + costs[n]) / 2
        return weight, hessian, 2 * worst

    return [
        # saliencies 0.75, 3, 2; without the first weight (1, 2, 2) becomes (0, 2.5, 2), and 2 and 6.25 are left
        Case("three weights by hand: one leaves", (_vector(1.0, 2.0, 2.0), by_hand, 1.0)),
        # saliencies 0.76, 1.71, 1.125; then 23.04 and 1.125
        Case("OBD would choose another weight, by hand", (_vector(2.0, 3.0, 1.5), coupled, 1.0)),
        Case("eight weights, correlated", drawn(8, 4)),
        Case("twelve weights, correlated", drawn(12, 7)),
        Case("nothing is cheap enough", (_vector(1.0, 2.0, 2.0), by_hand, 0.5)),
        Case("everything is cheap", (_randn(generator, 5), _hessian(generator, 5), 1e6)),
    ]


PRUNE = Exercise(
    id="classic.prune",
    title="Delete until it costs too much",
    difficulty=4,
    minutes=20,
    points=6,
    reference=_prune,
    cases=_prune_cases,
    mistakes=(
        Mistake(
            "one deletion too many",
            "The limit is asked after the deletion. Look at the saliency first, and stop before the knife.",
            _prune_too_far,
        ),
        Mistake(
            "no update",
            "The weights that stay did not move. Add −w_q / [H⁻¹]_qq · H⁻¹ e_q after each deletion.",
            _prune_without_update,
        ),
        Mistake(
            "all at once",
            "Saliencies hold for one deletion. After it the others have moved, and H has lost a row and a column.",
            _prune_at_once,
        ),
        Mistake(
            "inverse of the whole Hessian kept",
            "A later update moves weights that have left, and prices are wrong: invert H over the weights that stay.",
            _prune_with_first_inverse,
            also=(_prune_in_first_order, _prune_what_is_not_zero),
        ),
        Mistake(
            "OBD's loop",
            "These are deletions by ½ h w², with nothing moved. The surgeon's saliency is w² / (2 [H⁻¹]_qq).",
            _prune_by_damage,
        ),
        Mistake(
            "OBD's choice, the surgeon's update",
            "The others move as they should, but ½ h w² chose the weight that leaves. Choose by w² / (2 [H⁻¹]_qq).",
            lambda w, h, limit: _prune_with(w, h, limit, price=_damage),
            also=(lambda w, h, limit: _prune_with(w, h, limit, choose=_damage),),
        ),
        Mistake(
            "place among the kept weights taken for an index",
            "q counts among the weights that stay. keep[q] and weight[q] count among all: use keep.nonzero()[q] there.",
            _prune_by_place,
            also=(lambda w, h, limit: _prune_by_place(w, h, limit, zero=False),),
        ),
        Mistake(
            "half forgotten",
            "Twice the cost is compared with the limit, so the loop stops too early: L_q = ½ w_q² / [H⁻¹]_qq.",
            lambda w, h, limit: _prune(w, h, limit / 2),
        ),
        Mistake(
            "part of the first inverse",
            "Rows and columns cut out of H⁻¹ are not the inverse of what is left: cut H first, then invert.",
            lambda w, h, limit: _prune_with(w, h, limit, inverse_of=lambda h, k: torch.linalg.inv(h)[k][:, k]),
        ),
        Mistake(
            "one weight always stays",
            "Where all are cheap, all leave: the loop goes on while any weight is kept.",
            lambda w, h, limit: _prune_with(w, h, limit, at_least=2),
        ),
        Mistake(
            "no end when nothing is left",
            "After the last deletion there is no lowest saliency to find. Ask first whether any weight is left.",
            _prune_until_nothing,
            also=(lambda w, h, limit: _prune_until_nothing(w, h, limit, Tensor.argmin),),
        ),
        Mistake(
            "limit on the sum",
            "The rule compares each saliency with the limit, not the sum of all so far.",
            _prune_by_total,
        ),
    ),
    also_right=(
        Variant("one inverse, corrected after each deletion", _prune_by_downdate),
        Variant("a list of indices", lambda w, h, limit: _prune(w.clone(), h.clone(), limit)),
    ),
    hints=(
        "A loop: invert the Hessian of the weights that stay, find the lowest saliency, stop or delete.",
        "hessian[keep][:, keep] is the Hessian of what stays. Indices in it are places among the kept weights.",
        "keep.nonzero().flatten()[q] turns the place q among the kept weights into an index of the whole vector.",
    ),
)


# classic.scale ---------------------------------------------------------------------------------------------------


SCALE = Exercise(
    id="classic.scale",
    title="What the inverse costs",
    difficulty=2,
    minutes=6,
    points=2,
    reference=lambda d, n, size: (size * d**2, 4 * n * d**2),
    cases=lambda generator: [
        Case("ten weights, three gradients, by hand", (10, 3, 4)),
        Case("a MONK's network, 58 weights, 124 patterns, float64", (58, 124, 8)),
        Case("a row of 576 weights and 2048 tokens", (576, 2048, 4)),
        Case("all weights in the blocks of the default model", (106_168_320, 1000, 2)),
    ],
    mistakes=(
        Mistake(
            "one number a weight",
            "OBD keeps d numbers. The inverse Hessian is a matrix of d rows and d columns.",
            lambda d, n, size: (size * d, 4 * n * d),
            also=(lambda d, n, size: (size * d, 4 * n * d**2),),
        ),
        Mistake(
            "numbers instead of bytes",
            "d² counts numbers. Each takes bytes_per_number bytes.",
            lambda d, n, size: (d**2, 4 * n * d**2),
        ),
        Mistake(
            "multiplications only",
            "A multiplication and an addition are two FLOPs: 2d² for H⁻¹X, and 2d² for the rank-one correction.",
            lambda d, n, size: (size * d**2, 2 * n * d**2),
            also=(lambda d, n, size: (size * d**2, n * d**2),),
        ),
        Mistake(
            "the matrix divided instead of the vector",
            "Dividing d² entries costs d² operations more. Divide one of the two vectors: d, which is no leading term.",
            lambda d, n, size: (size * d**2, 5 * n * d**2),
        ),
        Mistake(
            "one gradient only",
            "Every gradient corrects the whole matrix once: multiply by their number.",
            lambda d, n, size: (size * d**2, 4 * d**2),
        ),
        Mistake(
            "cubed",
            "Direct inversion costs d³. The recursion multiplies a matrix with a vector, d², for every gradient.",
            lambda d, n, size: (size * d**2, d**3),
            also=(lambda d, n, size: (size * d**2, 4 * n * d**3), lambda d, n, size: (size * d**2, n * d**3)),
        ),
    ),
    also_right=(
        Variant("as a list of floats", lambda d, n, size: [float(size * d * d), 4.0 * n * d * d]),
        Variant(
            "with the lower-order terms",
            lambda d, n, size: (size * d * d, n * (4 * d * d)),
        ),
    ),
    hints=(
        "How many numbers are in a matrix of d rows and columns? How many does one rank-one correction touch?",
        "H⁻¹X: d² multiplications and about as many additions. The correction: as many again.",
    ),
)


EXERCISES = (TAYLOR, OBD_SALIENCY, BACK_ONE_LAYER, RECURSION, OBS_SALIENCY, OBS_UPDATE, PRUNE, SCALE)
