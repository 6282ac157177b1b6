"""Answers to the exercises of lesson 07, as students write them.

Dimension key: B sequences, H key-value heads, Q queries, W queries of a history, N slots.
"""

import math
from itertools import pairwise

import numpy
import torch
from torch.nn.functional import cosine_similarity

INF = float("inf")


def mask_of(shape, index):
    return torch.zeros(shape, dtype=torch.bool).scatter(-1, index, True)


# kv.slots: m bytes, n blocks, q and h heads, d a head's size, b sequences, v bytes a number


def slots_by_adding(m, n, q, h, d, b, v):
    token, fit = sum(2 * h * d * v for _ in range(n)) * b, 0
    lowest, highest = 0, m // token + 1
    while lowest <= highest:
        middle = (lowest + highest) // 2
        fit, lowest, highest = (middle, middle + 1, highest) if middle * token <= m else (fit, lowest, middle - 1)
    return fit


SLOTS_RIGHT = {
    "a search": slots_by_adding,
    "a whole tensor": lambda m, n, q, h, d, b, v: torch.tensor(m) // (2 * n * h * d * b * v),
    "numpy floor": lambda m, n, q, h, d, b, v: numpy.floor(m / (2 * n * h * d * b * v)),
    "each sequence its part": lambda m, n, q, h, d, b, v: (m // b) // (2 * n * h * d * v),
}
SLOTS_WRONG = {
    "query heads": lambda m, n, q, h, d, b, v: m // (2 * n * q * d * v * b),
    "keys": lambda m, n, q, h, d, b, v: m // (n * h * d * v * b),
    "one block": lambda m, n, q, h, d, b, v: m // (2 * h * d * v * b),
    "one sequence": lambda m, n, q, h, d, b, v: m // (2 * n * h * d * v),
    "numbers": lambda m, n, q, h, d, b, v: m // (2 * n * h * d * b),
    "one head": lambda m, n, q, h, d, b, v: m // (2 * n * d * v * b),
    "up": lambda m, n, q, h, d, b, v: math.ceil(m / (2 * n * h * d * v * b)),
    "to the nearest": lambda m, n, q, h, d, b, v: round(m / (2 * n * h * d * v * b)),
    "not whole": lambda m, n, q, h, d, b, v: m / (2 * n * h * d * v * b),
    "at least one": lambda m, n, q, h, d, b, v: max(1, m // (2 * n * h * d * v * b)),
    "floor, then shared out": lambda m, n, q, h, d, b, v: m // (2 * n * h * d * v) / b,
    "floor, then shared out and rounded": lambda m, n, q, h, d, b, v: round(m // (2 * n * h * d * v) / b),
    "size of the model": lambda m, n, q, h, d, b, v: m // (2 * n * q * h * d * v * b),
    "bytes of a token": lambda m, n, q, h, d, b, v: 2 * n * h * d * v * b,
    "size left out": lambda m, n, q, h, d, b, v: m // (2 * n * h * v * b),
    "query and key-value heads": lambda m, n, q, h, d, b, v: m // (n * (q + 2 * h) * d * v * b),
}

# kv.window


def window_in_loops(position, budget):
    keep = torch.zeros(position.shape)
    for b, heads in enumerate(position.tolist()):
        for h, row in enumerate(heads):
            for slot in sorted(range(len(row)), key=row.__getitem__)[-budget:]:
                keep[b, h, slot] = 1
    return keep


WINDOW_RIGHT = {
    "loops": window_in_loops,
    "numpy": lambda p, n: numpy.argsort(numpy.argsort(p.numpy(), -1), -1) >= p.shape[-1] - n,
    "how many are newer": lambda p, n: (p[..., None, :] > p[..., :, None]).sum(-1) < n,
    "kth value": lambda p, n: p >= p.kthvalue(p.shape[-1] - n + 1, dim=-1, keepdim=True).values,
    "in place": lambda p, n: p.new_zeros(p.shape).scatter_(-1, p.argsort(-1, descending=True)[..., :n], 1),
}
WINDOW_WRONG = {
    "oldest": lambda p, n: mask_of(p.shape, p.topk(n, -1, largest=False).indices),
    "oldest by sorting": lambda p, n: mask_of(p.shape, p.argsort(-1)[..., :n]),
    "last slots": lambda p, n: (torch.arange(p.shape[-1]) >= p.shape[-1] - n).expand(p.shape),
    "threshold": lambda p, n: p >= p.amax(-1, keepdim=True) - n + 1,
    "threshold, one more": lambda p, n: p >= p.amax(-1, keepdim=True) - n,
    "one threshold": lambda p, n: p > p.max() - n,
    "complement": lambda p, n: ~mask_of(p.shape, p.topk(n, -1).indices),
    "one argsort": lambda p, n: p.argsort(-1) >= p.shape[-1] - n,
    "one argsort, descending": lambda p, n: p.argsort(-1, descending=True) < n,
    "n + 1": lambda p, n: mask_of(p.shape, p.topk(n + 1, -1).indices),
    "n - 1": lambda p, n: p > p.sort(-1).values[..., -n, None],
    "first head's": lambda p, n: mask_of(p.shape, p[:, :1].topk(n, -1).indices.expand(*p.shape[:2], n)),
    "positions": lambda p, n: p.topk(n, -1).values,
    "indices": lambda p, n: p.topk(n, -1).indices,
    "over the heads": lambda p, n: mask_of(p.shape, p.topk(min(n, p.shape[1]), 1).indices),
    "all heads together": lambda p, n: p >= p.flatten(1).topk(n * p.shape[1], 1).values[:, -1, None, None],
    "first slots": lambda p, n: (torch.arange(p.shape[-1]) < n).expand(p.shape),
}

# kv.group_mass


def mass_in_loops(w, v, h):
    out = torch.zeros(w.shape[0], h, w.shape[3])
    for b in range(w.shape[0]):
        for a in range(w.shape[1]):
            for i in range(w.shape[2]):
                if v[b, i]:
                    out[b, a // (w.shape[1] // h)] += w[b, a, i]
    return out


def asked(w, v):
    return w * v[:, None, :, None]


MASS_RIGHT = {
    "loops": mass_in_loops,
    "einsum": lambda w, v, h: torch.einsum("bhgqn,bq->bhn", w.unflatten(1, (h, -1)), v.float()),
    "matrix product": lambda w, v, h: (
        (v[:, None, None].float() @ w).squeeze(2).reshape(len(w), h, -1, w.shape[3]).sum(2)
    ),
    "numpy": lambda w, v, h: (w.numpy() * v.numpy()[:, None, :, None]).sum(2).reshape(len(w), h, -1, w.shape[3]).sum(2),
    "filled in place": lambda w, v, h: w.masked_fill_(~v[:, None, :, None], 0).unflatten(1, (h, -1)).sum(2).sum(2),
    "mean of the group": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).mean(2).sum(2),
}
MASS_WRONG = {
    "strided": lambda w, v, h: asked(w, v).unflatten(1, (-1, h)).sum((1, 3)),
    "over keys": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).sum((2, 4)),
    "padding too": lambda w, v, h: w.unflatten(1, (h, -1)).sum((2, 3)),
    "only padding": lambda w, v, h: asked(w, ~v).unflatten(1, (h, -1)).sum((2, 3)),
    "all heads": lambda w, v, h: asked(w, v).sum((1, 2))[:, None].expand(-1, h, -1),
    "a row a query head": lambda w, v, h: asked(w, v).sum(2),
    "mean of queries": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).sum(2).mean(2),
    "mean of all": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).mean((2, 3)),
    "last query": lambda w, v, h: w[:, :, -1].unflatten(1, (h, -1)).sum(2),
    "first query": lambda w, v, h: w[:, :, 0].unflatten(1, (h, -1)).sum(2),
    "largest of the group": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).amax(2).sum(2),
    "largest of the queries": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).sum(2).amax(2),
    "first head of the group": lambda w, v, h: asked(w, v).unflatten(1, (h, -1))[:, :, 0].sum(2),
    "sequences together": lambda w, v, h: (
        asked(w, v).unflatten(1, (h, -1)).sum((2, 3)).sum(0, keepdim=True).expand(len(w), -1, -1)
    ),
    "groups of h": lambda w, v, h: asked(w, v)[:, :h].sum(2),
    "normalised": lambda w, v, h: torch.nn.functional.normalize(
        asked(w, v).unflatten(1, (h, -1)).sum((2, 3)), p=1, dim=-1
    ),
    "queries not summed": lambda w, v, h: asked(w, v).unflatten(1, (h, -1)).sum(2),
    "squares": lambda w, v, h: asked(w, v).square().unflatten(1, (h, -1)).sum((2, 3)),
}

# kv.h2o_step


def h2o(score, total=None, position=None, budget=None, recent=None):
    order = total.masked_fill(mask_of(position.shape, position.topk(recent, 1).indices), INF)
    return mask_of(order.shape, order.topk(budget, 1).indices), score


def h2o_by_lists(s, n, p, b, r):
    keep, total = [], (s + n).tolist()
    for row, places in zip(total, p.tolist(), strict=True):
        newest = set(sorted(range(len(row)), key=places.__getitem__)[-r:])
        others = sorted(set(range(len(row))) - newest, key=lambda i, row=row: -row[i])
        stay = newest | set(others[: b - r])
        keep.append([i in stay for i in range(len(row))])
    return keep, total


def h2o_dropping(s, n, p, b, r):
    total = s.double() + n
    rank = p.argsort(1).argsort(1)
    worth = torch.where(rank >= p.shape[1] - r, INF, total)
    keep = torch.ones_like(p)
    keep.scatter_(1, worth.argsort(1)[:, : p.shape[1] - b], 0)
    return keep, total


def h2o_numpy(s, n, p, b, r):
    total = s.numpy() + n.numpy()
    worth = total.copy()
    numpy.put_along_axis(worth, numpy.argsort(p.numpy(), 1)[:, -r:], numpy.inf, 1)
    keep = numpy.zeros(total.shape, dtype=bool)
    numpy.put_along_axis(keep, numpy.argsort(-worth, 1)[:, :b], True, 1)
    return keep, total


def forgetting_those_that_leave(s, n, p, b, r):
    keep, total = h2o(s + n, s + n, p, b, r)
    return keep, total * keep


def bonus(size):
    def step(s, n, p, b, r):
        worth = s + n + size * (p.argsort(1).argsort(1) >= p.shape[1] - r)
        return mask_of(worth.shape, worth.topk(b, 1).indices), s + n

    return step


def overlapping(s, n, p, b, r):
    """The best budget − recent of all, and the newest: fewer than the budget where they overlap."""
    keep = mask_of(p.shape, (s + n).topk(b - r, 1).indices)
    return keep | mask_of(p.shape, p.topk(r, 1).indices), s + n


def one_mask(s, n, p, b, r):
    keep, total = h2o(s + n, s + n, p, b, r)
    return keep[:1].expand(keep.shape), total


H2O_RIGHT = {
    "lists": h2o_by_lists,
    "the lowest dropped, float64": h2o_dropping,
    "numpy": h2o_numpy,
    "sums of those that leave set to 0": forgetting_those_that_leave,
    "a bonus above all sums": lambda s, n, p, b, r: bonus(2 * float((s + n).max()) + 1)(s, n, p, b, r),
}
H2O_WRONG = {
    "a bonus of a billion": (bonus(1e9), "recent tokens not protected"),
    "a bonus of 1000": bonus(1e3),
    "a bonus of 10": bonus(10),
    "a bonus of a million": bonus(1e6),
    "old scores": lambda s, n, p, b, r: h2o(s, s, p, b, r),
    "this step": lambda s, n, p, b, r: h2o(n, n, p, b, r),
    "old scores decide": lambda s, n, p, b, r: h2o(s + n, s, p, b, r),
    "this step decides": lambda s, n, p, b, r: h2o(s + n, n, p, b, r),
    "nobody protected": lambda s, n, p, b, r: (mask_of(p.shape, (s + n).topk(b, 1).indices), s + n),
    "last slots": lambda s, n, p, b, r: h2o(s + n, s + n, torch.arange(p.shape[1]).expand(p.shape), b, r),
    "recent on top": lambda s, n, p, b, r: h2o(s + n, s + n, p, min(b + r, p.shape[1]), r),
    "overlapping": overlapping,
    "one mask for all heads": one_mask,
    "lowest stay": lambda s, n, p, b, r: h2o(s + n, -s - n, p, b, r),
    "complement": lambda s, n, p, b, r: (~h2o(s + n, s + n, p, b, r)[0], s + n),
    "heads together": lambda s, n, p, b, r: h2o(s + n, (s + n).sum(0).expand(s.shape), p, b, r),
    "mean": lambda s, n, p, b, r: h2o((s + n) / 2, s + n, p, b, r),
    "decayed": lambda s, n, p, b, r: h2o(0.9 * s + n, 0.9 * s + n, p, b, r),
    "infinite scores": lambda s, n, p, b, r: h2o(
        (s + n).masked_fill(mask_of(p.shape, p.topk(r, 1).indices), INF), s + n, p, b, r
    ),
    "the mask alone": lambda s, n, p, b, r: h2o(s + n, s + n, p, b, r)[0],
    "the other way round": lambda s, n, p, b, r: h2o(s + n, s + n, p, b, r)[::-1],
    "the oldest protected": lambda s, n, p, b, r: h2o(s + n, s + n, -p, b, r),
    "a window": lambda s, n, p, b, r: (mask_of(p.shape, p.topk(b, 1).indices), s + n),
    "one recent too many": lambda s, n, p, b, r: h2o(s + n, s + n, p, b, r + 1),
}

# kv.deferred: before, after, held back, prefix


def leading(right):
    return int(right.long().cumprod(0).sum())


def counted(b, a, h, n):
    right = 0
    for row, token in zip(a[n - 1 :], h[n:], strict=False):
        if row.argmax() != token:
            return right
        right += 1
    return right


def numpy_deferred(b, a, h, n):
    wrong = numpy.flatnonzero(a.numpy().argmax(1)[n - 1 : -1] != h.numpy()[n:])
    return wrong[0] if len(wrong) else len(h) - n


def wrapped(b, a, h, n):
    right = 0
    while n - 1 + right < len(a) and a[n - 1 + right].argmax() == h[(n + right) % len(h)]:
        right += 1
    return right


DEFERRED_RIGHT = {
    "a loop": counted,
    "numpy": numpy_deferred,
    "all rows shifted": lambda b, a, h, n: leading((torch.cat([b[-1:], a[:-1]]).argmax(-1) == h)[n:]),
    "a float tensor": lambda b, a, h, n: (a[n - 1 : -1].max(-1).indices == h[n:]).float().cumprod(0).sum(),
}
DEFERRED_WRONG = {
    "the leak": lambda b, a, h, n: leading(torch.cat([b[-1:], a[n:-1]]).argmax(-1) == h[n:]),
    "all rows, prefix counted": (
        lambda b, a, h, n: leading(torch.cat([b[-1:], a[:-1]]).argmax(-1) == h),
        "question counted too",
    ),
    "zero": (lambda b, a, h, n: 0, ""),
    "shifted": lambda b, a, h, n: leading(a[n:].argmax(-1) == h[n:]),
    "shifted the other way": lambda b, a, h, n: leading(a.argmax(-1).roll(2)[n:] == h[n:]),
    "first token left out": lambda b, a, h, n: leading(a[n:-1].argmax(-1) == h[n + 1 :]),
    "all matches": lambda b, a, h, n: int((a[n - 1 : -1].argmax(-1) == h[n:]).sum()),
    "prefix too": lambda b, a, h, n: leading(a[:-1].argmax(-1) == h[1:]),
    "whole or nothing": lambda b, a, h, n: bool((a[n - 1 : -1].argmax(-1) == h[n:]).all()),
    "a share": lambda b, a, h, n: (a[n - 1 : -1].argmax(-1) == h[n:]).float().mean(),
    "a share of the first": lambda b, a, h, n: counted(b, a, h, n) / (len(h) - n),
    "last row too": lambda b, a, h, n: leading(a[n - 1 :].argmax(-1) == torch.cat([h[n:], h[:1]])),
    "rolled": lambda b, a, h, n: leading((a.argmax(-1) == h.roll(-1))[n - 1 :]),
    "a loop round the end": wrapped,
    "from the start": lambda b, a, h, n: leading(a[: len(h) - n].argmax(-1) == h[n:]),
    "how many wrong": lambda b, a, h, n: len(h) - n - counted(b, a, h, n),
    "counted from one": lambda b, a, h, n: counted(b, a, h, n) + 1,
    "where in what is held back": lambda b, a, h, n: counted(b, a, h, n) + n,
    "least likely": lambda b, a, h, n: leading(a[n - 1 : -1].argmin(-1) == h[n:]),
    "a mask": lambda b, a, h, n: (a[n - 1 : -1].argmax(-1) == h[n:]).long().cumprod(0),
    "the longest run": lambda b, a, h, n: max(
        (y - x - 1 for x, y in pairwise([-1, *(a[n - 1 : -1].argmax(-1) != h[n:]).nonzero().flatten(), len(h) - n])),
    ),
}

# kv.scissorhands: weights, query positions, positions, budget, recent


def low_where(threshold, seen):
    return lambda w, q, p: ((w.mean(0) < threshold(q, p)[:, None]) & seen(p, q[:, None])).sum(0)


def behind(p, q):
    return p <= q


COUNT = low_where(lambda q, p: 1 / (q + 1), behind)


def scissorhands(count=COUNT, size=lambda b: b - b // 2, fits=lambda n, b: n <= b, recent=None):
    def keep(w, q, p, b, r):
        if fits(len(p), b):
            return torch.ones(len(p), dtype=torch.bool)
        low = count(w, q, p).double()
        low[recent(p, r) if recent else p.topk(r).indices] = -INF
        return mask_of((len(p),), low.sort(stable=True).indices[: size(b)])

    return keep


def scissorhands_by_lists(w, q, p, b, r):
    n = len(p)
    if n <= b:
        return [True] * n
    mean = numpy.asarray(w).mean(0)
    low = [sum(p[j] <= at and row[j] < 1 / (int(at) + 1) for row, at in zip(mean, q, strict=True)) for j in range(n)]
    newest = numpy.argsort(-p.numpy())[:r].tolist()
    others = sorted((j for j in range(n) if j not in newest), key=lambda j: (low[j], -p[j]))
    stay = newest + others[: b - b // 2 - r]
    return [j in stay for j in range(n)]


SCISSORHANDS_RIGHT = {
    "lists, ties by age": scissorhands_by_lists,
    "fractions of an even share": scissorhands(
        lambda w, q, p: ((w.double().sum(0) * (q + 1)[:, None] < len(w)) & (p <= q[:, None])).float().sum(0)
    ),
    "einsum": scissorhands(
        lambda w, q, p: torch.einsum("wn,wn->n", (w.mean(0) < 1 / (1 + q)[:, None]).float(), (q[:, None] >= p).float())
    ),
    "shares of what it could see": scissorhands(
        lambda w, q, p: torch.where(p > q[:, None], INF, w.mean(0)).lt((1 / (q + 1))[:, None]).sum(0)
    ),
}
SCISSORHANDS_WRONG = {
    "always": scissorhands(fits=lambda n, b: False),
    "full already": scissorhands(fits=lambda n, b: n < b),
    "strictly behind": (
        scissorhands(low_where(lambda q, p: 1 / (q + 1), lambda p, q: p < q)),
        "its own query left out",
    ),
    "t one more": (scissorhands(low_where(lambda q, p: 1 / (q + 2), behind)), "t too large"),
    "t one less": scissorhands(low_where(lambda q, p: 1 / q, behind)),
    "the last t for all": scissorhands(low_where(lambda q, p: (1 / (q.max() + 1)).expand(len(q)), behind)),
    "number of slots": scissorhands(low_where(lambda q, p: torch.full((len(q),), 1 / len(p)), behind)),
    "whoever comes later": scissorhands(lambda w, q, p: (w.mean(0) < 1 / (q + 1)[:, None]).sum(0)),
    "high ones counted": scissorhands(
        lambda w, q, p: -((w.mean(0) >= 1 / (q + 1)[:, None]) & (p <= q[:, None])).sum(0)
    ),
    "most often low stay": scissorhands(lambda w, q, p: -COUNT(w, q, p)),
    "nobody protected": scissorhands(recent=lambda p, r: p.topk(0).indices),
    "last slots": scissorhands(recent=lambda p, r: torch.arange(len(p) - r, len(p))),
    "oldest protected": scissorhands(recent=lambda p, r: p.topk(r, largest=False).indices),
    "sum of the group": scissorhands(lambda w, q, p: COUNT(w.sum(0, keepdim=True), q, p)),
    "largest of the group": scissorhands(lambda w, q, p: COUNT(w.amax(0, keepdim=True), q, p)),
    "smallest of the group": scissorhands(lambda w, q, p: COUNT(w.amin(0, keepdim=True), q, p)),
    "median of the group": (
        scissorhands(lambda w, q, p: COUNT(w.median(0, keepdim=True).values, q, p)),
        "not the mean of the group",
    ),
    "first head": scissorhands(lambda w, q, p: COUNT(w[:1], q, p)),
    "head by head": scissorhands(lambda w, q, p: sum(COUNT(each[None], q, p) for each in w)),
    "half of it": scissorhands(size=lambda b: b // 2),
    "down to the budget": scissorhands(size=lambda b: b),
    "mass": scissorhands(lambda w, q, p: -w.mean(0).sum(0)),
    "share of queries": scissorhands(lambda w, q, p: COUNT(w, q, p) / (p <= q[:, None]).sum(0).clamp(min=1)),
    "complement": lambda w, q, p, b, r: ~scissorhands()(w, q, p, b, r),
    "recent on top": lambda w, q, p, b, r: scissorhands(size=lambda b: min(b - b // 2 + r, len(p)))(w, q, p, b, r),
}

# kv.merge: key, value, keys, values, threshold


def merging(near=None, weights=None, goes=lambda s, t: s >= t, values=True):
    def merge(k, v, ks, vs, t):
        likeness = cosine_similarity(k[None], ks) if near is None else near(k, v, ks, vs)
        j = int(likeness.argmax())
        s = float(likeness[j])
        if not goes(s, t):
            return ks, vs
        old, new = weights(s) if weights else (math.e / (math.e + math.exp(s)), math.exp(s) / (math.e + math.exp(s)))
        ks[j] = old * ks[j] + new * k
        if values:
            vs[j] = old * vs[j] + new * v
        return ks, vs

    return merge


def merge_numpy(k, v, ks, vs, t):
    k, v, ks, vs = (x.numpy().astype(float) for x in (k, v, ks, vs))
    cosine = ks @ k / numpy.sqrt((ks**2).sum(1) * (k**2).sum())
    j = cosine.argmax()
    if cosine[j] < t:
        return ks, vs
    share = numpy.exp([1, cosine[j]]) / numpy.exp([1, cosine[j]]).sum()
    ks[j], vs[j] = share @ numpy.stack([ks[j], k]), share @ numpy.stack([vs[j], v])
    return [ks, vs]


def merge_stacked(k, v, ks, vs, t):
    unit = torch.nn.functional.normalize(torch.cat([k[None], ks]), dim=1)
    s, j = (unit[1:] @ unit[0]).max(0)
    share = torch.tensor([1.0, s]).softmax(0)
    row = (torch.arange(len(ks)) == j)[:, None] & (s >= t)
    return torch.where(row, share[0] * ks + share[1] * k, ks), torch.where(row, share[0] * vs + share[1] * v, vs)


def merge_in_loops(k, v, ks, vs, t):
    best, slot = -2.0, 0
    for i in range(len(ks)):
        cosine = sum(a * b for a, b in zip(k.tolist(), ks[i].tolist(), strict=True)) / float(k.norm() * ks[i].norm())
        best, slot = max((best, slot), (cosine, i))
    if best >= t:
        for x, new in ((ks, k), (vs, v)):
            x[slot] = (math.e * x[slot] + math.exp(best) * new) / (math.e + math.exp(best))
    return ks, vs


def argmin_merge(k, v, ks, vs, t):
    cosine = cosine_similarity(k[None], ks)
    s, j = cosine.min(0)
    if s >= t:
        share = torch.sigmoid(s - 1)
        ks[j], vs[j] = torch.lerp(ks[j], k, share), torch.lerp(vs[j], v, share)
    return ks, vs


MERGE_RIGHT = {"numpy": merge_numpy, "without a branch": merge_stacked, "loops": merge_in_loops}
MERGE_WRONG = {
    "half": merging(weights=lambda s: (0.5, 0.5)),
    "swapped": merging(weights=lambda s: (math.exp(s) / (math.e + math.exp(s)), math.e / (math.e + math.exp(s)))),
    "added": merging(weights=lambda s: (1, 1)),
    "added with e and e^s": merging(weights=lambda s: (math.e, math.exp(s))),
    "only the new one weighted": merging(weights=lambda s: (1, math.exp(s) / (math.e + math.exp(s)))),
    "by cosines": merging(weights=lambda s: (1 / (1 + s), s / (1 + s))),
    "the cosine alone": merging(weights=lambda s: (1 - s, s)),
    "the cosine for the kept": merging(weights=lambda s: (s, 1 - s)),
    "overwritten": merging(weights=lambda s: (0, 1)),
    "against 1": merging(weights=lambda s: (1 / (1 + math.exp(s)), math.exp(s) / (1 + math.exp(s)))),
    "product": merging(lambda k, v, ks, vs: ks @ k),
    "distance": merging(lambda k, v, ks, vs: -(ks - k).norm(dim=1)),
    "by values": merging(lambda k, v, ks, vs: cosine_similarity(v[None], vs)),
    "either sign": merging(lambda k, v, ks, vs: cosine_similarity(k[None], ks).abs()),
    "half normalised": merging(lambda k, v, ks, vs: ks @ k / ks.norm(dim=1)),
    "the farthest": merging(lambda k, v, ks, vs: -cosine_similarity(k[None], ks)),
    "argmin": (argmin_merge, ""),
    "always merged": merging(goes=lambda s, t: True),
    "never merged": merging(goes=lambda s, t: False),
    "merged below": merging(goes=lambda s, t: s < t),
    "keys alone": merging(values=False),
    "the last slot": merging(lambda k, v, ks, vs: torch.arange(len(ks)) * 1.0),
    "added as a slot": lambda k, v, ks, vs, t: (torch.cat([ks, k[None]]), torch.cat([vs, v[None]])),
}

# kv.quantize


def grouped(
    low=lambda g: g.amin(1, keepdim=True),
    high=lambda g: g.amax(1, keepdim=True),
    levels=lambda b: 2**b - 1,
    divide=None,
    multiply=None,
    rounded=torch.round,
    back=True,
):
    def quantize(x, b, n):
        g = x.reshape(-1, n)
        step = (high(g) - low(g)) / levels(b)
        divisor, factor = divide(step) if divide else step.clamp(min=1e-12), multiply(step) if multiply else step
        return (rounded((g - low(g)) / divisor) * factor + (low(g) if back else 0)).reshape(x.shape)

    return quantize


def quantize_in_loops(x, b, n):
    out = []
    for start in range(0, len(x), n):
        group = x[start : start + n].tolist()
        step = (max(group) - min(group)) / (2**b - 1)
        out += [min(group) + (round((number - min(group)) / step) * step if step else 0) for number in group]
    return out


def quantize_numpy(x, b, n):
    g = x.numpy().reshape(-1, n)
    low, high = g.min(1, keepdims=True), g.max(1, keepdims=True)
    step = numpy.where(high == low, 1, (high - low) / (2**b - 1))
    return (low + numpy.rint((g - low) / step) * step).ravel()


QUANTIZE_RIGHT = {
    "loops": quantize_in_loops,
    "numpy": quantize_numpy,
    "a millionth added to both": grouped(divide=lambda s: s + 1e-6, multiply=lambda s: s + 1e-6),
    "a millionth added once": grouped(divide=lambda s: s + 1e-6),
    "a tiny guard": grouped(divide=lambda s: s + 1e-10),
    "nan taken away": lambda x, b, n: torch.where((y := grouped(divide=lambda s: s)(x, b, n)).isnan(), x, y),
    "floor of a half more": grouped(rounded=lambda c: (c + 0.5).floor()),
}
QUANTIZE_WRONG = {
    "a thousandth at least": grouped(divide=lambda s: s.clamp(min=1e-3), multiply=lambda s: s.clamp(min=1e-3)),
    "1e-5 at least": grouped(divide=lambda s: s.clamp(min=1e-5), multiply=lambda s: s.clamp(min=1e-5)),
    "a thousandth added": grouped(divide=lambda s: s + 1e-3, multiply=lambda s: s + 1e-3),
    "1e-5 added": grouped(divide=lambda s: s + 1e-5, multiply=lambda s: s + 1e-5),
    "one grid": lambda x, b, n: grouped()(x, b, len(x)),
    "2^b steps": grouped(levels=lambda b: 2**b),
    "2^(b-1) - 1 steps": grouped(levels=lambda b: 2 ** (b - 1) - 1),
    "b steps": grouped(levels=lambda b: b),
    "floor": grouped(rounded=torch.floor),
    "ceil": grouped(rounded=torch.ceil),
    "whole numbers cut off": grouped(rounded=lambda c: c.int().float()),
    "not rounded": grouped(rounded=lambda c: c),
    "from zero": grouped(low=lambda g: torch.zeros(len(g), 1)),
    "by the largest": grouped(
        low=lambda g: -g.abs().amax(1, keepdim=True), high=lambda g: g.abs().amax(1, keepdim=True)
    ),
    "lowest forgotten": grouped(back=False),
    "codes": grouped(multiply=lambda s: 1.0, back=False),
    "strided groups": lambda x, b, n: grouped()(x.reshape(n, -1).T.reshape(-1), b, n).reshape(-1, n).T.reshape(-1),
    "no guard": grouped(divide=lambda s: s),
    "shape of the groups": lambda x, b, n: grouped()(x, b, n).reshape(-1, n),
    "n groups": lambda x, b, n: grouped()(x, b, len(x) // n),
    "around the mean": grouped(low=lambda g: g.mean(1, keepdim=True)),
}

RIGHT = {
    "kv.slots": SLOTS_RIGHT,
    "kv.window": WINDOW_RIGHT,
    "kv.group_mass": MASS_RIGHT,
    "kv.h2o_step": H2O_RIGHT,
    "kv.deferred": DEFERRED_RIGHT,
    "kv.scissorhands": SCISSORHANDS_RIGHT,
    "kv.merge": MERGE_RIGHT,
    "kv.quantize": QUANTIZE_RIGHT,
}
WRONG = {
    "kv.slots": SLOTS_WRONG,
    "kv.window": WINDOW_WRONG,
    "kv.group_mass": MASS_WRONG,
    "kv.h2o_step": H2O_WRONG,
    "kv.deferred": DEFERRED_WRONG,
    "kv.scissorhands": SCISSORHANDS_WRONG,
    "kv.merge": MERGE_WRONG,
    "kv.quantize": QUANTIZE_WRONG,
}
