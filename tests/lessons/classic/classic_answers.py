"""Answers to the exercises of lesson 02, as people write them.

Dimension key: P patterns, O outputs, d weights; in a layer I units below, L units above.
"""

import numpy
import torch


def right_taylor(g, h, c):
    return g @ c + 0.5 * c @ h @ c


def of_deletions(answer):
    """An answer that is given the change in place of the weights and of the mask of those that are deleted."""
    return lambda g, h, w, gone: answer(g, h, -w * gone)


def taylor_in_a_loop(gradient, hessian, weight, gone):
    change, total = [-w.item() if g else 0.0 for w, g in zip(weight, gone, strict=True)], 0.0
    for i in range(len(change)):
        total += gradient[i].item() * change[i]
        for j in range(len(change)):
            total += 0.5 * change[i] * hessian[i, j].item() * change[j]
    return total


def right_obd(w, h):
    return 0.5 * h * w**2


def taylor_of_the_deleted_alone(gradient, hessian, weight, gone):
    index = gone.nonzero().flatten()
    w = weight[index]
    return -gradient[index] @ w + w @ hessian[index][:, index] @ w / 2


def taylor_one_after_the_other(gradient, hessian, weight, gone):
    """Each deletion sees the gradient that those before it left."""
    total = 0.0
    for k in gone.nonzero().flatten().tolist():
        total += (-gradient[k] * weight[k] + hessian[k, k] * weight[k] ** 2 / 2).item()
        gradient = gradient - hessian[:, k] * weight[k]
    return total


def obd_by_taylor(weight, diagonal):
    costs = []
    for k in range(len(weight)):
        change = torch.zeros(len(weight))
        change[k] = -weight[k]
        costs.append(0.5 * change @ torch.diag(diagonal) @ change)
    return costs


def right_back(weight, second, to_unit, slope, bend):
    return slope**2 * (second @ weight**2) + bend * to_unit


def back_in_a_loop(weight, second, to_unit, slope, bend):
    found = numpy.zeros(tuple(slope.shape))
    for p in range(slope.shape[0]):
        for i in range(slope.shape[1]):
            above = sum(float(weight[j, i]) ** 2 * float(second[p, j]) for j in range(len(weight)))
            found[p, i] = float(slope[p, i]) ** 2 * above + float(bend[p, i]) * float(to_unit[p, i])
    return found


def back_of_lists(weight, second, to_unit, slope, bend):
    return [right_back(weight, second[[p]], to_unit[[p]], slope[[p]], bend[[p]])[0] for p in range(len(second))]


def of_the_layer_above(answer):
    """An answer that is given dE/dx of the lower units in place of dE/da of the upper ones."""
    return lambda w, first, s, f1, f2: answer(w, s, first @ w, f1, f2)


def back_by_autograd(weight, first, second, slope, bend):
    """E = first · a + second / 2 · a², and f with the given derivatives: the Hessian's diagonal without its pairs."""
    total = 0
    for one, first_of_one, second_of_one in zip(weight, first.T, second.T, strict=True):
        moved = torch.zeros_like(slope).requires_grad_()
        above = (slope * moved + bend * moved**2 / 2) * one
        error = (first_of_one[:, None] * above + second_of_one[:, None] / 2 * above**2).sum()
        (gradient,) = torch.autograd.grad(error, moved, create_graph=True)
        total = total + torch.autograd.grad(gradient.sum(), moved)[0]
    return total


def recursion_by(step, start=lambda d, alpha: torch.eye(d) / alpha):
    """An answer that goes through the patterns with step(inverse, x, n)."""

    def answer(gradients, alpha):
        inverse = start(gradients.shape[-1], alpha)
        for x in gradients.flatten(0, 1):
            inverse = inverse + step(inverse, x, len(gradients))
        return inverse

    return answer


def right_step(inverse, x, n):
    return -torch.outer(inverse @ x, inverse @ x) / (n + x @ inverse @ x)


right_recursion = recursion_by(right_step)


def recursion_of_columns(gradients, alpha):
    p, o, d = gradients.shape
    inverse = torch.eye(d) / alpha
    for k in range(p):
        for output in range(o):
            x = gradients[k, output].reshape(d, 1)
            inverse -= inverse @ x @ x.T @ inverse / (p + x.T @ inverse @ x)
    return inverse


def recursion_in_numpy(gradients, alpha):
    x = gradients.numpy()
    inverse = numpy.eye(x.shape[2]) / alpha
    for row in x.reshape(-1, x.shape[2]):
        moved = inverse @ row
        inverse -= numpy.outer(moved, moved) / (len(x) + row @ moved)
    return inverse


def recursion_frozen(gradients, alpha):
    first = torch.eye(gradients.shape[-1]) / alpha
    inverse = first.clone()
    for x in gradients.flatten(0, 1):
        inverse -= torch.outer(first @ x, first @ x) / (len(gradients) + x @ first @ x)
    return inverse


def recursion_counting(gradients, alpha):
    inverse = torch.eye(gradients.shape[-1]) / alpha
    for k, x in enumerate(gradients.flatten(0, 1)):
        inverse = inverse + right_step(inverse, x, k + 1)
    return inverse


def recursion_that_returns_early(gradients, alpha):
    inverse = torch.eye(gradients.shape[-1]) / alpha
    for x in gradients.flatten(0, 1):
        inverse = inverse + right_step(inverse, x, len(gradients))
        return inverse


def all_outputs_at_once(gradients, alpha):
    """One correction of rank O for each pattern: Woodbury's formula."""
    inverse = torch.eye(gradients.shape[-1]) / alpha
    for x in gradients:
        inside = len(gradients) * torch.eye(len(x)) + x @ inverse @ x.T
        inverse = inverse - inverse @ x.T @ torch.linalg.solve(inside, x @ inverse)
    return inverse


def outer_sum(gradients):
    rows = gradients.flatten(0, 1)
    return rows.T @ rows


def right_saliency(w, i):
    return w**2 / (2 * i.diagonal())


def right_update(w, i, q):
    return w - w[q] / i[q, q] * i[:, q]


def update_with_a_unit_vector(weight, inverse, q):
    e = torch.zeros(len(weight))
    e[q] = 1
    return weight - weight[q] / inverse[q, q] * (inverse @ e)


def update_in_place(weight, inverse, q):
    weight -= weight[q].item() / inverse[q, q].item() * inverse[q]
    weight[q] = 0
    return weight


def update_in_a_loop(weight, inverse, q):
    return [float(weight[k] - weight[q] / inverse[q, q] * inverse[k, q]) for k in range(len(weight))]


def update_after_zero(weight, inverse, q):
    weight[q] = 0
    return weight - weight[q] / inverse[q, q] * inverse[:, q]


def prune_by(
    choose=lambda left, hessian, inverse: right_saliency(left, inverse).argmin(),
    price=lambda left, hessian, inverse: right_saliency(left, inverse),
    stops=lambda price, limit: price > limit,
    update=right_update,
    inverse_of=lambda hessian, keep: torch.linalg.inv(hessian[keep][:, keep]),
    left=0,
):
    """The surgeon's loop with parts of it exchanged."""

    def answer(weight, hessian, limit):
        keep = torch.ones(len(weight), dtype=torch.bool)
        while keep.sum() > left:
            parts = weight[keep], hessian[keep][:, keep], inverse_of(hessian, keep)
            q = int(choose(*parts))
            if stops(price(*parts)[q], limit):
                break
            places = keep.nonzero().flatten()
            weight[places] = update(parts[0], parts[2], q)
            weight[places[q]] = 0
            keep[places[q]] = False
        return weight

    return answer


right_prune = prune_by()


def prune_with_a_list(weight, hessian, limit):
    weight, left = weight.double(), list(range(len(weight)))
    while left:
        inverse = torch.linalg.inv(hessian.double()[left][:, left])
        prices = [float(weight[k] ** 2 / inverse[n, n] / 2) for n, k in enumerate(left)]
        n = prices.index(min(prices))
        if prices[n] > limit:
            return weight
        weight[left] -= weight[left[n]] / inverse[n, n] * inverse[:, n]
        weight[left[n]] = 0
        del left[n]
    return weight


def prune_in_numpy(weight, hessian, limit):
    w, h = weight.numpy().astype(float), hessian.numpy().astype(float)
    left = numpy.arange(len(w))
    while len(left):
        inverse = numpy.linalg.inv(h[numpy.ix_(left, left)])
        price = w[left] ** 2 / 2 / numpy.diag(inverse)
        q = price.argmin()
        if price[q] > limit:
            break
        w[left] -= w[left[q]] / inverse[q, q] * inverse[:, q]
        w[left[q]] = 0.0
        left = numpy.delete(left, q)
    return w


def prune_by_elimination(weight, hessian, limit):
    inverse = torch.linalg.inv(hessian)
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        price = torch.where(keep, weight**2 / (2 * inverse.diagonal()), torch.inf)
        q = int(price.argmin())
        if price[q] > limit:
            break
        weight = right_update(weight, inverse, q)
        inverse = inverse - torch.outer(inverse[:, q], inverse[:, q]) / inverse[q, q]
        keep[q] = False
        weight[~keep] = 0
    return weight


def prune_at_once(weight, hessian, limit):
    weight[right_saliency(weight, torch.linalg.inv(hessian)) <= limit] = 0
    return weight


def prune_once(weight, hessian, limit):
    inverse = torch.linalg.inv(hessian)
    price = right_saliency(weight, inverse)
    q = price.argmin()
    return right_update(weight, inverse, q) if price[q] <= limit else weight


def prune_with_one_inverse(weight, hessian, limit):
    inverse, keep = torch.linalg.inv(hessian), torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        price = right_saliency(weight, inverse)
        price[~keep] = torch.inf
        q = price.argmin()
        if price[q] > limit:
            break
        weight = right_update(weight, inverse, q)
        weight[q] = 0
        keep[q] = False
    return weight


def prune_until_an_error(weight, hessian, limit):
    keep = torch.ones(len(weight), dtype=torch.bool)
    while True:
        inverse = torch.linalg.inv(hessian[keep][:, keep])
        price = right_saliency(weight[keep], inverse)
        q = price.argmin()
        if price[q] > limit:
            return weight
        places = keep.nonzero().flatten()
        weight[keep] = right_update(weight[keep], inverse, q)
        weight[places[q]], keep[places[q]] = 0, False


def prune_and_look_after(weight, hessian, limit):
    keep = torch.ones(len(weight), dtype=torch.bool)
    while keep.any():
        inverse, places = torch.linalg.inv(hessian[keep][:, keep]), keep.nonzero().flatten()
        price = right_saliency(weight[keep], inverse)
        q = price.argmin()
        weight[keep] = right_update(weight[keep], inverse, q)
        weight[places[q]], keep[places[q]] = 0, False
        if price[q] > limit:
            break
    return weight


def prune_first_below(weight, hessian, limit):
    def first(left, hessian, inverse):
        below = (right_saliency(left, inverse) <= limit).nonzero().flatten()
        return below[0] if len(below) else 0

    return prune_by(choose=first)(weight, hessian, limit)


def prune_by_sum(weight, hessian, limit):
    spent = []

    def stops(price, limit):
        spent.append(price)
        return sum(spent) > limit

    return prune_by(stops=stops)(weight, hessian, limit)


def damage(left, hessian, inverse):
    return 0.5 * hessian.diagonal() * left**2


def given_the_gradient(ways, further):
    """Answers written with the gradient of the lower units, and further ones, written with what is given."""
    named = {what: way if isinstance(way, tuple) else (way, None) for what, way in ways.items()}
    return {what: (of_the_layer_above(function), name) for what, (function, name) in named.items()} | further


RIGHT = {
    "classic.taylor": {
        "a loop": taylor_in_a_loop,
        "einsum": of_deletions(lambda g, h, c: torch.einsum("i,i->", g, c) + torch.einsum("i,ij,j->", c, h, c) / 2),
        "numpy": of_deletions(lambda g, h, c: numpy.dot(g, c) + c.numpy() @ h.numpy() @ c.numpy() / 2),
        "float64": of_deletions(lambda g, h, c: right_taylor(g.double(), h.double(), c.double()).item()),
        "the deleted alone": taylor_of_the_deleted_alone,
        "one after the other": taylor_one_after_the_other,
    },
    "classic.obd_saliency": {
        "Taylor, one change at a time": obd_by_taylor,
        "in place, float64": lambda w, h: w.double().pow_(2).mul_(h).mul_(0.5),
        "a list": lambda w, h: [float(a) ** 2 * float(b) / 2 for a, b in zip(w, h, strict=True)],
        "numpy": lambda w, h: h.numpy() * w.numpy() ** 2 / 2,
    },
    "classic.back_one_layer": {
        "loops": of_the_layer_above(back_in_a_loop),
        "pattern by pattern, a list": of_the_layer_above(back_of_lists),
        "float64": of_the_layer_above(lambda *parts: right_back(*(part.double() for part in parts))),
        "broadcast": of_the_layer_above(
            lambda w, s, t, f1, f2: (s[:, :, None] * w[None] ** 2).sum(1) * f1 * f1 + f2 * t
        ),
        "differentiated, one unit above at a time": back_by_autograd,
    },
    "classic.recursion": {
        "as printed, with the identity": right_recursion,
        "columns, in place": recursion_of_columns,
        "numpy": recursion_in_numpy,
        "inverted": lambda g, a: torch.inverse(a * torch.eye(g.shape[2]) + outer_sum(g) / g.shape[0]),
        "float64": lambda g, a: torch.linalg.inv(
            a * torch.eye(g.shape[2], dtype=torch.float64) + outer_sum(g.double()) / len(g)
        ),
        "all outputs of a pattern at once": all_outputs_at_once,
    },
    "classic.obs_saliency": {
        "a loop": lambda w, i: [w[q] ** 2 / (2 * i[q, q]) for q in range(len(w))],
        "torch.diag": lambda w, i: 0.5 * w * w / torch.diag(i),
        "numpy": lambda w, i: w.numpy() ** 2 / (2 * i.numpy().diagonal()),
        "float64": lambda w, i: right_saliency(w.double(), i.double()),
    },
    "classic.obs_update": {
        "with a unit vector, as printed": update_with_a_unit_vector,
        "in place": update_in_place,
        "a loop, as a list": update_in_a_loop,
        "numpy": lambda w, i, q: w.numpy() - w.numpy()[q] * i.numpy()[:, q] / i.numpy()[q, q],
        "float64": lambda w, i, q: right_update(w.double(), i.double(), q),
    },
    "classic.prune": {
        "a list of those that stay, float64": prune_with_a_list,
        "numpy": prune_in_numpy,
        "elimination in place of inversion": prune_by_elimination,
        "the loop, in place": right_prune,
    },
    "classic.scale": {
        "numpy": lambda d, n, size: (numpy.float64(size) * d * d, 4.0 * n * d * d),
        "by parts": lambda d, n, size: [d * d * size, n * (d * (d + d) + 2 * d * d)],
        "torch": lambda d, n, size: (d**2 * size, torch.tensor(4.0 * n * d**2, dtype=torch.float64)),
    },
}

WRONG = {
    "classic.taylor": {
        "no half": (of_deletions(lambda g, h, c: g @ c + c @ h @ c), "half forgotten"),
        "half of all": (of_deletions(lambda g, h, c: (g @ c + c @ h @ c) / 2), "half of both terms"),
        "first term": (of_deletions(lambda g, h, c: g @ c), "second term forgotten"),
        "second term": (of_deletions(lambda g, h, c: c @ h @ c / 2), "gradient dropped"),
        "minus": (of_deletions(lambda g, h, c: g @ c - c @ h @ c / 2), "second term subtracted"),
        "upwards": (lambda g, h, w, gone: right_taylor(g, h, w * gone), "sign of the change"),
        "absolute": (of_deletions(lambda g, h, c: abs(g @ c + c @ h @ c / 2)), "made positive"),
        "diagonal": (of_deletions(lambda g, h, c: g @ c + 0.5 * h.diagonal() @ c**2), "diagonal only"),
        "elementwise": (of_deletions(lambda g, h, c: g * c + 0.5 * c * (h @ c)), "one number for each weight"),
        "vector": (of_deletions(lambda g, h, c: g + 0.5 * h @ c), "one number for each weight"),
        "broadcast": (of_deletions(lambda g, h, c: g @ c + 0.5 * (c * h * c).sum()), "change in one place of two"),
        "one side": (of_deletions(lambda g, h, c: g @ c + 0.5 * (h @ c).sum()), "change in one place of two"),
        "gradient twice": (of_deletions(lambda g, h, c: g @ c + 0.5 * g @ h @ g), "gradient in place of the change"),
        "a sixth": (of_deletions(lambda g, h, c: g @ c + c @ h @ c / 6), ""),
        "half of the first": (of_deletions(lambda g, h, c: 0.5 * g @ c + c @ h @ c), ""),
        "squared": (of_deletions(lambda g, h, c: right_taylor(g, h, c) ** 2), ""),
        "all of them": (lambda g, h, w, gone: right_taylor(g, h, -w), "all deleted"),
        "the kept ones": (lambda g, h, w, gone: right_taylor(g, h, -w * ~gone), "the others deleted"),
        "the mask": (lambda g, h, w, gone: right_taylor(g, h, -gone.float()), "mask in place of the weights"),
        "masked after": (lambda g, h, w, gone: gone * (-g * w + w * (h @ w) / 2), ""),
        "mask outside": (
            lambda g, h, w, gone: (-g * w * gone).sum() + 0.5 * (w * gone) @ h @ w,
            "kept weights on one side",
        ),
    },
    "classic.obd_saliency": {
        "no half": (lambda w, h: h * w**2, "half forgotten"),
        "not squared": (lambda w, h: h * w / 2, "weight not squared"),
        "size": (lambda w, h: 0.5 * h * abs(w), "weight not squared"),
        "squared together": (lambda w, h: 0.5 * (h * w) ** 2, "curvature squared"),
        "magnitude": (lambda w, h: w.abs(), "magnitude alone"),
        "squares alone": (lambda w, h: w**2 / 2, "magnitude alone"),
        "divided": (lambda w, h: w**2 / (2 * h), "divided by the curvature"),
        "absolute": (lambda w, h: 0.5 * abs(h) * w**2, "curvature made positive"),
        "cut at zero": (lambda w, h: (0.5 * h * w**2).clamp(min=0), "curvature made positive"),
        "sum": (lambda w, h: 0.5 * (h * w**2).sum(), "added up"),
        "root": (lambda w, h: (0.5 * h * w**2).sqrt(), "root of the cost"),
        "share": (lambda w, h: right_obd(w, h) / right_obd(w, h).sum(), "fraction of the total"),
        "minus": (lambda w, h: -0.5 * h * w**2, "sign reversed"),
        "half inside": (lambda w, h: h * (w / 2) ** 2, "a quarter"),
        "outer": (lambda w, h: 0.5 * torch.outer(h, w**2), ""),
        "whole numbers": (lambda w, h: 1 // 2 * h * w**2, ""),
    },
    "classic.back_one_layer": given_the_gradient(
        {
            "not squared": (lambda w, s, t, f1, f2: f1**2 * (s @ w) + f2 * t, "weights not squared"),
            "sum squared": (lambda w, s, t, f1, f2: f1**2 * (s @ w) ** 2 + f2 * t, "squared after the sum"),
            "slope once": (lambda w, s, t, f1, f2: f1 * (s @ w**2) + f2 * t, "slope not squared"),
            "no slope": (lambda w, s, t, f1, f2: s @ w**2 + f2 * t, "slope forgotten"),
            "no bend": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2), "bend forgotten"),
            "bend alone": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2) + f2, "bend without the gradient"),
            "brackets": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2 + f2 * t), "slope multiplies both terms"),
            "exchanged": (lambda w, s, t, f1, f2: f2**2 * (s @ w**2) + f1 * t, "slope and bend exchanged"),
            "minus": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2) - f2 * t, "terms subtracted"),
            "sizes": (lambda w, s, t, f1, f2: f1**2 * (s @ w.abs()) + f2 * t, "absolute value in place of the square"),
            "second squared": (lambda w, s, t, f1, f2: f1**2 * (s**2 @ w**2) + f2 * t, "curvature squared"),
            "bend squared": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2) + f2**2 * t, "bend squared"),
            "patterns added": (lambda *parts: right_back(*parts).sum(0), "patterns added up"),
            "patterns averaged": (lambda *parts: right_back(*parts).mean(0), "patterns added up"),
            "multiplied": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2) * f2 * t, "terms multiplied"),
            "from above alone": (lambda w, s, t, f1, f2: s @ w**2, "curvature from above alone"),
            "slope once, no bend": (lambda w, s, t, f1, f2: f1 * (s @ w**2), "slope not squared, bend forgotten"),
            "gradient squared": (lambda w, s, t, f1, f2: f1**2 * (s @ w**2) + f2 * t**2, ""),
            "transposed weight": lambda w, s, t, f1, f2: f1**2 * (s @ w.T**2) + f2 * t,
            "half": (lambda *parts: 0.5 * right_back(*parts), ""),
        },
        {
            "of a": (
                lambda w, g, s, f1, f2: f1**2 * (s @ w**2) + f2 * (f1 * (g @ w)),
                "gradient with respect to a, not x",
            ),
            "first through squares": (
                lambda w, g, s, f1, f2: f1**2 * (s @ w**2) + f2 * (g @ w**2),
                "gradient through squared weights",
            ),
            "first added up": (
                lambda w, g, s, f1, f2: f1**2 * (s @ w**2) + f2 * g.sum(1)[:, None],
                "gradient without the weights",
            ),
            "second twice": (
                lambda w, g, s, f1, f2: f1**2 * (s @ w**2) + f2 * (s @ w),
                "second derivatives in place of first",
            ),
            "as it comes": (lambda w, g, s, f1, f2: f1**2 * (s @ w**2) + f2 * g, None),
        },
    ),
    "classic.recursion": {
        "no P": (recursion_by(lambda h, x, n: right_step(h, x, 1)), "number of patterns forgotten"),
        "running count": (recursion_counting, "patterns so far instead of all"),
        "start at alpha": (recursion_by(right_step, lambda d, a: a * torch.eye(d)), "start not inverted"),
        "start at I": (recursion_by(right_step, lambda d, a: torch.eye(d)), "start at the identity"),
        "start at nothing": (recursion_by(right_step, lambda d, a: torch.zeros(d, d)), ""),
        "plus": (recursion_by(lambda h, x, n: -right_step(h, x, n)), "added instead of subtracted"),
        "one factor": (
            recursion_by(lambda h, x, n: -torch.outer(h @ x, x) / (n + x @ h @ x)),
            "one factor of the inverse missing",
        ),
        "no factor": (
            recursion_by(lambda h, x, n: -torch.outer(x, x) / (n + x @ h @ x)),
            "one factor of the inverse missing",
        ),
        "frozen": (recursion_frozen, "always the first inverse"),
        "first pattern": (recursion_that_returns_early, "one gradient only"),
        "no alpha": (lambda g, a: torch.linalg.pinv(outer_sum(g) / len(g)), "alpha forgotten"),
        "H": (lambda g, a: a * torch.eye(g.shape[-1]) + outer_sum(g) / len(g), "H instead of its inverse"),
        "d for P": (
            lambda g, a: torch.linalg.inv(a * torch.eye(g.shape[-1]) + outer_sum(g) / g.shape[-1]),
            "weights counted in place of patterns",
        ),
        "mean gradient": (
            lambda g, a: torch.linalg.inv(a * torch.eye(g.shape[-1]) + outer_sum(g.mean(0, keepdim=True))),
            "outer product of the mean gradient",
        ),
        "1 + and 1/P": (
            recursion_by(lambda h, x, n: -torch.outer(h @ x, h @ x) / n / (1 + x @ h @ x)),
            "P taken out of the sum",
        ),
        "no curvature below": (
            recursion_by(lambda h, x, n: -torch.outer(h @ x, h @ x) / n),
            "denominator without the curvature",
        ),
        "no inverse below": (
            recursion_by(lambda h, x, n: -torch.outer(h @ x, h @ x) / (n + x @ x)),
            "one inverse missing in the denominator",
        ),
        "squares": (
            recursion_by(lambda h, x, n: -((h @ x) ** 2) / (n + x @ h @ x)),
            "squares in place of the outer product",
        ),
        "dot product": (
            recursion_by(lambda h, x, n: -((h @ x) @ (h @ x)) / (n + x @ h @ x)),
            "squares in place of the outer product",
        ),
        "transposed": lambda g, a: torch.linalg.inv(
            a * torch.eye(len(g.flatten(0, 1))) + g.flatten(0, 1) @ g.flatten(0, 1).T / len(g)
        ),
        "rows for P": (
            lambda g, a: right_recursion(g.flatten(0, 1)[:, None], a),
            "gradients counted in place of patterns",
        ),
        "sum of outputs": (lambda g, a: right_recursion(g.sum(1, keepdim=True), a), "outputs added up first"),
        "first output": (lambda g, a: right_recursion(g[:, :1], a), "only one output"),
        "mean at the end": lambda g, a: right_recursion(g, a) / len(g),
    },
    "classic.obs_saliency": {
        "no half": (lambda w, i: w**2 / i.diagonal(), "half forgotten"),
        "multiplied": (lambda w, i: w**2 * i.diagonal() / 2, "multiplied instead of divided"),
        "precedence": (lambda w, i: w**2 / 2 * i.diagonal(), "multiplied instead of divided"),
        "not squared": (lambda w, i: w / (2 * i.diagonal()), "weight not squared"),
        "size": (lambda w, i: w.abs() / (2 * i.diagonal()), "weight not squared"),
        "OBD": (lambda w, i: 0.5 * torch.linalg.inv(i).diagonal() * w**2, "diagonal of H"),
        "divided by h": (lambda w, i: w**2 / (2 * torch.linalg.inv(i).diagonal()), "divided by the diagonal of H"),
        "matrix": (lambda w, i: w**2 / (2 * i), "a matrix in place of its diagonal"),
        "column norms": (lambda w, i: w**2 / (2 * i.norm(dim=0)), "whole column instead of the diagonal"),
        "row sums": (lambda w, i: w**2 / (2 * i.sum(1)), "whole column instead of the diagonal"),
        "twice": (lambda w, i: 2 * w**2 / i.diagonal(), "twice in place of half"),
        "squared together": (lambda w, i: (w / i.diagonal()) ** 2 / 2, "diagonal squared"),
        "magnitude": (lambda w, i: w**2 / 2, "magnitude alone"),
        "lowest": (lambda w, i: right_saliency(w, i).min(), "only the lowest"),
        "which is lowest": (lambda w, i: right_saliency(w, i).argmin(), "the index of the lowest"),
        "root": (lambda w, i: right_saliency(w, i).sqrt(), ""),
        "trace": (lambda w, i: w**2 / (2 * i.trace()), ""),
    },
    "classic.obs_update": {
        "size": (lambda w, i, q: w - w[q].abs() / i[q, q] * i[:, q], "absolute value of the deleted weight"),
        "plus": (lambda w, i, q: w + w[q] / i[q, q] * i[:, q], "wrong direction"),
        "nothing moves": (lambda w, i, q: w * (torch.arange(len(w)) != q), "nothing else moves"),
        "zeroed first": (update_after_zero, "nothing else moves"),
        "no pivot": (lambda w, i, q: w - w[q] * i[:, q], "not divided by the pivot"),
        "times the pivot": (lambda w, i, q: w - w[q] * i[q, q] * i[:, q], "multiplied by the pivot"),
        "change": (lambda w, i, q: -w[q] / i[q, q] * i[:, q], "change instead of the weights"),
        "diagonal": (lambda w, i, q: w - w[q] / i[q, q] * i.diagonal(), "diagonal instead of the column"),
        "half": (lambda w, i, q: w - w[q] / (2 * i[q, q]) * i[:, q], "half of the update"),
        "squared": (lambda w, i, q: w - w[q] ** 2 / (2 * i[q, q]) * i[:, q], "weight squared"),
        "not scaled": (lambda w, i, q: w - i[:, q] / i[q, q], "not scaled by the deleted weight"),
        "all weights": (lambda w, i, q: w - w / i[q, q] * i[:, q], "each weight in place of the deleted one"),
        "all columns": (lambda w, i, q: w - w[q] / i[q, q] * i.sum(1), "all columns together"),
        "column of H": (
            lambda w, i, q: w - w[q] / torch.linalg.inv(i)[q, q] * torch.linalg.inv(i)[:, q],
            "column of H",
        ),
        "cut out": (
            lambda w, i, q: right_update(w, i, q)[torch.arange(len(w)) != q],
            "one weight less",
        ),
        "a matrix": (lambda w, i, q: w - w[q] / i[q, q] * i, ""),
        "one number": (lambda w, i, q: w - w[q] / i[q, q], ""),
        "left as it was": (lambda w, i, q: w, ""),
    },
    "classic.prune": {
        "at the limit": (prune_by(stops=lambda price, limit: price >= limit), "stopped at the limit"),
        "first below": (prune_first_below, "first below the limit"),
        "look after": (prune_and_look_after, "one deletion too many"),
        "no update": (prune_by(update=lambda w, i, q: w), "no update"),
        "at once": (prune_at_once, "all at once"),
        "once": (prune_once, "one deletion only"),
        "one inverse": (prune_with_one_inverse, "inverse of the whole Hessian kept"),
        "part of one inverse": (
            prune_by(inverse_of=lambda h, keep: torch.linalg.inv(h)[keep][:, keep]),
            "part of the first inverse",
        ),
        "OBD": (
            prune_by(choose=lambda *parts: damage(*parts).argmin(), price=damage, update=lambda w, i, q: w),
            "OBD's loop",
        ),
        "OBD's order": (
            prune_by(choose=lambda *parts: damage(*parts).argmin()),
            "OBD's choice with the update of OBS",
        ),
        "OBD's price": (
            prune_by(choose=lambda *parts: damage(*parts).argmin(), price=damage),
            "OBD's choice with the update of OBS",
        ),
        "no half": (
            prune_by(price=lambda left, h, i: left**2 / i.diagonal()),
            "half forgotten",
        ),
        "sum": (prune_by_sum, "limit on the sum"),
        "one stays": (prune_by(left=1), "one weight is always kept"),
        "no end": (prune_until_an_error, ""),
        "dearest": (prune_by(choose=lambda left, h, i: right_saliency(left, i).argmax()), "most expensive first"),
        "smallest": (prune_by(choose=lambda left, h, i: left.abs().argmin()), "smallest weight chosen"),
        "plus": prune_by(update=lambda w, i, q: w + w[q] / i[q, q] * i[:, q]),
        "no pivot": prune_by(update=lambda w, i, q: w - w[q] * i[:, q]),
        "multiplied": prune_by(
            choose=lambda left, h, i: (left**2 * i.diagonal()).argmin(),
            price=lambda left, h, i: left**2 * i.diagonal() / 2,
        ),
    },
    "classic.scale": {
        "a vector": (lambda d, n, size: (size * d, 4 * n * d), "one number per weight"),
        "OBD's bytes": (lambda d, n, size: (size * d, 4 * n * d**2), "one number per weight"),
        "numbers": (lambda d, n, size: (d**2, 4 * n * d**2), "numbers instead of bytes"),
        "half": (lambda d, n, size: (size * d**2, 2 * n * d**2), "half of the operations"),
        "a quarter": (lambda d, n, size: (size * d**2, n * d**2), "half of the operations"),
        "three": (lambda d, n, size: (size * d**2, 3 * n * d**2), "product without its additions"),
        "five": (lambda d, n, size: (size * d**2, 5 * n * d**2), "the matrix divided instead of the vector"),
        "one gradient": (lambda d, n, size: (size * d**2, 4 * d**2), "one gradient only"),
        "cubed": (lambda d, n, size: (size * d**2, d**3), "cubed"),
        "cubed for each": (lambda d, n, size: (size * d**2, 4 * n * d**3), "cubed"),
        "upper half": (lambda d, n, size: (size * d * (d + 1) // 2, 4 * n * d**2), "half of a symmetric matrix"),
        "gradients": (lambda d, n, size: (size * d * n, 4 * n * d**2), "gradients stored as well"),
        "exchanged": (lambda d, n, size: (4 * n * d**2, size * d**2), "results exchanged"),
        "bits": (lambda d, n, size: (8 * size * d**2, 4 * n * d**2), "in bits"),
        "times bytes": (lambda d, n, size: (size * d**2, 4 * size * n * d**2), "FLOPs times bytes"),
        "n squared": (lambda d, n, size: (size * d**2, 4 * n**2 * d**2), "gradients squared"),
        "gigabytes": (lambda d, n, size: (size * d**2 / 1e9, 4 * n * d**2), ""),
        "bytes alone": (lambda d, n, size: size * d**2, ""),
    },
}
