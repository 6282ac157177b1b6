"""A right answer to every exercise, written as one more student might: other libraries, loops, other roads.

No reasonable answer may lose a case, hidden ones included.
"""

import math
from statistics import NormalDist

import numpy
import torch


def columns(weight, n_kept):
    norms = [float(column.norm()) for column in weight.T]
    best = sorted(sorted(range(len(norms)), key=norms.__getitem__)[-n_kept:])
    return weight[:, best], best


def blocks(weight, rows, columns, n_kept):
    corners = [(r, c) for r in range(0, weight.shape[0], rows) for c in range(0, weight.shape[1], columns)]
    worth = {(r, c): float(weight[r : r + rows, c : c + columns].double().abs().sum()) for r, c in corners}
    keep = torch.zeros_like(weight, dtype=torch.bool)
    for r, c in sorted(worth, key=worth.get, reverse=True)[:n_kept]:
        keep[r : r + rows, c : c + columns] = True
    return keep


def nofm(weight):
    values, places = [], []
    for group in weight.reshape(-1, 4).tolist():
        two = sorted(sorted(range(4), key=lambda place: -abs(group[place]))[:2])
        places += two
        values += [group[place] for place in two]
    half = weight.shape[0], weight.shape[1] // 2
    return torch.tensor(values, dtype=weight.dtype).reshape(half), torch.tensor(places).reshape(half)


def pack(places):
    rows = places.tolist()
    return [[sum(p << 2 * i for i, p in enumerate(row[at : at + 4])) for at in range(0, len(row), 4)] for row in rows]


def bitmap(values, bitmap, columns):
    bits = [[byte >> i & 1 for byte in row for i in range(8)][:columns] for row in bitmap.tolist()]
    keep = torch.tensor(bits, dtype=torch.bool)
    order = keep.flatten().long().cumsum(0).reshape(keep.shape) - 1
    return torch.where(keep, values[order.clamp(min=0)], 0.0)


def dynamic(weight, inputs, k):
    least = inputs.abs().sort(dim=1, descending=True).values[:, k - 1 : k]
    return torch.where(inputs.abs() >= least, inputs, 0) @ weight.T


def back_one_layer(weight, second, to_unit, slope, bend):
    rows = [slope[p] * (weight.T.square() @ second[p]) * slope[p] for p in range(len(second))]
    return torch.stack(rows) + torch.mul(to_unit, bend)


def recursion(gradients, alpha):
    hessian = alpha * numpy.identity(gradients.shape[1])
    for row in gradients.numpy():
        hessian += numpy.outer(row, row) / len(gradients)
    return numpy.linalg.solve(hessian, numpy.identity(len(hessian)))


def obs_update(weight, inverse, q):
    """Lagrange: H change + lambda e_q = 0 and change_q = -w_q, as one system of equations."""
    d = len(weight)
    system = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    system[:d, :d] = torch.linalg.inv(inverse)
    system[q, d] = system[d, q] = 1
    right = torch.zeros(d + 1, dtype=torch.float64)
    right[d] = -weight[q]
    return weight + torch.linalg.solve(system, right)[:d]


def prune(weight, hessian, limit):
    """By recursion on what is left."""
    if len(weight) == 0:
        return weight
    inverse = torch.linalg.inv(hessian)
    price = 0.5 * weight**2 / torch.diagonal(inverse)
    if price.min() > limit:
        return weight
    q = price.argmin()
    rest = [i for i in range(len(weight)) if i != q]
    moved = weight - inverse[:, q] * weight[q] / inverse[q, q]
    result = torch.zeros_like(weight)
    result[rest] = prune(moved[rest], hessian[rest][:, rest], limit)
    return result


def layer_error(weight, pruned, gram):
    values, vectors = torch.linalg.eigh(gram.double())
    return float((((weight - pruned).double() @ vectors) ** 2 * values).sum())


def hessian(inputs, damping):
    x = inputs.numpy().astype(float)
    diagonal = (x**2).sum(0)
    return x.T @ x + numpy.diag(damping * diagonal.mean() * numpy.ones(len(diagonal)) + (diagonal == 0))


def eliminate(inverse, q):
    left = inverse.clone()
    for row in range(len(left)):
        if row != q:
            left[row] -= left[q] * (left[row, q] / left[q, q])
    return numpy.delete(numpy.delete(left.numpy(), q, 0), q, 1)


def settle(weight, keep, upper, j):
    error = torch.where(keep, 0.0, weight[:, j]) / upper[j, j]
    right = torch.arange(weight.shape[1]) > j
    moved = torch.where(right, weight - error[:, None] * upper[j], weight)
    moved[~keep, j] = 0
    return moved


def mask(weight, diagonal, sparsity):
    keep = numpy.ones(weight.shape, dtype=bool)
    score = (weight**2 / diagonal**2).numpy()
    leaving = math.floor(score.size * sparsity + 1e-9)
    keep.flat[numpy.argsort(score, axis=None)[:leaving]] = False
    return keep


def sparsegpt(weight, upper, sparsity, block_size):
    """The optimal brain surgeon's update over all columns to the right, inverting anew at every column."""
    dtype, weight, columns = weight.dtype, weight.double(), weight.shape[1]
    hessian = torch.linalg.inv(upper.double().T @ upper.double())
    for j in range(columns):
        inverse = torch.linalg.inv(hessian[j:, j:])
        if j % block_size == 0:
            keep = torch.from_numpy(mask(weight[:, j : j + block_size], upper.diagonal()[j : j + block_size], sparsity))
        error = torch.where(keep[:, j % block_size], 0.0, weight[:, j]) / inverse[0, 0]
        weight[:, j:] -= error[:, None] * inverse[0]
    return weight.to(dtype)


def lowest_leave(group, n):
    """True for all but the n lowest of a list."""
    order = sorted(range(len(group)), key=lambda i: group[i])
    return [i not in order[:n] for i in range(len(group))]


def keep_rows(score, sparsity):
    return [lowest_leave(row, math.floor(len(row) * sparsity)) for row in score.tolist()]


def n_of_m(score, n, m):
    rows = [[lowest_leave(row[at : at + m], m - n) for at in range(0, len(row), m)] for row in score.tolist()]
    return torch.tensor(rows).reshape(score.shape).int()


def sequential(first, second, inputs, sparsity):
    def pruned(weight, x):
        score = weight.double().abs() * (x.double() ** 2).sum(0).sqrt()
        return weight * (score.argsort(1).argsort(1) >= int(weight.shape[1] * sparsity))

    first = pruned(first, inputs)
    hidden = (inputs.double() @ first.double().T).clamp(min=0)
    return [first, pruned(second, hidden)]


def interval(n_right, n):
    p, z = n_right / n, NormalDist().inv_cdf(0.975)
    return p, p - z * math.sqrt(p * (1 - p) / n), p + z * math.sqrt(p * (1 - p) / n)


FURTHER = {
    "start.sparsity": lambda tensor: (tensor.numpy() == 0).mean(),
    "start.intensity": lambda o, i, n, b: numpy.float32(2 * o * i * n) / numpy.float32(b * (o * i + n * i + n * o)),
    "start.step_seconds": lambda f, b, fs, bs: sorted((f / fs, b / bs))[-1],
    "start.speedup": lambda share, factor: ((1 - share) + share * factor**-1) ** -1,
    "start.cache_bytes": lambda n, q, h, d, t, b, v: 2 * n * torch.empty(b, h, t, d, device="meta").numel() * v,
    "patterns.columns": columns,
    "patterns.blocks": blocks,
    "patterns.nofm": nofm,
    "patterns.pack": pack,
    "patterns.bytes": lambda o, i, z, v: {
        "dense": o * i * v,
        "CSR": z * v + 4 * (z + o + 1),
        "bitmap": z * v + o * ((i + 7) // 8) + 4 * o + 4,
        "2:4": o * i * v / 2 + o * ((i + 7) // 8),
    },
    "patterns.bitmap": bitmap,
    "patterns.break_even": lambda v, i: [1 / (1 + i / v), (v - 0.125) / v],
    "patterns.dynamic": dynamic,
    "classic.taylor": lambda g, h, c: float(g.dot(c) + (c * h.mv(c)).sum() / 2),
    "classic.obd_saliency": lambda w, h: torch.diagonal(torch.diag(w) @ torch.diag(h) @ torch.diag(w)) / 2,
    "classic.back_one_layer": back_one_layer,
    "classic.recursion": recursion,
    "classic.obs_saliency": lambda w, i: w.numpy() ** 2 / numpy.diag(i.numpy()) / 2,
    "classic.obs_update": obs_update,
    "classic.prune": prune,
    "classic.scale": lambda d, n, size: (size * d * d, 2 * n * d * d + 2 * n * d * d),
    "sparsegpt.layer_error": layer_error,
    "sparsegpt.hessian": hessian,
    "sparsegpt.eliminate": eliminate,
    "sparsegpt.factor": lambda h: numpy.linalg.cholesky(numpy.linalg.inv(h.numpy())).T,
    "sparsegpt.settle": settle,
    "sparsegpt.mask": mask,
    "sparsegpt.prune": sparsegpt,
    "sparsegpt.bits": lambda s, v, g, q: ((g if s else 0) + g * (1 - s) * v + q) / g,
    "wanda.score": lambda w, x: w.abs() * (x.T @ x).diagonal().sqrt(),
    "wanda.accumulate": lambda total, batch: sum((t**2 for sequence in batch for t in sequence), total),
    "wanda.keep_rows": keep_rows,
    "wanda.column_groups": lambda score, sparsity: torch.tensor(keep_rows(score.T, sparsity)).T,
    "wanda.n_of_m": n_of_m,
    "wanda.sequential": sequential,
    "wanda.obs_score": lambda w, g, d: w.numpy() ** 2 / numpy.diag(numpy.linalg.inv(g.numpy() + d * numpy.eye(len(g)))),
    "wanda.interval": interval,
}
