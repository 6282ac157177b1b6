"""The exercise classic.prune, "Delete until it costs too much"; its named mistakes are in prune.md.

Dimension key: d weights.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.checking.call import DidNotFinish
from course_lib.checking.draws import randn
from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.classic.exercises.common import random_hessian, saliency_by_obs, update_by_obs, vector
from course_lib.lessons.common.answers import compare_bars


def _prune(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse = torch.linalg.inv(hessian[keep][:, keep])
        left = weight[keep]
        saliency = saliency_by_obs(left, inverse)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight = weight.index_put((keep.nonzero().flatten(),), update_by_obs(left, inverse, q))
        keep[keep.nonzero().flatten()[q]] = False
    return weight


def _prune_too_far(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Compare the saliency with the limit after the deletion."""
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse, left = torch.linalg.inv(hessian[keep][:, keep]), weight[keep]
        saliency = saliency_by_obs(left, inverse)
        q = int(saliency.argmin())
        weight = weight.index_put((keep.nonzero().flatten(),), update_by_obs(left, inverse, q))
        keep[keep.nonzero().flatten()[q]] = False
        if saliency[q] > limit:
            break
    return weight


def _prune_without_update(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        saliency = saliency_by_obs(weight[keep], torch.linalg.inv(hessian[keep][:, keep]))
        if saliency.min() > limit:
            break
        keep[keep.nonzero().flatten()[int(saliency.argmin())]] = False
    return weight * keep


def _prune_at_once(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    return weight * (saliency_by_obs(weight, torch.linalg.inv(hessian)) > limit)


def _prune_with_first_inverse(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Keep the deleted rows and columns in H, so that deleted weights become nonzero again."""
    inverse, keep = torch.linalg.inv(hessian), torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        saliency = saliency_by_obs(weight, inverse).masked_fill(~keep, torch.inf)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight, keep[q] = update_by_obs(weight, inverse, q), False
    return weight


def _prune_in_first_order(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Sort once and delete in that order."""
    inverse = torch.linalg.inv(hessian)
    saliency = saliency_by_obs(weight, inverse)
    for q in saliency.argsort().tolist():
        if saliency[q] > limit:
            break
        weight = weight - weight[q] / inverse[q, q] * inverse[:, q]
    return weight


def _prune_what_is_not_zero(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Treat a weight as deleted while it is zero, which ends with the next update."""
    inverse = torch.linalg.inv(hessian)
    for _ in range(len(weight)):
        saliency = saliency_by_obs(weight, inverse).masked_fill(weight == 0, torch.inf)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        weight = update_by_obs(weight, inverse, q)
    return weight


def _prune_by_damage(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    return weight * (0.5 * hessian.diagonal() * weight.square() > limit)


def _prune_by_total(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    """Compare the sum of all saliencies so far with the limit."""
    keep, spent = torch.ones(len(weight), dtype=torch.bool), 0.0
    while keep.any():
        inverse, left = torch.linalg.inv(hessian[keep][:, keep]), weight[keep]
        saliency = saliency_by_obs(left, inverse)
        q = int(saliency.argmin())
        spent += saliency[q].item()
        if spent > limit:
            break
        weight = weight.index_put((keep.nonzero().flatten(),), update_by_obs(left, inverse, q))
        keep[keep.nonzero().flatten()[q]] = False
    return weight


def _prune_with(
    weight: Tensor,
    hessian: Tensor,
    limit: float,
    *,
    price: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda left, hessian, inverse: saliency_by_obs(left, inverse),
    inverse_of: Callable[[Tensor, Tensor], Tensor] = lambda hessian, keep: torch.linalg.inv(hessian[keep][:, keep]),
    choose: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    at_least: int = 1,
    too_dear: Callable[[Tensor, float], Tensor] = lambda lowest, limit: lowest > limit,
) -> Tensor:
    """The right loop with one of its parts exchanged."""
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.sum() >= at_least:
        inverse, left, places = inverse_of(hessian, keep), weight[keep], keep.nonzero().flatten()
        parts = left, hessian[keep][:, keep], inverse
        saliency = price(*parts)
        q = int((choose or price)(*parts).argmin())
        if too_dear(saliency[q], limit):
            break
        weight = weight.index_put((places,), update_by_obs(left, inverse, q))
        keep[places[q]] = False
    return weight


def _damage(left: Tensor, hessian: Tensor, inverse: Tensor) -> Tensor:
    return 0.5 * hessian.diagonal() * left.square()


def _prune_by_place(weight: Tensor, hessian: Tensor, limit: float, zero: bool = True, counted: bool = False) -> Tensor:
    """Use an index among the kept weights as one among all, in an endless loop or, counted, in len(weight) steps."""
    keep = torch.ones(len(weight), dtype=torch.bool)
    for _ in range(len(weight)):
        if not keep.any():
            break
        inverse, left, places = torch.linalg.inv(hessian[keep][:, keep]), weight[keep], keep.nonzero().flatten()
        saliency = saliency_by_obs(left, inverse)
        q = int(saliency.argmin())
        if saliency[q] > limit:
            break
        if not keep[q] and not counted:  # that weight is near zero now, and remains the cheapest
            raise DidNotFinish
        weight = weight.index_put((places,), left - left[q] / inverse[q, q] * inverse[:, q])
        if zero:
            weight = weight.index_fill(0, torch.tensor(q), 0.0)
        keep[q] = False
    return weight


def _prune_once(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    inverse = torch.linalg.inv(hessian)
    saliency = saliency_by_obs(weight, inverse)
    q = int(saliency.argmin())
    return weight if saliency[q] > limit else update_by_obs(weight, inverse, q)


def _library(weight: Tensor, hessian: Tensor, limit: float) -> Tensor:
    from course_lib.pruning.classic.obs import inverse_of
    from course_lib.pruning.classic.surfaces import Inverse

    surface, gone = Inverse(inverse_of(hessian)), torch.zeros_like(weight, dtype=torch.bool)
    for _ in weight:
        least, cheapest = surface.saliency(weight).masked_fill(gone, torch.inf).min(dim=0)
        if least <= limit:
            weight, surface = weight + surface.change(weight, int(cheapest)), surface.without(int(cheapest))
            gone[cheapest] = True
    return weight.masked_fill(gone, 0.0)


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
    by_hand = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    rivals = torch.tensor([[3.0, -1.0, 1.0], [-1.0, 3.0, 2.0], [1.0, 2.0, 6.0]])
    coupled = torch.tensor([[2.0, 1.8, 0.0], [1.8, 2.0, 0.0], [0.0, 0.0, 0.36]])

    def drawn(d: int, n_leaving: int) -> tuple:
        """A limit between the largest of the first n costs and the next one, so that rounding has no influence."""
        weight, hessian = randn(generator, d), random_hessian(generator, d)
        order = saliency_by_obs(weight, torch.linalg.inv(hessian)).argsort(descending=True)  # the cheapest one is last
        weight, hessian = weight[order], hessian[order][:, order]
        worst, left, costs = 0.0, weight, []
        keep = torch.ones(d, dtype=torch.bool)
        while keep.any():
            inverse = torch.linalg.inv(hessian[keep][:, keep])
            saliency = saliency_by_obs(left[keep], inverse)
            q = int(saliency.argmin())
            costs.append(saliency[q].item())
            left = left.index_put((keep.nonzero().flatten(),), update_by_obs(left[keep], inverse, q))
            keep[keep.nonzero().flatten()[q]] = False
        for n in range(n_leaving, d):
            worst = max(costs[:n])
            if costs[n] > 1.05 * worst:
                return weight, hessian, (worst + costs[n]) / 2
        return weight, hessian, 2 * worst

    return [
        # saliencies 0.75, 3, 2; without the first weight (1, 2, 2) becomes (0, 2.5, 2), with 2 and 6.25 remaining
        Case("three weights by hand: one is deleted", (vector(1.0, 2.0, 2.0), by_hand, 1.0)),
        # saliencies 0.76, 1.71, 1.125; then 23.04 and 1.125
        Case("OBD would choose another weight, by hand", (vector(2.0, 3.0, 2.5), coupled, 1.0)),
        Case("eight weights, correlated", drawn(8, 4)),
        Case("twelve weights, correlated", drawn(12, 7)),
        Case("nothing is cheap enough", (vector(1.0, 2.0, 2.0), by_hand, 0.5)),
        # saliencies 2, 12.5 twice, 18 twice, exactly, and 18.24
        Case(
            "two saliencies are equal to the limit, and one is just above it",
            (vector(1.0, 2.5, 2.5, 3.0, 3.0, 3.02), 4 * torch.eye(6), 18.0),
        ),
        # saliencies 4.1, 3.4 and 7.25: without the second weight the third is the cheapest, then the first costs 16.7
        Case("two are below the limit, and the cheaper one is deleted first", (vector(-2.0, 2.0, -2.0), rivals, 5.7)),
        Case("all weights are cheap", (randn(generator, 5), random_hessian(generator, 5), 1e6)),
    ]


PRUNE = Exercise(
    id="classic.prune",
    title="Delete until it costs too much",
    difficulty=4,
    minutes=20,
    points=6,
    reference=_prune,
    cases=_prune_cases,
    picture=lambda case, got, expected: compare_bars(
        got, expected, tuple(str(k) for k in range(len(expected))), "weights at the end"
    ),
    library=_library,
    mistakes=read_mistakes(globals()),
    also_right=(
        Variant("one inverse, corrected after each deletion", _prune_by_downdate),
        Variant("a list of indices", lambda w, h, limit: _prune(w.clone(), h.clone(), limit)),
    ),
    hints=(
        "Write a loop: invert the Hessian of the remaining weights, find the lowest saliency, then stop or delete.",
        "hessian[keep][:, keep] is the Hessian of the remaining weights. Its indices count among these weights only.",
        "keep.nonzero().flatten()[q] turns an index q among the remaining weights into an index of the whole vector.",
    ),
)
