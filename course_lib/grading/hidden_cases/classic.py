"""Lesson 02, hidden cases: deletions that lower the error, negative curvatures, limits just above the highest cost.

Dimension key: P patterns, O outputs, d weights; in a layer I units below, L units above.
"""

import torch
from torch import Tensor

from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case


def _vector(*values: float) -> Tensor:
    return torch.tensor(values)


def _hessian(generator: torch.Generator, d: int, shared: float = 1.5) -> Tensor:
    """A random positive definite matrix; the larger `shared`, the stronger all weights are correlated."""
    rows = randn(generator, 3 * d, d) + shared * randn(generator, 3 * d, 1)
    return rows.T @ rows / (3 * d)


def _deleted(generator: torch.Generator, d: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random weights, a mask of the n that are deleted, and the change."""
    weight, gone = randn(generator, d), torch.randperm(d, generator=generator) < n
    return weight, gone, torch.where(gone, -weight, 0.0)


def _taylor(generator: torch.Generator) -> list[Case]:
    """The error falls in all cases except the last two."""
    hessian, (weight, gone, change) = _hessian(generator, 9), _deleted(generator, 9, 4)
    saddle = hessian - 9 * torch.eye(9)
    along, bend = change / change.square().sum(), change @ saddle @ change
    many, few, small = _deleted(generator, 60, 20)
    alone = _vector(1.5)[None], randn(generator, 1).abs() * 0.1 + 1, torch.ones(1, dtype=torch.bool)
    return [
        Case("four of nine weights, steeply downhill", (-(change @ hessian @ change) * along, hessian, weight, gone)),
        Case("a single weight, downhill", (_vector(2.0), *alone)),
        Case("twenty of sixty, small, downhill", (-small, _hessian(generator, 60), 0.05 * many, few)),
        Case("uphill, near a saddle", ((3 + bend.abs()) * along, saddle, weight, gone)),
        Case("nothing is deleted", (randn(generator, 9), hessian, weight, torch.zeros(9, dtype=torch.bool))),
    ]


def _obd_saliency(generator: torch.Generator) -> list[Case]:
    """Each case has negative curvatures."""
    signs = torch.where(torch.arange(40) % 3 == 0, -1.0, 1.0)
    return [
        Case("a single weight, curving down", (randn(generator, 1).abs() + 1, _vector(-1.5))),
        Case("forty weights, every third curving down", (randn(generator, 40), signs * randn(generator, 40).abs())),
        Case("positive, negative and zero curvatures", (randn(generator, 5), _vector(0.0, -2.0, 3.0, 0.0, -0.1))),
    ]


def _back_one_layer(generator: torch.Generator) -> list[Case]:
    def layer(n_patterns: int, above: int, below: int) -> list[Tensor]:
        shapes = (above, below), *[(n_patterns, above)] * 2, *[(n_patterns, below)] * 2
        weight, first, second, slope, bend = (randn(generator, *shape) for shape in shapes)
        return [weight, first, second, slope.abs(), bend]

    saturated = layer(6, 3, 8)
    saturated[3][:, ::2] = 0
    return [
        Case("one pattern, one unit above and one below", tuple(layer(1, 1, 1))),
        Case("thirty patterns, twelve units above one", tuple(layer(30, 12, 1))),
        Case("every second unit has no slope", tuple(saturated)),
    ]


def _recursion(generator: torch.Generator) -> list[Case]:
    no_gradient = randn(generator, 12, 1, 5)
    no_gradient[[0, 3, 4, 11]] = 0
    return [
        Case("a single weight, five patterns", (randn(generator, 5, 1, 1), 0.2)),
        Case("patterns without a gradient", (no_gradient, 0.1)),
        Case("large gradients, as many outputs as weights, a large alpha", (10 * randn(generator, 15, 4, 4), 50.0)),
        Case("150 patterns", (randn(generator, 150, 1, 8), 1.0)),
    ]


def _obs_saliency(generator: torch.Generator) -> list[Case]:
    scale = torch.logspace(-2, 2, 7)
    uneven = torch.linalg.inv(_hessian(generator, 7) * scale * scale[:, None])
    inverse = torch.linalg.inv(_hessian(generator, 3))
    return [
        Case(
            "thirty weights with strong correlations", (randn(generator, 30), torch.linalg.inv(_hessian(generator, 30)))
        ),
        Case("very large and very small curvatures", (randn(generator, 7) / scale, uneven)),
        Case("one weight is zero already", (_vector(0.0, -2.0, 1.0), inverse)),
    ]


def _with(weight: Tensor, place: int, value: float) -> Tensor:
    return weight.index_fill(0, torch.tensor(place), value)


def _obs_update(generator: torch.Generator) -> list[Case]:
    same = torch.linalg.inv(_vector(1.0, 0.99, 0.99, 1.0).reshape(2, 2))
    many = torch.linalg.inv(_hessian(generator, 20))
    return [
        Case("two weights that are nearly interchangeable", (_vector(1.0, 0.5), same, 1)),
        Case("the first of twenty is deleted, negative", (_with(randn(generator, 20), 0, -1.5), many, 0)),
        Case("the last of six is deleted", (randn(generator, 6), torch.linalg.inv(_hessian(generator, 6)), 5)),
    ]


def _costs(weight: Tensor, hessian: Tensor) -> list[float]:
    """The cost of each deletion in the order of OBS, if all weights are deleted."""
    costs = []
    while len(weight):
        inverse = torch.linalg.inv(hessian)
        saliency = weight.square() / (2 * inverse.diagonal())
        q = int(saliency.argmin())
        costs.append(saliency[q].item())
        rest = torch.arange(len(weight)) != q
        weight = (weight - weight[q] / inverse[q, q] * inverse[:, q])[rest]
        hessian = hessian[rest][:, rest]
    return costs


# Two problems in which OBD's order, a sum of costs, a missing update or an old inverse give a higher cost than OBS.
# The last deletion of OBS is not the most expensive one.
_FOUR = ((-2, 1, -1, 3), ((5, -4, 5, 6), (-4, 9, -4, -4), (5, -4, 8.5, 8), (6, -4, 8, 10.5)))
_FIVE = (
    (3, -4, 4, 4, 1),
    ((9, 4, -5, 3, -2), (4, 7, -1, 2, -6), (-5, -1, 12.5, -1, -6), (3, 2, -1, 6, -6), (-2, -6, -6, -6, 16.5)),
)


def _rivals(generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Two of three weights are below the limit. In another order than that of OBS, other weights are kept."""
    scale = 1 + torch.rand((), generator=generator)
    hessian = _vector(9.0, 8.0, -6.0, 8.0, 10.0, -8.0, -6.0, -8.0, 10.0).reshape(3, 3)
    return scale * _vector(-2.0, -2.0, -2.0), hessian, 6.1 * scale.item() ** 2


def _prune(generator: torch.Generator) -> list[Case]:
    def all_deleted(weight: tuple, hessian: tuple) -> tuple[Tensor, Tensor, float]:
        """In random order and on a random scale. The limit is above each cost and below their sum."""
        order = torch.randperm(len(weight), generator=generator)
        scale = 0.5 + torch.rand((), generator=generator)
        w, h = (torch.tensor(numbers, dtype=torch.float32) for numbers in (weight, hessian))
        w, h = w[order], scale * h[order][:, order]
        return w, h, 1.05 * max(_costs(w, h))

    def some_deleted(d: int, n_deleted: int) -> tuple[Tensor, Tensor, float]:
        """The limit is between two costs, so that rounding has no influence."""
        while True:
            weight, hessian = randn(generator, d), _hessian(generator, d)
            by_cost = (weight.square() / torch.linalg.inv(hessian).diagonal()).argsort(descending=True)
            weight, hessian = weight[by_cost], hessian[by_cost][:, by_cost]
            costs = _costs(weight, hessian)
            highest = max(costs[:n_deleted])
            if costs[n_deleted] > 1.1 * highest:
                return weight, hessian, (costs[n_deleted] + highest) / 2

    return [
        Case("fifteen weights with strong correlations", some_deleted(15, 6)),
        Case("four weights, all deleted", all_deleted(*_FOUR)),
        Case("two of three below the limit", _rivals(generator)),
        Case("five weights, all deleted", all_deleted(*_FIVE)),
    ]


def _scale(generator: torch.Generator) -> list[Case]:
    n_weights, n_gradients = torch.randint(100, 9000, (2,), generator=generator).tolist()
    return [
        Case("fewer gradients than weights", (12_345, 6, 8)),
        Case("few weights, many gradients", (7, 100_000, 2)),
        Case("random sizes, float32", (n_weights, n_gradients, 4)),
    ]


HIDDEN = {
    "classic.taylor": _taylor,
    "classic.obd_saliency": _obd_saliency,
    "classic.back_one_layer": _back_one_layer,
    "classic.recursion": _recursion,
    "classic.obs_saliency": _obs_saliency,
    "classic.obs_update": _obs_update,
    "classic.prune": _prune,
    "classic.scale": _scale,
}
