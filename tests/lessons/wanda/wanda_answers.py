"""Answers to the exercises of lesson 04, as people write them.

Dimension key: O outputs of a layer, I its inputs, N tokens, B sequences, T tokens in one.
"""

import math

import numpy
import torch

# --- masks: score (O, I) and how many of each row leave ---


def drop(score, n):
    """The n lowest of each row leave."""
    keep = torch.ones(score.shape, dtype=torch.bool)
    for row, kept in zip(score, keep, strict=True):
        kept[row.argsort()[: int(n)]] = False
    return keep


def rows(score, sparsity):
    return drop(score, score.shape[1] * sparsity)


def rows_in_numpy(score, sparsity):
    ranks = numpy.argsort(numpy.argsort(score.numpy(), axis=1, kind="stable"), axis=1)
    return ranks >= int(score.shape[1] * sparsity)


def rows_as_lists(score, sparsity):
    keep = []
    for row in score.tolist():
        leaving = sorted(range(len(row)), key=row.__getitem__)[: int(len(row) * sparsity)]
        keep.append([0 if i in leaving else 1 for i in range(len(row))])
    return keep


def rows_by_kthvalue(score, sparsity):
    """A threshold, and of those at it the last ones stay."""
    n = int(score.shape[1] * sparsity)
    if n == 0:
        return torch.ones_like(score)
    keep = torch.ones_like(score)
    for row, kept in zip(score, keep, strict=True):
        edge = row.kthvalue(n).values
        kept[row < edge] = 0
        tied = (row == edge).nonzero().flatten()
        kept[tied[: n - int((row < edge).sum())]] = 0
    return keep


def rows_with_a_slice_from_the_end(score, sparsity):
    """The k lowest are at the end; at k = 0 the slice is empty."""
    k = int(score.shape[1] * sparsity)
    staying = score.argsort(dim=1, descending=True)[:, :-k]
    return torch.zeros_like(score, dtype=torch.bool).scatter(1, staying, True)


def layer(score, sparsity):
    return drop(score.reshape(1, -1), score.numel() * sparsity).reshape(score.shape)


def columns(score, sparsity):
    return rows(score.T, sparsity).T


def columns_in_a_loop(score, sparsity):
    keep = torch.ones(score.shape)
    for j in range(score.shape[1]):
        keep[score[:, j].topk(int(len(score) * sparsity), largest=False).indices, j] = 0
    return keep


def columns_with_a_slice_from_the_end(score, sparsity):
    k = int(score.shape[0] * sparsity)
    return torch.zeros_like(score, dtype=torch.bool).scatter(0, score.argsort(dim=0, descending=True)[:-k], True)


def rounded_up(size, sparsity):
    return math.ceil(size * sparsity - 1e-6)


def groups(score, n, m):
    return drop(score.reshape(-1, m), m - n).reshape(score.shape)


def groups_in_a_loop(score, n, m):
    keep = numpy.zeros(score.shape, dtype=int)
    for o in range(score.shape[0]):
        for start in range(0, score.shape[1], m):
            best = sorted(range(start, start + m), key=lambda i: -float(score[o, i]))[:n]
            keep[o, best] = 1
    return keep


# --- wanda.sequential: first (H, I), second (O, H), inputs (N, I), sparsity ---


def prune(weight, inputs, sparsity, choose=rows):
    return weight * choose(weight.abs() * inputs.norm(dim=0), sparsity)


def both(first, second, inputs, sparsity, hidden=lambda x, dense, pruned: torch.relu(x @ pruned.T), choose=rows):
    pruned = prune(first, inputs, sparsity, choose)
    return pruned, prune(second, hidden(inputs, first, pruned), sparsity, choose)


def through(activation):
    return lambda a, b, x, s: both(a, b, x, s, lambda x, dense, pruned: activation(x @ pruned.T))


def both_in_numpy(first, second, inputs, sparsity):
    def pruned(weight, x):
        score = numpy.abs(weight) * numpy.sqrt((x**2).sum(axis=0))
        for o, row in enumerate(score):
            weight[o, numpy.argsort(row)[: int(len(row) * sparsity)]] = 0
        return weight

    first, second, x = (t.double().numpy() for t in (first, second, inputs))
    first = pruned(first, x)
    return [first, pruned(second, numpy.maximum(x @ first.T, 0))]


def both_in_a_loop(first, second, inputs, sparsity):
    layers, x = [], inputs
    for weight in (first, second):
        order = (weight.abs() * x.square().sum(0).sqrt()).argsort(dim=1)
        weight = weight.scatter(1, order[:, : int(weight.shape[1] * sparsity)], 0.0)
        layers.append(weight)
        x = (x @ weight.T).clamp(min=0)
    return tuple(layers)


# --- wanda.interval: n_right, n ---


def interval(right, n, z=1.96, error=lambda p, n: math.sqrt(p * (1 - p) / n)):
    p = right / n
    return p, p - z * error(p, n), p + z * error(p, n)


def wilson(right, n):
    z, p = 1.96, right / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return p, middle - half, middle + half


def from_answers(right, n):
    answers = numpy.array([1.0] * right + [0.0] * (n - right))
    error = answers.std() / n**0.5
    return answers.mean(), answers.mean() - 1.96 * error, answers.mean() + 1.96 * error


def score_by_loops(weight, inputs):
    norms = [sum(float(x) ** 2 for x in inputs[:, j]) ** 0.5 for j in range(inputs.shape[1])]
    return [[abs(float(w)) * norm for w, norm in zip(row, norms, strict=True)] for row in weight]


def accumulated_in_a_loop(total, batch):
    for sequence in batch:
        for token in sequence:
            total += token * token
    return total


# --- wanda.obs_score: weight (O, I) and the damped Gram matrix (I, I) ---


def alone(weight, gram):
    return weight.square() * gram.diagonal()


def helped(weight, inverse):
    return weight.square() / inverse.diagonal()


def costs(weight, gram):
    return alone(weight, gram), helped(weight, gram.inverse())


def costs_by_solving(weight, gram):
    columns = [torch.linalg.solve(gram, unit)[j] for j, unit in enumerate(torch.eye(len(gram)))]
    return weight**2 * gram.diagonal(), weight**2 / torch.stack(columns)


def costs_entry_by_entry(weight, gram):
    h = gram.numpy().astype("float64")
    inverse = numpy.linalg.inv(h)
    return tuple(
        [[float(w) ** 2 * factor for w, factor in zip(row, factors, strict=True)] for row in weight]
        for factors in (h.diagonal(), 1 / inverse.diagonal())
    )


def costs_of_the_steps(weight, gram):
    """δ written out for every weight: −w e_j, and the best step with δ_j = −w."""
    h = gram.double()
    inverse = h.inverse()
    both = torch.zeros(2, *weight.shape, dtype=torch.float64)
    for j, unit in enumerate(torch.eye(len(h), dtype=torch.float64)):
        for k, direction in enumerate((unit, inverse[j] / inverse[j, j])):
            both[k, :, j] = weight[:, j].double() ** 2 * (direction @ h @ direction)
    return both[0], both[1]


def damped(gram, share=0.01):
    return gram + share * gram.diagonal().mean() * torch.eye(len(gram))


RIGHT = {
    "wanda.score": {
        "einsum": lambda weight, inputs: torch.einsum(
            "oi,i->oi", weight.abs(), torch.einsum("ni,ni->i", inputs, inputs).sqrt()
        ),
        "loops, as lists": score_by_loops,
        "numpy": lambda w, x: numpy.abs(w.numpy()) * numpy.linalg.norm(x.numpy(), axis=0),
        "times the diagonal matrix": lambda w, x: (
            w.abs() @ torch.diag(torch.linalg.vector_norm(x.double(), dim=0).float())
        ),
        "the squared products": lambda w, x: (w[:, None, :] * x[None]).square().sum(dim=1),
    },
    "wanda.accumulate": {
        "a loop, in place": accumulated_in_a_loop,
        "numpy": lambda total, batch: total.numpy() + (batch.numpy() ** 2).sum(axis=0).sum(axis=0),
        "the diagonal of XᵀX": lambda total, batch: total + (batch.flatten(0, 1).T @ batch.flatten(0, 1)).diagonal(),
        "norms squared": lambda total, batch: total.double() + batch.double().norm(dim=(0, 1)) ** 2,
    },
    "wanda.keep_rows": {
        "numpy, ranks": rows_in_numpy,
        "lists of zeros and ones": rows_as_lists,
        "a threshold, and then its ties": rows_by_kthvalue,
        "float64": lambda s, p: rows(s.double(), p),
        "the last of equal scores leave": lambda s, p: rows(s.flip(1), p).flip(1),
    },
    "wanda.column_groups": {
        "a loop over columns": columns_in_a_loop,
        "numpy, transposed": lambda s, p: rows_in_numpy(s.T, p).T,
        "lists": lambda s, p: torch.tensor(rows_as_lists(s.T, p)).T.tolist(),
        "the last of equal scores leave": lambda s, p: columns(s.flip(0), p).flip(0),
    },
    "wanda.n_of_m": {
        "two loops": groups_in_a_loop,
        "group by group": lambda s, n, m: torch.cat([drop(part, m - n) for part in s.split(m, dim=1)], dim=1),
        "in a view of three axes": lambda s, n, m: (
            torch.zeros_like(s)
            .unflatten(1, (-1, m))
            .scatter(2, s.unflatten(1, (-1, m)).topk(n, dim=2).indices, 1.0)
            .flatten(1)
        ),
        "float64": lambda s, n, m: groups(s.double(), n, m).int(),
    },
    "wanda.sequential": {
        "numpy, float64": both_in_numpy,
        "a loop over layers": both_in_a_loop,
        "root mean squares": lambda a, b, x, s: (
            *both(a, b, x / len(x) ** 0.5, s)[:1],
            prune(b, torch.nn.ReLU()(x @ prune(a, x, s).T) / len(x), s),
        ),
    },
    "wanda.obs_score": {
        "solving for each column": costs_by_solving,
        "entry by entry in float64": costs_entry_by_entry,
        "every step written out": costs_of_the_steps,
        "pinv": lambda w, g: [alone(w, g), helped(w, torch.linalg.pinv(g, hermitian=True))],
        "stacked": lambda w, g: torch.stack(costs(w, g)),
        "in place": lambda w, g: (alone(w, g), w.square_().div_(g.inverse().diagonal())),
    },
    "wanda.interval": {
        "n − 1": lambda k, n: interval(k, n, error=lambda p, n: math.sqrt(p * (1 - p) / (n - 1))),
        "the standard deviation of the answers": from_answers,
        "numpy": lambda k, n: numpy.array([0, -1.96, 1.96]) * numpy.sqrt(k / n * (1 - k / n) / n) + k / n,
        "tensors": lambda k, n: [torch.tensor(x) for x in interval(k, n)],
    },
}

WRONG = {
    "wanda.score": {
        "norm over the features": lambda w, x: w.abs() * x.norm(dim=-1),
        "norm of everything": lambda w, x: w.abs() * x.norm(),
        "each row as shares of its sum": lambda w, x: (
            (w.abs() * x.norm(dim=0)) / (w.abs() * x.norm(dim=0)).sum(dim=1, keepdim=True)
        ),
        "each row over its maximum": lambda w, x: (
            (w.abs() * x.norm(dim=0)) / (w.abs() * x.norm(dim=0)).amax(dim=1, keepdim=True)
        ),
        "norm of the outputs": (lambda w, x: w.abs() * (x @ w.T).norm(dim=0)[:, None], "norm of the outputs"),
        "norm not rooted": lambda w, x: w.abs() * (x**2).sum(0),
        "weight squared alone": lambda w, x: w.square() * x.norm(dim=0),
        "magnitude": lambda w, x: w.abs(),
        "norms alone": lambda w, x: x.norm(dim=0).repeat(len(w), 1),
        "sign kept": lambda w, x: w * x.norm(dim=0),
        "mean": lambda w, x: w.abs() * x.mean(0),
        "mean of absolute values": lambda w, x: w.abs() * x.abs().mean(0),
        "largest": lambda w, x: w.abs() * x.abs().amax(0),
        "standard deviation": lambda w, x: w.abs() * x.std(0),
        "divided": lambda w, x: w.abs() / (x.norm(dim=0) + 1e-8),
        "added": lambda w, x: w.abs() + x.norm(dim=0),
        "negative": lambda w, x: -w.abs() * x.norm(dim=0),
        "a column's share of the norms": lambda w, x: w.abs() * x.norm(dim=0).softmax(0),
        "the last token": lambda w, x: w.abs() * x[-1].abs(),
        "the product": lambda w, x: w.abs() @ x.norm(dim=0),
        "what the layer gives": lambda w, x: x @ w.T,
        "the mask": lambda w, x: rows(w.abs() * x.norm(dim=0), 0.5),
    },
    "wanda.accumulate": {
        "norms added": lambda total, batch: total + batch.norm(dim=(0, 1)),
        "root inside": lambda total, batch: (total + batch.square().sum((0, 1))).sqrt(),
        "running norm": (
            lambda total, batch: (total.square() + batch.square().sum((0, 1))).sqrt(),
            "a norm in place of the sum of squares",
        ),
        "total squared": lambda total, batch: total.square() + batch.square().sum((0, 1)),
        "not squared": lambda total, batch: total + batch.sum((0, 1)),
        "absolute values": lambda total, batch: total + batch.abs().sum((0, 1)),
        "squared after summing": lambda total, batch: total + batch.sum((0, 1)).square(),
        "this batch alone": lambda total, batch: (batch**2).sum((0, 1)),
        "total alone": lambda total, batch: total,
        "mean": lambda total, batch: total + batch.square().mean((0, 1)),
        "mean over sequences": lambda total, batch: total + batch.square().mean(0).sum(0),
        "mean over tokens": lambda total, batch: total + batch.square().mean(1).sum(0),
        "mean of old and new": lambda total, batch: (total + batch.square().sum((0, 1))) / 2,
        "last token": lambda total, batch: total + batch[:, -1].square().sum(0),
        "first sequence": lambda total, batch: total + batch[0].square().sum(0),
        "summed over features": lambda total, batch: total + batch.square().sum((1, 2)),
        "summed over sequences and features": lambda total, batch: total + batch.square().sum((0, 2)),
        "summed over sequences": lambda total, batch: total + batch.square().sum(0),
        "one number": lambda total, batch: total + batch.square().sum(),
        "largest": lambda total, batch: total + batch.square().amax((0, 1)),
        "times": lambda total, batch: total * batch.square().sum((0, 1)),
        "twice": lambda total, batch: total + 2 * batch.square().sum((0, 1)),
    },
    "wanda.keep_rows": {
        "a slice from the end": rows_with_a_slice_from_the_end,
        "absolute values": lambda s, p: rows(s.abs(), p),
        "zeros leave too": lambda s, p: rows(s, p) & (s != 0),
        "above a threshold": lambda s, p: s > s.sort(dim=1).values[:, [int(s.shape[1] * p) - 1]],
        "from a threshold on": lambda s, p: s >= s.sort(dim=1).values[:, [int(s.shape[1] * p)]],
        "above a quantile": lambda s, p: s > s.quantile(p, dim=1, keepdim=True),
        "from a quantile on": lambda s, p: s >= torch.quantile(s, p, dim=1, keepdim=True),
        "above the quantile of the layer": lambda s, p: s > s.flatten().quantile(p),
        "layer": layer,
        "columns": columns,
        "best leave": lambda s, p: rows(-s, p),
        "True where it leaves": lambda s, p: ~rows(s, p),
        "best leave, True where they leave": lambda s, p: ~rows(-s, p),
        "argsort once": lambda s, p: s.argsort(dim=1) >= int(s.shape[1] * p),
        "argsort over the columns": lambda s, p: s.argsort(0).argsort(0) >= int(s.shape[0] * p),
        "rounded up": lambda s, p: drop(s, rounded_up(s.shape[1], p)),
        "count of what stays, rounded down": lambda s, p: drop(s, s.shape[1] - int(s.shape[1] * (1 - p) + 1e-6)),
        "as many as stay": lambda s, p: drop(s, s.shape[1] - int(s.shape[1] * p)),
        "count from the outputs": lambda s, p: drop(s, min(s.shape[0] * p, s.shape[1])),
        "one more": lambda s, p: drop(s, s.shape[1] * p + 1),
        "the scores": lambda s, p: s * rows(s, p),
        "below the mean": lambda s, p: s > s.mean(dim=1, keepdim=True),
        "share of the maximum": lambda s, p: s > p * s.amax(dim=1, keepdim=True),
    },
    "wanda.column_groups": {
        "a slice from the end": columns_with_a_slice_from_the_end,
        "absolute values": lambda s, p: columns(s.abs(), p),
        "zeros leave too": lambda s, p: columns(s, p) & (s != 0),
        "above a threshold": lambda s, p: s > s.sort(dim=0).values[[int(s.shape[0] * p) - 1]],
        "from a threshold on": lambda s, p: s >= s.sort(dim=0).values[[int(s.shape[0] * p)]],
        "above a quantile": lambda s, p: s > s.quantile(p, dim=0),
        "above the median": lambda s, p: s > s.median(dim=0).values,
        "rows": rows,
        "layer": layer,
        "layer by a threshold": lambda s, p: s > s.flatten().quantile(p),
        "best leave": lambda s, p: columns(-s, p),
        "True where it leaves": lambda s, p: ~columns(s, p),
        "argsort once": lambda s, p: s.argsort(dim=0) >= int(s.shape[0] * p),
        "ranks over rows": lambda s, p: s.argsort(1).argsort(1) >= int(s.shape[0] * p),
        "rounded up": lambda s, p: drop(s.T, rounded_up(s.shape[0], p)).T,
        "rounded to nearest": lambda s, p: drop(s.T, round(s.shape[0] * p)).T,
        "count from the inputs": lambda s, p: drop(s.T, min(s.shape[1] * p, s.shape[0])).T,
        "as many as stay": lambda s, p: drop(s.T, s.shape[0] - int(s.shape[0] * p)).T,
        "one more": lambda s, p: drop(s.T, s.shape[0] * p + 1).T,
        "not turned back": lambda s, p: rows(s.T, p),
        "whole columns": lambda s, p: rows(s.sum(0, keepdim=True), p).expand(s.shape),
        "whole rows": lambda s, p: columns(s.sum(1, keepdim=True), p).expand(s.shape),
        "the scores": lambda s, p: s * columns(s, p),
    },
    "wanda.n_of_m": {
        "absolute values": lambda s, n, m: groups(s.abs(), n, m),
        "zeros leave too": lambda s, n, m: groups(s, n, m) & (s != 0),
        "n leave": lambda s, n, m: groups(s, m - n, m),
        "n lowest stay": lambda s, n, m: groups(-s, n, m),
        "True where it leaves": lambda s, n, m: ~groups(s, n, m),
        "above a threshold": lambda s, n, m: (
            s.unflatten(1, (-1, m)) > s.unflatten(1, (-1, m)).sort(2).values[:, :, [m - n - 1]]
        ).flatten(1),
        "from a threshold on": lambda s, n, m: (
            s.unflatten(1, (-1, m)) >= s.unflatten(1, (-1, m)).sort(2).values[:, :, [m - n]]
        ).flatten(1),
        "the nth best as a threshold": lambda s, n, m: (
            s.unflatten(1, (-1, m)) > s.unflatten(1, (-1, m)).topk(n, dim=2).values[:, :, -1:]
        ).flatten(1),
        "argsort once": lambda s, n, m: (s.reshape(-1, m).argsort(1) >= m - n).reshape(s.shape),
        "columns": lambda s, n, m: torch.cat([groups(s.T[:, : len(s) // m * m], n, m).T, s[len(s) // m * m :] > -1]),
        "row": lambda s, n, m: drop(s, s.shape[1] * (m - n) / m),
        "layer": lambda s, n, m: layer(s, (m - n) / m),
        "interleaved": lambda s, n, m: torch.stack(
            [drop(part, m - n) for part in s.reshape(len(s), m, -1).unbind(2)], dim=2
        ).reshape(s.shape),
        "always 2:4": lambda s, n, m: groups(s, 2, 4),
        "always half": lambda s, n, m: groups(s, m // 2, m),
        "groups of n": lambda s, n, m: drop(s.reshape(-1, n), 1).reshape(s.shape),
        "one more": lambda s, n, m: groups(s, n + 1, m),
        "first n of each": lambda s, n, m: (torch.arange(s.shape[1]) % m < n).expand(s.shape),
        "not flattened": lambda s, n, m: groups(s, n, m).unflatten(1, (-1, m)),
        "indices": lambda s, n, m: s.unflatten(1, (-1, m)).topk(n, dim=2).indices.flatten(1),
        "the scores": lambda s, n, m: s * groups(s, n, m),
    },
    "wanda.sequential": {
        "leaky ReLU": through(lambda h: torch.nn.functional.leaky_relu(h)),
        "GELU": through(torch.nn.functional.gelu),
        "SiLU": through(torch.nn.functional.silu),
        "absolute values": through(torch.abs),
        "sigmoid": through(torch.sigmoid),
        "no ReLU": through(lambda h: h),
        "dense hidden": lambda a, b, x, s: both(a, b, x, s, lambda x, dense, pruned: torch.relu(x @ dense.T)),
        "dense hidden, no ReLU": lambda a, b, x, s: both(a, b, x, s, lambda x, dense, pruned: x @ dense.T),
        "magnitude for both": lambda a, b, x, s: (a * rows(a.abs(), s), b * rows(b.abs(), s)),
        "magnitude for the first": lambda a, b, x, s: (
            a * rows(a.abs(), s),
            prune(b, torch.relu(x @ (a * rows(a.abs(), s)).T), s),
        ),
        "magnitude for the second": lambda a, b, x, s: (prune(a, x, s), b * rows(b.abs(), s)),
        "second left dense": lambda a, b, x, s: (prune(a, x, s), b),
        "first left dense": lambda a, b, x, s: (a, prune(b, torch.relu(x @ a.T), s)),
        "in the other order": lambda a, b, x, s: both(a, b, x, s)[::-1],
        "the second alone": lambda a, b, x, s: both(a, b, x, s)[1],
        "the masks": lambda a, b, x, s: tuple(layer != 0 for layer in both(a, b, x, s)),
        "whole layers": lambda a, b, x, s: both(a, b, x, s, choose=layer),
        "columns": lambda a, b, x, s: both(a, b, x, s, choose=columns),
        "best leave": lambda a, b, x, s: both(a, b, x, s, choose=lambda score, p: rows(-score, p)),
        "keep turned round": lambda a, b, x, s: both(a, b, x, s, choose=lambda score, p: ~rows(score, p)),
        "rounded up": lambda a, b, x, s: both(
            a, b, x, s, choose=lambda score, p: drop(score, rounded_up(score.shape[1], p))
        ),
        "outputs of the second": lambda a, b, x, s: (
            prune(a, x, s),
            b * rows(b.abs() * (torch.relu(x @ prune(a, x, s).T) @ b.T).norm(dim=0)[:, None], s),
        ),
        "norms of the outputs for both": lambda a, b, x, s: (
            a * rows(a.abs() * (x @ a.T).norm(dim=0)[:, None], s),
            b * rows(b.abs() * (torch.relu(x @ a.T) @ b.T).norm(dim=0)[:, None], s),
        ),
        "squared norms": lambda a, b, x, s: (
            a * rows(a.abs() * x.square().sum(0), s),
            b * rows(b.abs() * torch.relu(x @ prune(a, x, s).T).square().sum(0), s),
        ),
    },
    "wanda.obs_score": {
        "half": lambda w, g: (0.5 * alone(w, g), 0.5 * helped(w, g.inverse())),
        "half of the second": lambda w, g: (alone(w, g), 0.5 * helped(w, g.inverse())),
        "the roots": lambda w, g: tuple(cost.sqrt() for cost in costs(w, g)),
        "Wanda and the other": lambda w, g: (w.abs() * g.diagonal().sqrt(), helped(w, g.inverse())),
        "w not squared": lambda w, g: (w.abs() * g.diagonal(), w.abs() / g.inverse().diagonal()),
        "sign kept": lambda w, g: (w * g.diagonal(), w / g.inverse().diagonal()),
        "w not squared in the second": lambda w, g: (alone(w, g), w.abs() / g.inverse().diagonal()),
        "divided by H_jj": (
            lambda w, g: (alone(w, g), w.square() / g.diagonal()),
            "divided by the diagonal of H",
        ),
        "the first divided by H_jj": (
            lambda w, g: (w.square() / g.diagonal(), helped(w, g.inverse())),
            "the first divided by the diagonal of H",
        ),
        "diagonal inverted": lambda w, g: (alone(w, g), w.square() / (1 / g.diagonal())),
        "multiplied": lambda w, g: (alone(w, g), w.square() * g.inverse().diagonal()),
        "the diagonal squared": lambda w, g: (w.square() * g.diagonal() ** 2, helped(w, g.inverse())),
        "damped again": lambda w, g: costs(w, damped(g)),
        "damped again, the second": lambda w, g: (alone(w, g), helped(w, damped(g).inverse())),
        "the whole inverse": lambda w, g: (alone(w, g), w.square() @ g.inverse()),
        "row sums of the inverse": lambda w, g: (alone(w, g), w.square() / g.inverse().sum(0)),
        "row sums of H": lambda w, g: (w.square() * g.sum(0), helped(w, g.inverse())),
        "the whole H": lambda w, g: (w.square() @ g, helped(w, g.inverse())),
        "entries inverted": lambda w, g: (alone(w, g), w.square() / (1 / g).diagonal()),
        "swapped": lambda w, g: costs(w, g)[::-1],
        "the second alone": lambda w, g: helped(w, g.inverse()),
        "the first alone": alone,
        "what is saved": lambda w, g: (alone(w, g), alone(w, g) - helped(w, g.inverse())),
        "both with help": lambda w, g: (helped(w, g.inverse()),) * 2,
        "of the Cholesky factor": lambda w, g: (
            alone(w, g),
            w.square() / torch.linalg.cholesky(g.inverse()).diagonal().square(),
        ),
    },
    "wanda.interval": {
        "z = 2": lambda k, n: interval(k, n, z=2),
        "z = 1.645": lambda k, n: interval(k, n, z=1.645),
        "z = 1": lambda k, n: interval(k, n, z=1),
        "no division by n": lambda k, n: interval(k, n, error=lambda p, n: math.sqrt(p * (1 - p))),
        "n outside the root": lambda k, n: interval(k, n, error=lambda p, n: math.sqrt(p * (1 - p)) / n),
        "no root": lambda k, n: interval(k, n, error=lambda p, n: p * (1 - p) / n),
        "p without 1 − p": lambda k, n: interval(k, n, error=lambda p, n: math.sqrt(p / n)),
        "the worst case": lambda k, n: interval(k, n, error=lambda p, n: 0.5 / math.sqrt(n)),
        "per cent": lambda k, n: tuple(100 * x for x in interval(k, n)),
        "counts": lambda k, n: (
            k,
            k - 1.96 * math.sqrt(k * (n - k) / n),
            k + 1.96 * math.sqrt(k * (n - k) / n),
        ),
        "Wilson": wilson,
        "upper first": lambda k, n: tuple(interval(k, n)[i] for i in (0, 2, 1)),
        "accuracy in the middle": lambda k, n: tuple(interval(k, n)[i] for i in (1, 0, 2)),
        "without the accuracy": lambda k, n: interval(k, n)[1:],
        "accuracy and half the width": lambda k, n: (k / n, 1.96 * math.sqrt(k / n * (1 - k / n) / n)),
        "half the interval to either side": lambda k, n: interval(k, n, z=0.98),
        "accuracy alone": lambda k, n: k / n,
        "rounded": lambda k, n: tuple(round(x, 2) for x in interval(k, n)),
    },
}
