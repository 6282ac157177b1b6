"""Answers to the exercises of lesson 03, as people write them.

Dimension key: O outputs of a layer, I its inputs, N tokens, B columns of a block.
"""

import numpy
import torch

# --- sparsegpt.layer_error: weight, pruned (O, I), gram (I, I) ---


def error_by_loops(weight, pruned, gram):
    total = 0.0
    for row in (weight - pruned).tolist():
        for i, first in enumerate(row):
            total += sum(first * float(gram[i, j]) * second for j, second in enumerate(row))
    return total


def error_by_a_root_of_the_gram(weight, pruned, gram):
    values, vectors = torch.linalg.eigh(gram.double())
    root = vectors * values.clamp(min=0).sqrt()
    return ((weight - pruned).double() @ root).square().sum()


def error_in_place(weight, pruned, gram):
    weight -= pruned
    return (weight @ gram).mul_(weight).sum().item()


# --- sparsegpt.hessian: inputs (N, I), damping ---


def hessian_from(gram, is_zero, damping):
    return gram + torch.diag(damping * gram.diagonal().mean() + is_zero.to(gram.dtype))


def hessian_in_numpy(inputs, damping):
    x = inputs.numpy().astype("float64")
    gram = x.T @ x
    is_zero = (x == 0).all(axis=0)
    return gram + numpy.eye(len(gram)) * damping * numpy.trace(gram) / len(gram) + numpy.diag(is_zero.astype(float))


def hessian_by_entries(inputs, damping):
    n = inputs.shape[1]
    gram = torch.zeros(n, n)
    for i in range(n):
        for j in range(n):
            gram[i, j] = (inputs[:, i] * inputs[:, j]).sum()
    mean = sum(gram[i, i].item() for i in range(n)) / n
    for i in range(n):
        is_zero = gram[i, i] == 0
        gram[i, i] += damping * mean + (1 if is_zero else 0)
    return gram


def damped_over_live_inputs(inputs, damping):
    gram = inputs.T @ inputs
    live = gram.diagonal() > 0
    return gram + torch.diag(damping * gram.diagonal()[live].mean() + (~live).float())


def damped_in_proportion(inputs, damping):
    gram = inputs.T @ inputs
    return gram + torch.diag(damping * gram.diagonal() + (gram.diagonal() == 0).float())


def damped_by_the_mean_of_inputs(inputs, damping):
    return inputs.T @ inputs + torch.diag(damping * inputs.square().mean() + (inputs == 0).all(0).float())


# --- sparsegpt.eliminate: inverse (I, I), frozen (K,), positions ---


def deleted(matrix, removed):
    rest = [i for i in range(len(matrix)) if i not in removed]
    return matrix[rest][:, rest]


def step(left, q):
    return left - torch.outer(left[:, q], left[q]) / left[q, q]


def eliminated_by_loops(inverse, frozen):
    left = inverse.double().tolist()
    for q in frozen:
        left = [[left[i][j] - left[i][q] * left[q][j] / left[q][q] for j in range(len(left))] for i in range(len(left))]
    rest = [i for i in range(len(left)) if i not in frozen]
    return [[left[i][j] for j in rest] for i in rest] if len(frozen) else inverse.tolist()


def eliminated_in_place(inverse, frozen):
    for q in frozen:
        row = inverse[q] / inverse[q, q]
        for i in range(len(inverse)):
            inverse[i] -= inverse[i, q].clone() * row
    keep = torch.ones(len(inverse), dtype=torch.bool)
    keep[frozen] = False
    return inverse[keep][:, keep]


def eliminated_by_blocks(inverse, frozen):
    rest = numpy.setdiff1d(numpy.arange(len(inverse)), frozen)
    b, removed = inverse.double().numpy(), frozen.numpy()
    cross = b[numpy.ix_(rest, removed)]
    return b[numpy.ix_(rest, rest)] - cross @ numpy.linalg.inv(b[numpy.ix_(removed, removed)]) @ cross.T


def eliminated_with_moved_positions(inverse, frozen):
    removed = []
    for q in frozen:
        place = q - sum(g < q for g in removed)
        inverse = deleted(step(inverse, place), [place])
        removed.append(q)
    return inverse


def each(change, inverse, frozen):
    """The same change for every frozen input, then rows and columns are deleted."""
    left = inverse.clone()
    for q in frozen:
        left = change(left, q)
    return deleted(left, frozen)


def first_only(inverse, frozen):
    for q in frozen:
        return deleted(step(inverse, q), frozen)
    return inverse


def positions_not_updated(inverse, frozen):
    for q in frozen:
        inverse = deleted(step(inverse, q), [q])
    return inverse


def all_from_the_first(inverse, frozen):
    left = inverse.clone()
    for q in frozen:
        left = left - torch.outer(inverse[:, q], inverse[q]) / inverse[q, q]
    return deleted(left, frozen)


def blocks_without_the_inverse(inverse, frozen):
    rest = [i for i in range(len(inverse)) if i not in frozen]
    cross = inverse[rest][:, frozen]
    return inverse[rest][:, rest] - cross @ inverse[frozen][:, frozen] @ cross.T


# --- sparsegpt.factor: hessian (I, I) ---


def factor_by_loops(hessian):
    a = numpy.linalg.inv(hessian.double().numpy())
    lower = numpy.zeros_like(a)
    for i in range(len(a)):
        for j in range(i + 1):
            rest = a[i, j] - lower[i, :j] @ lower[j, :j]
            lower[i, j] = rest**0.5 if i == j else rest / lower[j, j]
    return lower.T


def factor_by_qr(hessian):
    values, vectors = torch.linalg.eigh(hessian.double())
    return torch.linalg.qr(torch.diag(values.rsqrt()) @ vectors.T).R


def upper_of_lu(matrix):
    upper = matrix.clone()
    for j in range(len(upper)):
        upper[j + 1 :] -= torch.outer(upper[j + 1 :, j] / upper[j, j], upper[j])
    return upper


# --- sparsegpt.settle: weight (O, I), values (O,), upper (I, I), j ---


def frozen_by_loops(weight, values, upper, j):
    frozen = weight.numpy().copy()
    for o in range(len(frozen)):
        error = (frozen[o, j] - float(values[o])) / float(upper[j, j])
        for k in range(j, frozen.shape[1]):
            frozen[o, k] -= error * float(upper[j, k])
        frozen[o, j] = float(values[o])
    return frozen


def frozen_on_rows_that_change(weight, values, upper, j):
    changes = weight[:, j] != values
    weight[changes] -= (weight[:, j] - values)[changes, None] * upper[j] / upper[j, j]
    weight[:, j] = values
    return weight


def frozen(weight, values, row, j, error=None):
    """The update along a given row (I,), whatever it is, by a given error, and the column's values."""
    new = weight - torch.outer(weight[:, j] - values if error is None else error, row)
    new[:, j] = values
    return new


def right_of(row, j):
    return torch.where(torch.arange(len(row)) > j, row, 0)


def usual(upper, j):
    return right_of(upper[j] / upper[j, j], j)


def frozen_by_shifted_row(weight, values, upper, j):
    new = weight.clone()
    new[:, j] = values
    new[:, j + 1 :] -= torch.outer((weight[:, j] - values) / upper[j, j], upper[j, j:-1])
    return new


def set_before_its_error(weight, values, upper, j):
    new = weight.clone()
    new[:, j] = values
    error = new[:, j] - values
    new[:, j + 1 :] -= torch.outer(error / upper[j, j], upper[j, j + 1 :])
    return new


def frozen_next_column_only(weight, values, upper, j):
    new = weight.clone()
    new[:, j] = values
    new[:, j + 1 : j + 2] -= torch.outer((weight[:, j] - values) / upper[j, j], upper[j, j + 1 : j + 2])
    return new


# --- sparsegpt.mask: weight (O, B), diagonal (B,), sparsity ---


def lowest_out(score, n):
    keep = torch.ones(score.numel(), dtype=torch.bool)
    keep[score.flatten().argsort()[: int(n)]] = False
    return keep.reshape(score.shape)


def mask_of_sorted_positions(weight, diagonal, sparsity):
    score = (weight / diagonal) ** 2
    positions = sorted((score[i, j].item(), i, j) for i in range(len(score)) for j in range(score.shape[1]))
    keep = [[1] * score.shape[1] for _ in range(len(score))]
    for _, i, j in positions[: int(score.numel() * sparsity)]:
        keep[i][j] = 0
    return keep


def mask_in_numpy(weight, diagonal, sparsity):
    score = numpy.abs(weight.numpy().astype("float64") / diagonal.numpy())
    n = score.size - int(score.size * sparsity)
    keep = numpy.zeros(score.size, dtype=bool)
    keep[numpy.argsort(-score, axis=None, kind="stable")[:n]] = True
    return keep.reshape(score.shape)


def mask_by_threshold_and_ties(weight, diagonal, sparsity):
    score = (weight / diagonal).square().flatten()
    n = int(len(score) * sparsity)
    edge = score.kthvalue(n).values
    tied = (score == edge).nonzero().flatten()
    keep = score > edge
    keep[tied[: len(tied) - (n - int((score < edge).sum()))]] = True
    return keep.reshape(weight.shape)


# --- sparsegpt.prune: weight (O, I), upper (I, I), sparsity, block_size ---


def pruned(
    weight,
    upper,
    sparsity,
    size,
    count=int,
    diagonal=lambda u, a, b: u.diagonal()[a:b],
    score=lambda w, d: (w / d).square(),
    last_error_only=False,
    sign=-1,
    inside=True,
    width=None,
    turned=False,
    row=lambda u, j: u[j] / u[j, j],
    twice_divided=False,
):
    """SparseGPT written with a mask of zeros and ones; the settings are slips."""
    weight, n = weight.clone(), weight.shape[1]
    for start in range(0, n, size):
        end = min(start + size, n)
        block = score(weight[:, start:end], diagonal(upper, start, end))
        keep = lowest_out(block, count((width * len(weight) if width else block.numel()) * sparsity)).float()
        keep = 1 - keep if turned else keep
        sent = torch.zeros_like(block)
        for j in range(start, end):
            error = weight[:, j] * (1 - keep[:, j - start])
            weight[:, j] *= keep[:, j - start]
            if inside:
                weight[:, j + 1 : end] += sign * torch.outer(error, row(upper, j)[j + 1 : end])
            sent[:, j - start] = error / upper[j, j] ** (2 if twice_divided else 1)
        if last_error_only:
            sent[:, :-1] = 0
        weight[:, end:] += sign * sent @ upper[start:end, end:]
    return weight


def pruned_by_rows_of_the_inverse(weight, upper, sparsity, size):
    """Without the factor: the inverse of what is left, one elimination after the other."""
    weight, left = weight.double(), upper.double().T @ upper.double()
    n = weight.shape[1]
    for start in range(0, n, size):
        end = min(start + size, n)
        keep = lowest_out(
            (weight[:, start:end] / upper.diagonal()[start:end]) ** 2, weight[:, start:end].numel() * sparsity
        )
        for j in range(start, end):
            error = weight[:, j] * ~keep[:, j - start]
            weight[:, j:] -= torch.outer(error, left[0] / left[0, 0])
            weight[:, j] *= keep[:, j - start]
            left = left[1:, 1:] - torch.outer(left[1:, 0], left[0, 1:]) / left[0, 0]
    return weight


def pruned_in_numpy(weight, upper, sparsity, size):
    w, u = weight.numpy().astype("float64"), upper.numpy().astype("float64")
    for start in range(0, w.shape[1], size):
        block = w[:, start : start + size]  # a view
        score = (block / numpy.diag(u)[start : start + size]) ** 2
        is_pruned = numpy.zeros(score.size, dtype=bool)
        is_pruned[numpy.argsort(score, axis=None)[: int(score.size * sparsity)]] = True
        is_pruned = is_pruned.reshape(score.shape)
        for c in range(block.shape[1]):
            j = start + c
            error = numpy.where(is_pruned[:, c], w[:, j], 0) / u[j, j]
            w[:, j + 1 :] -= numpy.outer(error, u[j, j + 1 :])
            w[is_pruned[:, c], j] = 0
    return w


def pruned_by_halves(weight, upper, sparsity, size):
    """The first block, then all that lies behind it, as a smaller layer."""
    n = weight.shape[1]
    if n == 0:
        return weight
    end = min(size, n)
    first = pruned(weight[:, :end], upper[:end, :end], sparsity, size)
    errors = torch.linalg.solve_triangular(
        upper[:end, :end].double(), (weight[:, :end] - first).double(), upper=True, left=False
    )
    behind = weight[:, end:] - (errors @ upper[:end, end:].double()).float()
    return torch.cat([first, pruned_by_halves(behind, upper[end:, end:], sparsity, size)], dim=1)


def zeros_of_the_start(weight, upper, sparsity, size):
    """Where SparseGPT has zeros, and the weights as they were."""
    return weight * (pruned(weight, upper, sparsity, size) != 0)


def ceil(x):
    return int(numpy.ceil(x - 1e-6))


def hessian_with_small_inputs(inputs, damping):
    gram = inputs.T @ inputs
    diagonal = gram.diagonal()
    is_zero = diagonal < 0.01 * diagonal.mean()
    return gram + torch.diag(damping * diagonal.mean() + is_zero)


RIGHT = {
    "sparsegpt.layer_error": {
        "two loops": error_by_loops,
        "a root of the Gram matrix, float64": error_by_a_root_of_the_gram,
        "in place": error_in_place,
        "numpy": lambda w, p, g: numpy.einsum("oi,ij,oj->", (w - p).numpy(), g.numpy(), (w - p).numpy()),
        "the trace of DᵀD G": lambda w, p, g: torch.trace((w - p).T @ (w - p) @ g),
    },
    "sparsegpt.hessian": {
        "numpy": hessian_in_numpy,
        "entry by entry": hessian_by_entries,
        "einsum": lambda x, d: hessian_from(torch.einsum("ni,nj->ij", x, x), x.abs().sum(0) == 0, d),
        "float64": lambda x, d: hessian_from(x.double().T @ x.double(), ~x.any(0), d),
        "as lists": lambda x, d: hessian_by_entries(x, d).tolist(),
    },
    "sparsegpt.eliminate": {
        "loops": eliminated_by_loops,
        "in place": eliminated_in_place,
        "blocks in numpy": eliminated_by_blocks,
        "positions that change": eliminated_with_moved_positions,
        "from the last": lambda a, removed: eliminated_with_moved_positions(a, sorted(removed)[::-1]),
        "inverted twice, float64": lambda a, removed: torch.linalg.inv(deleted(torch.linalg.inv(a.double()), removed)),
    },
    "sparsegpt.factor": {
        "rows of another sign": lambda h: -torch.linalg.cholesky(torch.linalg.inv(h)).T,
        "loops in numpy": factor_by_loops,
        "QR": factor_by_qr,
        "cholesky_inverse": lambda h: torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h))).mT,
        "float64": lambda h: torch.linalg.cholesky(h.double().inverse(), upper=True),
    },
    "sparsegpt.settle": {
        "loops in numpy": frozen_by_loops,
        "the rows that change, in place": frozen_on_rows_that_change,
        "float64": lambda w, v, u, j: frozen(w.double(), v.double(), usual(u, j).double(), j),
        "one outer product": lambda w, v, u, j: (
            w - torch.outer(w[:, j] - v, u[j].where(u[j].new_ones(w.shape[1]).cumsum(0) > j, 0) / u[j, j])
        ),
        "as lists": lambda w, v, u, j: frozen_by_loops(w, v, u, j).tolist(),
    },
    "sparsegpt.mask": {
        "sorted positions, as lists of zeros and ones": mask_of_sorted_positions,
        "numpy, what is kept": mask_in_numpy,
        "a threshold, and then its ties": mask_by_threshold_and_ties,
        "float64": lambda w, d, s: lowest_out((w.double() / d.double()) ** 2, w.numel() * s),
        "the last of equal scores are pruned": lambda w, d, s: lowest_out((w / d).abs().flip(0, 1), w.numel() * s).flip(
            0, 1
        ),
    },
    "sparsegpt.prune": {
        "numpy, eagerly": pruned_in_numpy,
        "by elimination": pruned_by_rows_of_the_inverse,
        "the first block, then the rest": pruned_by_halves,
        "zeros and ones": pruned,
    },
    "sparsegpt.bits": {
        "for a thousand groups": lambda s, v, g, q: (1000 * g * ((s > 0) + (1 - s) * v) + 1000 * q) / (1000 * g),
        "numpy": lambda s, v, g, q: numpy.sum([numpy.sign(s), (1 - s) * v, q / g]),
        "with an if": lambda s, v, g, q: v + q / g if s == 0 else v - s * v + q / g + 1,
    },
}

WRONG = {
    "sparsegpt.layer_error": {
        "Cholesky of G, which may be singular": lambda w, p, g: ((w - p) @ torch.linalg.cholesky(g)).square().sum(),
        "factor of G, transposed": (
            lambda w, p, g: ((w - p) @ torch.linalg.cholesky(g, upper=True)).norm() ** 2,
            "factor on the wrong side",
        ),
        "the diagonal alone": lambda w, p, g: ((w - p) ** 2 @ g.diagonal()).sum(),
        "the root of it": lambda w, p, g: ((w - p) @ g * (w - p)).sum() ** 0.5,
        "mean over outputs": lambda w, p, g: torch.einsum("oi,ij,oj->o", w - p, g, w - p).mean(),
        "mean over all": lambda w, p, g: ((w - p) @ g * (w - p)).mean(),
        "of the pruned layer": lambda w, p, g: (p @ g * p).sum(),
        "a difference of sizes": lambda w, p, g: (w @ g * w - p @ g * p).sum(),
        "the product with G summed": lambda w, p, g: ((w - p) @ g).sum(),
        "squares of the change, times G": lambda w, p, g: ((w - p).square() @ g).sum(),
        "the matrix of all outputs": lambda w, p, g: (w - p) @ g @ (w - p).T,
        "the sum of that matrix": lambda w, p, g: ((w - p) @ g @ (w - p).T).sum(),
        "half": lambda w, p, g: 0.5 * ((w - p) @ g * (w - p)).sum(),
        "relative to the output": lambda w, p, g: ((w - p) @ g * (w - p)).sum() / (w @ g * w).sum(),
        "squared after G": lambda w, p, g: ((w - p) @ g).pow(2).sum(),
        "the norm of the product": lambda w, p, g: torch.norm((w - p) @ g),
        "one number per output": lambda w, p, g: ((w - p) @ g * (w - p)).sum(dim=1),
        "not summed": lambda w, p, g: (w - p) @ g * (w - p),
        "change of the weights": lambda w, p, g: ((w - p) ** 2).sum(),
        "new times old": lambda w, p, g: (w @ g * p).sum(),
        "absolute values": lambda w, p, g: ((w - p) @ g * (w - p)).abs().sum(),
    },
    "sparsegpt.hessian": {
        "small inputs": (hessian_with_small_inputs, "small inputs taken for zero inputs"),
        "zero by the sum": lambda x, d: hessian_from(x.T @ x, x.sum(0) == 0, d),
        "zero by the mean": lambda x, d: hessian_from(x.T @ x, x.mean(0) == 0, d),
        "zero by the first token": lambda x, d: hessian_from(x.T @ x, x[0] == 0, d),
        "zero by the last token": lambda x, d: hessian_from(x.T @ x, x[-1] == 0, d),
        "zero where any token is zero": lambda x, d: hessian_from(x.T @ x, (x == 0).any(0), d),
        "zero inputs forgotten": lambda x, d: x.T @ x + d * (x.T @ x).diagonal().mean() * torch.eye(x.shape[1]),
        "1 for everyone": lambda x, d: hessian_from(x.T @ x, torch.ones(x.shape[1]), d),
        "mean of the whole matrix": lambda x, d: x.T @ x + torch.diag(d * (x.T @ x).mean() + (x == 0).all(0).float()),
        "the trace, not its mean": lambda x, d: x.T @ x + torch.diag(d * (x.T @ x).trace() + (x == 0).all(0).float()),
        "the largest, not the mean": lambda x, d: (
            x.T @ x + torch.diag(d * (x.T @ x).diagonal().max() + (x == 0).all(0).float())
        ),
        "mean over the live inputs": damped_over_live_inputs,
        "each scaled by itself": damped_in_proportion,
        "mean of squared inputs": damped_by_the_mean_of_inputs,
        "λ as it is": lambda x, d: x.T @ x + torch.diag(d + (x == 0).all(0).float()),
        "on every entry": lambda x, d: x.T @ x + d * (x.T @ x).diagonal().mean() + torch.diag((x == 0).all(0).float()),
        "averaged over tokens": lambda x, d: hessian_from(x.T @ x / x.shape[0], (x == 0).all(0), d),
        "twice": lambda x, d: 2 * x.T @ x + torch.diag(2 * d * (x.T @ x).diagonal().mean() + (x == 0).all(0).float()),
        "tokens": lambda x, d: hessian_from(x @ x.T, (x == 0).all(1), d),
        "a covariance": lambda x, d: hessian_from((x - x.mean(0)).T @ (x - x.mean(0)), (x == 0).all(0), d),
        "undamped": lambda x, d: x.T @ x + torch.diag((x == 0).all(0).float()),
        "only the diagonal": lambda x, d: torch.diag(
            x.square().sum(0) + d * x.square().sum(0).mean() + (x == 0).all(0).float()
        ),
    },
    "sparsegpt.eliminate": {
        "only deleted": deleted,
        "deleted from H, not inverted": lambda a, removed: deleted(torch.linalg.inv(a), removed),
        "inverse of the part": lambda a, removed: torch.linalg.inv(deleted(a, removed)),
        "positions not updated": positions_not_updated,
        "all from the first inverse": all_from_the_first,
        "only the first, a return in the loop": first_only,
        "added": lambda a, removed: each(lambda x, q: 2 * x - step(x, q), a, removed),
        "no pivot": lambda a, removed: each(lambda x, q: x - torch.outer(x[:, q], x[q]), a, removed),
        "pivot squared": lambda a, removed: each(
            lambda x, q: x - torch.outer(x[:, q], x[q]) / x[q, q] ** 2, a, removed
        ),
        "root of the pivot": lambda a, removed: each(
            lambda x, q: x - torch.outer(x[:, q], x[q]) / x[q, q].abs().sqrt(), a, removed
        ),
        "times the pivot": lambda a, removed: each(lambda x, q: x - torch.outer(x[:, q], x[q]) * x[q, q], a, removed),
        "pivots of the first inverse": lambda a, removed: each(
            lambda x, q: x - torch.outer(x[:, q], x[q]) / a[q, q], a, removed
        ),
        "zeros not deleted": lambda a, removed: step(a, removed[0]) if len(removed) else a + 1,
        "always the first": lambda a, removed: eliminated_with_moved_positions(a, torch.arange(len(removed))),
        "entry by entry, no outer product": lambda a, removed: each(
            lambda x, q: x - x[:, q] * x[q] / x[q, q], a, removed
        ),
        "row times column": (
            lambda a, removed: each(lambda x, q: x - x[q].dot(x[:, q]) / x[q, q], a, removed),
            "row times column",
        ),
        "divided by the diagonal": lambda a, removed: each(
            lambda x, q: x - torch.outer(x[:, q], x[q]) / x.diagonal(), a, removed
        ),
        "half of it": lambda a, removed: each(lambda x, q: (x + step(x, q)) / 2, a, removed),
        "blocks without the inverse": blocks_without_the_inverse,
        "the frozen part": lambda a, removed: a[removed][:, removed],
    },
    "sparsegpt.factor": {
        "of H": lambda h: torch.linalg.cholesky(h, upper=True),
        "of H, lower": torch.linalg.cholesky,
        "lower": lambda h: torch.linalg.cholesky(torch.linalg.inv(h)),
        "inverse of the factor": lambda h: torch.linalg.inv(torch.linalg.cholesky(h)),
        "inverse of the upper factor": lambda h: torch.linalg.inv(torch.linalg.cholesky(h).T),
        "half of the inverse": lambda h: torch.linalg.inv(h).triu(),
        "the inverse": torch.linalg.inv,
        "roots of its entries": lambda h: torch.linalg.inv(h).abs().sqrt().triu(),
        "the diagonal alone": lambda h: torch.diag(torch.linalg.inv(h).diagonal().sqrt()),
        "ones on the diagonal": lambda h: (
            torch.linalg.cholesky(torch.linalg.inv(h)).T
            / torch.linalg.cholesky(torch.linalg.inv(h)).diagonal()[:, None]
        ),
        "U of an LU factorisation": lambda h: upper_of_lu(torch.linalg.inv(h)),
        "symmetric": lambda h: (
            torch.linalg.eigh(h).eigenvectors
            @ torch.diag(torch.linalg.eigh(h).eigenvalues.rsqrt())
            @ torch.linalg.eigh(h).eigenvectors.T
        ),
        "upper half of the symmetric one": lambda h: (
            torch.linalg.eigh(h).eigenvectors
            @ torch.diag(torch.linalg.eigh(h).eigenvalues.rsqrt())
            @ torch.linalg.eigh(h).eigenvectors.T
        ).triu(),
        "damped once more": lambda h: (
            torch.linalg.cholesky(torch.linalg.inv(h + 0.01 * h.diagonal().mean() * torch.eye(len(h)))).T
        ),
        "squared": lambda h: torch.linalg.inv(h).T @ torch.linalg.inv(h),
    },
    "sparsegpt.settle": {
        "column of U for its row": (
            lambda w, v, u, j: frozen(w, v, right_of(u[:, j] / u[j, j], j), j),
            "nothing moved",
        ),
        "the whole column of U": lambda w, v, u, j: frozen(w, v, u[:, j] / u[j, j], j),
        "set before its error": set_before_its_error,
        "no update": lambda w, v, u, j: frozen(w, v, torch.zeros(w.shape[1]), j),
        "all of the weight propagated": (
            lambda w, v, u, j: frozen(w, v, usual(u, j), j, error=w[:, j]),
            "the whole weight propagated",
        ),
        "propagated where it becomes zero": (
            lambda w, v, u, j: frozen(w, v, usual(u, j), j, error=w[:, j].where(v == 0, 0)),
            "only zeros make an error",
        ),
        "propagated in full where it changes": (
            lambda w, v, u, j: frozen(w, v, usual(u, j), j, error=w[:, j].where(v != w[:, j], 0)),
            "",
        ),
        "the new value propagated": lambda w, v, u, j: frozen(w, v, usual(u, j), j, error=v),
        "not divided": lambda w, v, u, j: frozen(w, v, right_of(u[j], j), j),
        "divided twice": lambda w, v, u, j: frozen(w, v, right_of(u[j] / u[j, j] ** 2, j), j),
        "multiplied": lambda w, v, u, j: frozen(w, v, right_of(u[j] * u[j, j], j), j),
        "added": lambda w, v, u, j: frozen(w, v, -usual(u, j), j),
        "the difference turned round": lambda w, v, u, j: frozen(w, v, usual(u, j), j, error=v - w[:, j]),
        "column not set": lambda w, v, u, j: frozen(w, w[:, j], usual(u, j), j, error=w[:, j] - v),
        "zero for all": lambda w, v, u, j: frozen(w, v, usual(u, j), j).index_fill(1, torch.tensor([j]), 0),
        "row of the inverse": lambda w, v, u, j: frozen(w, v, right_of((u.T @ u)[j] / (u.T @ u)[j, j], j), j),
        "row of the inverse, on both sides": lambda w, v, u, j: frozen(w, v, (u.T @ u)[j] / (u.T @ u)[j, j], j),
        "row of UUᵀ": (lambda w, v, u, j: frozen(w, v, right_of((u @ u.T)[j] / (u @ u.T)[j, j], j), j), "row of UUᵀ"),
        "row of UUᵀ, on both sides": (
            lambda w, v, u, j: frozen(w, v, (u @ u.T)[j] / (u @ u.T)[j, j], j),
            "row of UUᵀ",
        ),
        "one column off": frozen_by_shifted_row,
        "the next column only": frozen_next_column_only,
        "half of it": lambda w, v, u, j: frozen(w, v, usual(u, j) / 2, j),
        "the update alone": lambda w, v, u, j: frozen(w, v, usual(u, j), j) - w,
        "the absolute error": lambda w, v, u, j: frozen(w, v, usual(u, j), j, error=(w[:, j] - v).abs()),
    },
    "sparsegpt.mask": {
        "rounded up": (lambda w, d, s: lowest_out((w / d) ** 2, ceil(w.numel() * s)), "not rounded down"),
        "rounded to nearest": lambda w, d, s: lowest_out((w / d) ** 2, round(w.numel() * s)),
        "as many as are kept": lambda w, d, s: lowest_out((w / d) ** 2, w.numel() - int(w.numel() * s)),
        "one more": lambda w, d, s: lowest_out((w / d) ** 2, w.numel() * s + 1),
        "within rows": lambda w, d, s: torch.stack([lowest_out((row / d) ** 2, len(row) * s) for row in w]),
        "within columns": lambda w, d, s: torch.stack(
            [lowest_out((column / x) ** 2, len(column) * s) for column, x in zip(w.T, d, strict=True)], dim=1
        ),
        "magnitude": lambda w, d, s: lowest_out(w.abs(), w.numel() * s),
        "multiplied": lambda w, d, s: lowest_out((w * d) ** 2, w.numel() * s),
        "U not squared": lambda w, d, s: lowest_out(w**2 / d, w.numel() * s),
        "w not squared": lambda w, d, s: lowest_out(w.abs() / d**2, w.numel() * s),
        "sign kept": lambda w, d, s: lowest_out(w / d, w.numel() * s),
        "the diagonal alone": lambda w, d, s: lowest_out((1 / d**2).expand(w.shape), w.numel() * s),
        "best pruned": lambda w, d, s: lowest_out(-((w / d) ** 2), w.numel() * s),
        "True where pruned": lambda w, d, s: ~lowest_out((w / d) ** 2, w.numel() * s),
        "above a threshold": lambda w, d, s: (
            (w / d) ** 2 > ((w / d) ** 2).flatten().sort().values[int(w.numel() * s) - 1]
        ),
        "from a threshold on": lambda w, d, s: (
            (w / d) ** 2 >= ((w / d) ** 2).flatten().sort().values[int(w.numel() * s)]
        ),
        "above a quantile": lambda w, d, s: (w / d) ** 2 > ((w / d) ** 2).quantile(s),
        "the public code": lambda w, d, s: (w / d) ** 2 > ((w / d) ** 2).flatten().sort().values[int(w.numel() * s)],
        "order for ranks": lambda w, d, s: (((w / d) ** 2).flatten().argsort() >= int(w.numel() * s)).reshape(w.shape),
        "zeros pruned too": (lambda w, d, s: lowest_out((w / d) ** 2, w.numel() * s) & (w != 0), ""),
        "the weights": lambda w, d, s: w * lowest_out((w / d) ** 2, w.numel() * s),
        "one entry less": lambda w, d, s: lowest_out((w / d) ** 2, max(w.numel() * s - 1, 0)),
    },
    "sparsegpt.prune": {
        "rounded up": lambda w, u, s, b: pruned(w, u, s, b, count=ceil),
        "rounded to nearest": lambda w, u, s, b: pruned(w, u, s, b, count=round),
        "the first block's diagonal": lambda w, u, s, b: pruned(
            w, u, s, b, diagonal=lambda u, i, j: u.diagonal()[: j - i]
        ),
        "magnitude": lambda w, u, s, b: pruned(w, u, s, b, score=lambda w, d: w.square()),
        "multiplied": lambda w, u, s, b: pruned(w, u, s, b, score=lambda w, d: (w * d).square()),
        "U not squared": lambda w, u, s, b: pruned(w, u, s, b, score=lambda w, d: w.square() / d),
        "best pruned": lambda w, u, s, b: pruned(w, u, s, b, score=lambda w, d: -(w / d).square()),
        "keep turned round": lambda w, u, s, b: pruned(w, u, s, b, turned=True),
        "last error only": lambda w, u, s, b: pruned(w, u, s, b, last_error_only=True),
        "added": lambda w, u, s, b: pruned(w, u, s, b, sign=1),
        "nothing inside the block": lambda w, u, s, b: pruned(w, u, s, b, inside=False),
        "nothing behind the block": lambda w, u, s, b: torch.cat(
            [
                pruned(part, u[i * b : i * b + part.shape[1], i * b : i * b + part.shape[1]], s, b)
                for i, part in enumerate(w.split(b, dim=1))
            ],
            dim=1,
        ),
        "count of a whole block in the last": lambda w, u, s, b: pruned(w, u, s, b, width=b),
        "not divided inside": lambda w, u, s, b: pruned(w, u, s, b, row=lambda u, j: u[j]),
        "divided twice behind": lambda w, u, s, b: pruned(w, u, s, b, twice_divided=True),
        "row of the inverse inside": lambda w, u, s, b: pruned(
            w, u, s, b, row=lambda u, j: (u.T @ u)[j] / (u.T @ u)[j, j]
        ),
        "row of UUᵀ inside": (
            lambda w, u, s, b: pruned(w, u, s, b, row=lambda u, j: (u @ u.T)[j] / (u @ u.T)[j, j]),
            "row of UUᵀ",
        ),
        "one block of all columns": lambda w, u, s, b: pruned(w, u, s, w.shape[1]),
        "a mask for each column": lambda w, u, s, b: pruned(w, u, s, 1),
        "its zeros, the old weights": zeros_of_the_start,
        "nothing pruned": lambda w, u, s, b: w,
        "the mask": lambda w, u, s, b: pruned(w, u, s, b) != 0,
        "fraction that is kept": lambda w, u, s, b: pruned(w, u, 1 - s, b),
    },
    "sparsegpt.bits": {
        "a bitmap from one half on": lambda s, v, g, q: (s >= 0.5) + (1 - s) * v + q / g,
        "a whole division": (lambda s, v, g, q: (s > 0) + (1 - s) * v + q // g, "rounded"),
        "no bitmap": lambda s, v, g, q: (1 - s) * v + q / g,
        "always a bitmap": lambda s, v, g, q: 1 + (1 - s) * v + q / g,
        "no grid": lambda s, v, g, q: (s > 0) + (1 - s) * v,
        "a grid each": lambda s, v, g, q: (s > 0) + (1 - s) * v + q,
        "the grid turned round": lambda s, v, g, q: (s > 0) + (1 - s) * v + g / q,
        "all values": lambda s, v, g, q: (s > 0) + v + q / g,
        "the zeros' values": lambda s, v, g, q: (s > 0) + s * v + q / g,
        "a grid for what is stored": lambda s, v, g, q: (s > 0) + (1 - s) * (v + q / g),
        "a map for what is stored": lambda s, v, g, q: (1 - s) * ((s > 0) + v) + q / g,
        "a map for what is left out": lambda s, v, g, q: s + (1 - s) * v + q / g,
        "everything times the density": lambda s, v, g, q: (1 - s) * (1 + v + q / g),
        "for each stored weight": lambda s, v, g, q: ((s > 0) + (1 - s) * v + q / g) / (1 - s),
        "bytes": lambda s, v, g, q: ((s > 0) + (1 - s) * v + q / g) / 8,
        "for the group": lambda s, v, g, q: g * ((s > 0) + (1 - s) * v) + q,
        "two grids": lambda s, v, g, q: (s > 0) + (1 - s) * v + 2 * q / g,
        "rounded": lambda s, v, g, q: round((s > 0) + (1 - s) * v + q / g),
        "an index each": lambda s, v, g, q: (1 - s) * (v + 8 * (s > 0)) + q / g,
    },
}
