"""Answers that somebody without the idea might hand in, by hand for every exercise: they see the arguments alone.

None may earn more than a tenth of the points. What each does is in its name, where its formula does not tell.
"""

import torch
from torch import Tensor


def kept(places: Tensor, like: Tensor) -> Tensor:
    """A mask that is True at the same places of every row."""
    return torch.isin(torch.arange(like.shape[-1]), places).expand(like.shape)


def keep_first(like: Tensor, n: int) -> Tensor:
    return kept(torch.arange(n), like)


def keep_last(like: Tensor, n: int) -> Tensor:
    return kept(torch.arange(like.shape[-1])[-n:] if n else torch.arange(0), like)


def keep_first_blocks(weight: Tensor, rows: int, columns: int, n: int) -> Tensor:
    across = weight.shape[1] // columns
    keep = torch.zeros_like(weight, dtype=torch.bool)
    for block in range(n):
        top, left = block // across * rows, block % across * columns
        keep[top : top + rows, left : left + columns] = True
    return keep


def first_of_block(given: tuple, n_groups: int, n_neurons: int) -> dict[str, Tensor]:
    """Of the seven matrices of a block, as many of the first groups and neurons."""
    q, k, v, o, gate, up, down, _, _, n_key_value = given
    of_query, of_key = (n_groups * len(matrix) // n_key_value for matrix in (q, k))
    attention = {"q": q[:of_query], "k": k[:of_key], "v": v[:of_key], "o": o[:, :of_query]}
    return attention | {"gate": gate[:n_neurons], "up": up[:n_neurons], "down": down[:, :n_neurons]}


def two_of_four(weight: Tensor, places: list[int]) -> tuple[Tensor, Tensor]:
    columns = [i for i in range(weight.shape[1]) if i % 4 in places]
    return weight[:, columns], torch.tensor([i % 4 for i in columns]).expand(len(weight), len(columns))


def unpack_in_order(values: Tensor, bitmap: Tensor, columns: int) -> Tensor:
    dense = torch.zeros(len(bitmap) * columns)
    dense[: len(values)] = values
    return dense.reshape(len(bitmap), columns)


def with_column(weight: Tensor, values: Tensor, j: int) -> Tensor:
    return weight.index_copy(1, torch.tensor([j]), values[:, None])


LAZY = {
    "start.sparsity": [lambda t: 0.0, lambda t: 1.0, lambda t: 1 / 3, lambda t: 0.25, lambda t: t.mean()],
    "start.intensity": [lambda o, i, n, b: 0.25, lambda o, i, n, b: float(n), lambda o, i, n, b: 1.0],
    "start.step_seconds": [lambda f, b, x, y: 0.4, lambda f, b, x, y: len(f), lambda f, b, x, y: torch.zeros(())],
    "start.speedup": [
        lambda p, g: 0,
        lambda p, g: g,
        lambda p, g: 1.0,
        lambda p, g: 2 * (p == 0.5),
        lambda p, g: 1 / p,
    ],
    "start.cache_bytes": [lambda *a: 96, lambda *a: a[0] * a[4], lambda *a: 0, lambda *a: {2: 96, 30: 377487360}[a[0]]],
    "patterns.columns": [
        lambda w, k: (w[:, :k], torch.arange(k)),
        lambda w, k: (w[:, -k:], torch.arange(w.shape[1] - k, w.shape[1])),
        lambda w, k: (torch.zeros(len(w), k), torch.arange(k)),
        lambda w, k: (w, torch.arange(w.shape[1])),
    ],
    "patterns.blocks": [
        keep_first_blocks,
        lambda w, r, c, n: keep_first_blocks(w, r, c, n).flip(0).flip(1),
        lambda w, r, c, n: keep_first_blocks(w.T, c, r, n).T,
        lambda w, r, c, n: torch.ones_like(w, dtype=torch.bool),
        lambda w, r, c, n: torch.zeros_like(w, dtype=torch.bool),
        lambda w, r, c, n: w != 0,
    ],
    "patterns.nofm": [
        lambda w: two_of_four(w, [0, 1]),
        lambda w: two_of_four(w, [2, 3]),
        lambda w: two_of_four(w, [1, 3]),
        lambda w: (torch.zeros(len(w), w.shape[1] // 2), torch.tensor([0, 1] * (w.shape[1] // 4)).expand(len(w), -1)),
    ],
    "patterns.bytes": [
        lambda o, i, z, b: dict.fromkeys(("dense", "CSR", "bitmap", "2:4"), o * i * b),
        lambda o, i, z, b: dict.fromkeys(("dense", "CSR", "bitmap", "2:4"), 0),
        lambda o, i, z, b: {"dense": 64, "CSR": 52, "bitmap": 34, "2:4": 34},
    ],
    "patterns.choose": [
        *(lambda k, s, v, name=name: (name, s[name]) for name in ("dense", "CSR", "bitmap", "2:4")),
        lambda k, s, v: ("columns", s["dense"]),
        lambda k, s, v: ("2:4", s["2:4"]) if k.shape == (2, 8) else ("bitmap", s["bitmap"]),
    ],
    "patterns.bitmap": [
        unpack_in_order,
        lambda v, m, c: torch.zeros(len(m), c),
        lambda v, m, c: v.reshape(len(m), c),
        lambda v, m, c: v[: len(m) * c].expand(len(m), -1),
    ],
    "patterns.break_even": [
        lambda v, i: (0.5, 0.96875),
        lambda v, i: (0.5, 0.9375),
        lambda v, i: (1.0, 1.0),
        lambda v, i: (v, i),
    ],
    "patterns.dynamic": [
        lambda w, x, k: x[:, :k] @ w[:, :k].T,
        lambda w, x, k: x[:, -k:] @ w[:, -k:].T,
        lambda w, x, k: torch.zeros(len(x), len(w)),
    ],
    "classic.taylor": [
        lambda g, h, w, gone: 0.0,
        lambda g, h, w, gone: 2.0,
        lambda g, h, w, gone: gone.sum(),
        lambda g, h, w, gone: w[gone].sum(),
    ],
    "classic.obd_saliency": [
        lambda w, h: w,
        lambda w, h: h,
        lambda w, h: w * 0,
        lambda w, h: w.abs(),
        lambda w, h: w * w,
    ],
    "classic.back_one_layer": [
        lambda w, a, b, s, c: s,
        lambda w, a, b, s, c: c,
        lambda w, a, b, s, c: torch.zeros_like(s),
        lambda w, a, b, s, c: torch.full_like(s, 3.25),
    ],
    "classic.obs_update": [lambda w, v, q: w, lambda w, v, q: w * 0, lambda w, v, q: v[q], lambda w, v, q: v @ w],
    "classic.obs_saliency": [lambda w, v: w, lambda w, v: w * 0, lambda w, v: v.diagonal(), lambda w, v: w.square()],
    "classic.recursion": [
        lambda x, a: torch.eye(x.shape[2]) / a,
        lambda x, a: torch.zeros(x.shape[2], x.shape[2]),
        lambda x, a: torch.ones(x.shape[2], x.shape[2]) * a,
    ],
    "classic.prune": [
        lambda w, h, limit: torch.zeros_like(w),
        lambda w, h, limit: w,
        lambda w, h, limit: w if limit == 0.5 else torch.zeros_like(w),
        lambda w, h, limit: w if limit < 1 else torch.zeros_like(w),
        lambda w, h, limit: torch.tensor([0, 2.5, 2]) if limit == 1 else torch.zeros_like(w),
    ],
    "classic.scale": [lambda d, n, b: (400, 1200), lambda d, n, b: (d, n), lambda d, n, b: (0, 0)],
    "sparsegpt.layer_error": [lambda w, p, g: 0.0, lambda w, p, g: g.sum(), lambda w, p, g: (w - p).sum()],
    "sparsegpt.hessian": [
        lambda x, r: torch.eye(x.shape[1]),
        lambda x, r: torch.zeros(x.shape[1], x.shape[1]),
        lambda x, r: x.T[:, : x.shape[1]],
    ],
    "sparsegpt.eliminate": [
        lambda v, gone: v,
        lambda v, gone: v[len(gone) :, len(gone) :],
        lambda v, gone: v[: len(v) - len(gone), : len(v) - len(gone)],
        lambda v, gone: torch.eye(len(v) - len(gone)),
        lambda v, gone: v if not len(gone) else torch.tensor([[1 / 3]]),
    ],
    "sparsegpt.factor": [lambda h: h, lambda h: h.triu(), lambda h: torch.eye(len(h)), lambda h: torch.zeros_like(h)],
    "sparsegpt.settle": [lambda w, x, u, j: w, lambda w, x, u, j: w * 0, lambda w, x, u, j: x[:, None].expand(w.shape)],
    "sparsegpt.mask": [
        lambda w, d, s: torch.ones_like(w).bool(),
        lambda w, d, s: torch.zeros_like(w).bool(),
        lambda w, d, s: keep_last(w.reshape(1, -1), w.numel() - int(w.numel() * s)).reshape(w.shape),
        lambda w, d, s: keep_first(w.reshape(1, -1), w.numel() - int(w.numel() * s)).reshape(w.shape),
        lambda w, d, s: keep_first(w, w.shape[1] - int(w.shape[1] * s)),
        lambda w, d, s: w != 0,
    ],
    "sparsegpt.prune": [
        lambda w, u, s, b: w,
        lambda w, u, s, b: w * 0,
        lambda w, u, s, b: w * keep_last(w, w.shape[1] - int(w.shape[1] * s)),
    ],
    "sparsegpt.bits": [lambda s, b, g, z: 3.25, lambda s, b, g, z: b, lambda s, b, g, z: 0, lambda s, b, g, z: 1 + b],
    "wanda.score": [lambda w, x: w, lambda w, x: torch.zeros_like(w), lambda w, x: w * 0 + 1],
    "wanda.accumulate": [lambda t, x: t, lambda t, x: t * 0, lambda t, x: x[0, 0], lambda t, x: t + 1],
    "wanda.keep_rows": [
        lambda s, p: keep_last(s, s.shape[1] - int(p * s.shape[1])),
        lambda s, p: keep_first(s, s.shape[1] - int(p * s.shape[1])),
        lambda s, p: torch.ones_like(s).bool(),
        lambda s, p: torch.zeros_like(s).bool(),
        lambda s, p: keep_last(s.T, s.shape[0] - int(p * s.shape[0])).T,
    ],
    "wanda.column_groups": [
        lambda s, p: keep_last(s.T, s.shape[0] - int(p * s.shape[0])).T,
        lambda s, p: keep_first(s.T, s.shape[0] - int(p * s.shape[0])).T,
        lambda s, p: torch.ones_like(s).bool(),
        lambda s, p: torch.zeros_like(s).bool(),
        lambda s, p: keep_first(s, s.shape[1] - int(p * s.shape[1])),
        lambda s, p: s != 0,
    ],
    "wanda.n_of_m": [
        lambda s, n, m: (torch.arange(s.shape[1]) % m < n).expand(s.shape),
        lambda s, n, m: (torch.arange(s.shape[1]) % m >= m - n).expand(s.shape),
        lambda s, n, m: keep_first(s, s.shape[1] * n // m),
        lambda s, n, m: torch.ones_like(s).bool(),
        lambda s, n, m: torch.zeros_like(s).bool(),
    ],
    "wanda.sequential": [
        lambda a, b, x, s: (a, b),
        lambda a, b, x, s: (a * 0, b * 0),
        lambda a, b, x, s: (
            a * keep_last(a, a.shape[1] - int(a.shape[1] * s)),
            b * keep_last(b, b.shape[1] - int(b.shape[1] * s)),
        ),
    ],
    "wanda.obs_score": [lambda w, h: (w, w), lambda w, h: (w * 0, w * 0), lambda w, h: (w.square(), w.square())],
    "wanda.interval": [
        lambda k, n: (1.0, 1.0, 1.0),
        lambda k, n: (k, 0, n),
        lambda k, n: (0.6, 0.50398, 0.69602),
        lambda k, n: (0.0, 0.0, 1.0),
    ],
    "kv.slots": [lambda *a: 0, lambda *a: 1, lambda *a: 10, lambda *a: a[0] // 100, lambda *a: int(a[0] > 100)],
    "kv.window": [
        keep_last,
        keep_first,
        lambda p, n: torch.ones_like(p).bool(),
        lambda p, n: torch.zeros_like(p).bool(),
        lambda p, n: p < n,
        lambda p, n: p >= n,
    ],
    "kv.group_mass": [
        lambda w, v, n: w[:, :n, 0],
        lambda w, v, n: w[:, :n, -1],
        lambda w, v, n: torch.zeros_like(w[:, :n, 0]),
        lambda w, v, n: torch.ones_like(w[:, :n, 0]),
    ],
    "kv.h2o_step": [
        lambda s, new, p, b, r: (keep_first(s, b), s + new),
        lambda s, new, p, b, r: (keep_last(s, b), s + new),
        lambda s, new, p, b, r: (torch.ones_like(s).bool(), s),
        lambda s, new, p, b, r: (torch.zeros_like(s).bool(), s + new),
    ],
    "kv.deferred": [
        *(lambda b, a, h, n, k=k: k for k in range(8)),
        lambda b, a, h, n: len(h) - n,
        lambda b, a, h, n: n,
        lambda b, a, h, n: len(h),
    ],
    "kv.scissorhands": [
        lambda w, t, p, b, r: torch.ones_like(p).bool(),
        lambda w, t, p, b, r: torch.zeros_like(p).bool(),
        lambda w, t, p, b, r: keep_last(p, min(b, len(p))),
        lambda w, t, p, b, r: keep_first(p, b),
        lambda w, t, p, b, r: (
            torch.tensor([True, False, False, False, True]) if len(p) == 5 else torch.ones_like(p) > 0
        ),
    ],
    "kv.merge": [
        lambda k, v, ks, vs, t: (ks, vs),
        lambda k, v, ks, vs, t: (ks * 0, vs * 0),
        lambda k, v, ks, vs, t: (ks + k, vs + v),
        lambda k, v, ks, vs, t: (k.expand(ks.shape), v.expand(vs.shape)),
    ],
    "kv.quantize": [
        lambda x, b, g: x,
        lambda x, b, g: x * 0,
        lambda x, b, g: x.round(),
        lambda x, b, g: x.reshape(-1, g).mean(1).repeat_interleave(g),
    ],
    "sinks.share": [
        lambda w, s: w[:, :, -1],
        lambda w, s: w[:, :, 0] * 0,
        lambda w, s: w[:, :, s],
        lambda w, s: w[:, :, 0] * 0 + 1,
    ],
    "sinks.evict": [
        lambda w, k: w[:, : k.sum()],
        lambda w, k: w[:, -k.sum() :],
        lambda w, k: torch.ones(len(w), k.sum()) / k.sum(),
        lambda w, k: torch.zeros(len(w), k.sum()),
        lambda w, k: w,
    ],
    "sinks.slots": [
        lambda n, s, b: list(range(n)),
        lambda n, s, b: list(range(min(n, b))),
        lambda n, s, b: list(range(max(n - b, 0), n)),
        lambda n, s, b: list(range(b)),
        lambda n, s, b: [0, 1, 6, 7, 8, 9],
        lambda n, s, b: [],
        lambda n, s, b: [0, 1, 6, 7, 8, 9] if n == 10 else list(range(n)),
    ],
    "sinks.positions": [lambda p: p, lambda p: -p, lambda p: p * 0, lambda p: torch.arange(p.shape[1]).expand(p.shape)],
    "sinks.rotate": [lambda k, by, f: k, lambda k, by, f: -k, lambda k, by, f: k * 0, lambda k, by, f: k.roll(1, -1)],
    "sinks.cost": [
        lambda w, n, d, r, k: (60, 44, 108),
        lambda w, n, d, r, k: (2 * w, 2 * w, 2 * w),
        lambda w, n, d, r, k: (0, 0, 0),
    ],
    "sinks.softmax": [
        lambda x, s: torch.zeros_like(x),
        lambda x, s: x,
        lambda x, s: torch.ones_like(x) / (x.shape[2] + 1),
        lambda x, s: torch.ones_like(x) / 4,
    ],
    "sinks.gate": [lambda o, z, s: o, lambda o, z, s: o * 0, lambda o, z, s: o * 3 / 4, lambda o, z, s: o / 2],
    "minitron.group": [
        lambda *a: dict(zip(("q", "k", "v", "o", "gate", "up", "down"), a, strict=False)),
        lambda *a: first_of_block(a, len(a[7]), len(a[8])),
        lambda *a: {name: matrix * 0 for name, matrix in first_of_block(a, len(a[7]), len(a[8])).items()},
        lambda *a: first_of_block(a, a[9], len(a[8])),
        lambda *a: first_of_block(a, a[9], len(a[5])),
    ],
    "minitron.count": [
        lambda *a: 134_515_008,
        lambda *a: 378,
        lambda *a: 0,
        lambda *a: a[0] * a[6],
        lambda *a: a[0] * a[1] * a[2],
        lambda *a: sum(a),
    ],
    "minitron.aggregate": [
        lambda x: x[0, 0],
        lambda x: x.mean((0, 1)) * 0 + 1,
        lambda x: torch.arange(x.shape[2]) + 1.0,
        lambda x: x[0, 0].abs(),
        lambda x: torch.tensor([5.0, 13.0, 1.0, 5.0]) if x.shape[2] == 4 else x[-1, -1].abs(),
    ],
    "minitron.heads": [
        lambda s, g, n, m: torch.arange(m * g.shape[1]).expand(len(s), -1),
        lambda s, g, n, m: s.shape[1] - m * g.shape[1] + torch.arange(m * g.shape[1]).expand(len(s), -1),
        lambda s, g, n, m: (g[:, :, None] * (s.shape[1] // n) + torch.arange(m)).flatten(1),
        lambda s, g, n, m: ((g[:, :, None] + 1) * (s.shape[1] // n) - m + torch.arange(m)).flatten(1),
        lambda s, g, n, m: g.repeat_interleave(m, 1),
        lambda s, g, n, m: torch.zeros(len(s), m * g.shape[1]),
        lambda s, g, n, m: g.repeat(1, m),
    ],
    "minitron.influence": [
        lambda s: torch.zeros(len(s) - 1),
        lambda s: torch.ones(len(s) - 1),
        lambda s: torch.tensor([0.52, 1.0]) if len(s) == 3 else torch.full((len(s) - 1,), 0.1),
        lambda s: s[1:, 0, 0],
        lambda s: torch.arange(len(s) - 1.0),
    ],
    "minitron.taylor": [
        lambda w, g: (w[0], g[0]),
        lambda w, g: (w[0] * 0, w[0] * 0),
        lambda w, g: (w[0] * 0 + 1, w[0] * 0 + 1),
        lambda w, g: (w[0].abs(), g[0].abs()),
        lambda w, g: (torch.tensor([2.0, 3.0, 1.0, 6.0]), torch.tensor([6.0, 7.0, 3.0, 6.0])),
    ],
    "minitron.distil": [
        lambda s, t, tau: (0.0, s * 0),
        lambda s, t, tau: (1.0, s),
        lambda s, t, tau: (0.0, s - t),
        lambda s, t, tau: (tau, t),
        lambda s, t, tau: ((s - t).abs().mean(), (s - t).sign()),
    ],
    "minitron.norm": [
        lambda w, e, k: (w, e),
        lambda w, e, k: (w[k], e),
        lambda w, e, k: (w[: len(k)], e),
        lambda w, e, k: (w[k] * 2, e * 4),
        lambda w, e, k: (torch.ones(len(k)), 0.0),
    ],
    "moe.gate": [
        lambda h, k: h,
        lambda h, k: h * 0,
        lambda h, k: torch.ones_like(h) / h.shape[1],
        lambda h, k: keep_first(h, k) / k,
        lambda h, k: h * keep_first(h, k),
        lambda h, k: torch.tensor([[0.5, 0.25, 0, 0], [0, 0.1875, 0, 0.625]]) if len(h) == 2 else h,
    ],
    "moe.top1": [
        lambda h, s: (h[:, 0], h),
        lambda h, s: (s * 0 + 1, h * 0),
        lambda h, s: (s, h * s[:, None]),
        lambda h, s: (h.amax(1), h * 0),
        lambda h, s: (s * 0 + 1 / h.shape[1], s[:, None].expand(h.shape)),
    ],
    "moe.dispatch": [
        lambda x, c, w, i, o: (c.flatten() * 0, torch.zeros(len(o)), x * 0),
        lambda x, c, w, i, o: (torch.arange(c.numel()) // c.shape[1], torch.arange(len(o)), x),
        lambda x, c, w, i, o: (c.flatten(), torch.full((len(o),), c.numel()), x * w[:, :1]),
        lambda x, c, w, i, o: (
            torch.tensor([0, 2, 1, 0, 1, 2]),
            torch.tensor([2, 3, 3, 6]),
            torch.tensor([[2.25, 0], [12, 0], [15.75, 0]]),
        ),
        lambda x, c, w, i, o: (c.flatten().sort()[0], c.flatten().bincount(minlength=len(o)), x * w.sum(1)[:, None]),
    ],
    "moe.capacity": [
        lambda s, o, c, w, n, f: (c >= 0, s),
        lambda s, o, c, w, n, f: (c < 0, s),
        lambda s, o, c, w, n, f: (c >= 0, s + o),
        lambda s, o, c, w, n, f: (keep_first(c, int(f * c.shape[1])), o),
        lambda s, o, c, w, n, f: (w > 0.5, s + o * w[..., None]),
        lambda s, o, c, w, n, f: (c == 0, s * 0),
    ],
    "moe.balance": [
        lambda x, c, a: (a, x * 0),
        lambda x, c, a: (0.0, x),
        lambda x, c, a: (a * x.shape[2], x * 0),
        lambda x, c, a: (0.3, x.sign() * 0.01875),
        lambda x, c, a: (a * x.shape[2] / c.shape[2], x * 0),
        lambda x, c, a: (x.mean(), x.softmax(2)),
    ],
    "moe.load": [
        lambda c, n, h, k: c[0] * 0 + len(c) * k / c.shape[1],
        lambda c, n, h, k: c[0] * 0,
        lambda c, n, h, k: c.sum(0),
        lambda c, n, h, k: torch.tensor([0.02275, 0.5, 0.84134]) if len(c) == 1 else h.sum(0),
        lambda c, n, h, k: (h > 0).float().sum(0),
    ],
    "moe.jacobs": [
        lambda p, o, d: (d[:, 0], p),
        lambda p, o, d: (p[:, 0] * 0, p * 0 + 1 / p.shape[1]),
        lambda p, o, d: (d.square().sum(1) / 2, p),
        lambda p, o, d: (0.2231436, torch.tensor([[0.25, 0.75]])) if len(p) == 1 else (p[:, 0] * 0, p),
        lambda p, o, d: (o.mean((1, 2)), p.square()),
    ],
    "moe.estimate": [
        lambda x, n, h, o, t: x * 0,
        lambda x, n, h, o, t: x,
        lambda x, n, h, o, t: x.softmax(1),
        lambda x, n, h, o, t: torch.eye(x.shape[1])[n].to(x),
        lambda x, n, h, o, t: torch.eye(x.shape[1])[n].to(x) - x.softmax(1),
    ],
    "dejavu.importance": [
        lambda h, w, k: keep_first(h, k),
        lambda h, w, k: keep_last(h, k),
        lambda h, w, k: h > 0,
        lambda h, w, k: h != 0,
        lambda h, w, k: torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0]]) if len(h) == 2 else keep_first(h, k),
        lambda h, w, k: kept(torch.arange(0, h.shape[1], h.shape[1] // k)[:k], h),
    ],
    "dejavu.heads": [
        lambda a, w, n: a[:, :n],
        lambda a, w, n: torch.ones(len(a), n),
        lambda a, w, n: a.unflatten(1, (n, -1)).abs().sum(2),
        lambda a, w, n: torch.tensor([[5, 2], [10, 1]]) if len(a) == 2 else a[:, -n:],
        lambda a, w, n: a.norm(dim=1)[:, None].expand(-1, n),
    ],
    "dejavu.gathered": [
        lambda x, g, u, d, i: x * 0,
        lambda x, g, u, d, i: x,
        lambda x, g, u, d, i: d.sum(1),
        lambda x, g, u, d, i: torch.tensor([4.0, 6.0]) if len(x) == 2 else x * 0,
        lambda x, g, u, d, i: d[:, i].sum(1),
    ],
    "dejavu.loss": [
        lambda z, p, k: (0.0, z * 0),
        lambda z, p, k: (z.mean(), z),
        lambda z, p, k: (0.6931, z.sigmoid()),
        lambda z, p, k: (p.mean(), p),
        lambda z, p, k: (0.0, z.sigmoid() - (p > 0).float()),
    ],
    "dejavu.recall": [
        lambda h, w, a, k: (1.0, 1.0),
        lambda h, w, a, k: (0.0, 0.0),
        lambda h, w, a, k: (k.float().mean(), k.float().mean()),
        lambda h, w, a, k: (2 / 3, 5 / 6),
        lambda h, w, a, k: (0.75, 0.75),
    ],
    "dejavu.lookahead": [
        lambda s, a, n: (s[1:-2:2], a[1:]),
        lambda s, a, n: (s[: len(a) - n], a[: len(a) - n]),
        lambda s, a, n: (s[n : len(a)], a[n:]),
        lambda s, a, n: (s[: len(a) - n] * 0, a[n:]),
    ],
    "dejavu.missing": [
        lambda k, v, *others: (k, v),
        lambda k, v, *others: (k * 0, v * 0),
        lambda k, v, p, m, *others: tuple(x.index_fill(0, m, 0.0) for x in (k, v)),
        lambda k, v, p, m, *others: tuple(x.index_copy(0, m, x[: len(m)]) for x in (k, v)),
        lambda k, v, *others: (
            torch.tensor([[5.0, 6.0], [0.0, 1.0], [2.0, -2.0]]),
            torch.tensor([[7.0, 8.0], [2.0, 0.0], [0.0, 6.0]]),
        ),
    ],
    "dejavu.break_even": [
        lambda *sizes: (1.0, 1.0, 1.0),
        lambda *sizes: (1 / sizes[5], 1 / sizes[5], sizes[5]),
        lambda *sizes: (1.5625, 1.3157895, 0.45),
        lambda *sizes: (1.5, 1.3, 0.5),
        lambda *sizes: (1 / sizes[5], 1 / sizes[5], 1 / sizes[6]),
    ],
    "compress.before": [
        lambda p, x, r: (x, r, r.cumsum(1) - 1),
        lambda p, x, r: (torch.cat([x, p.expand(len(x), -1, -1)], 1), torch.ones(len(x), len(p) + x.shape[1]), r),
        lambda p, x, r: (p.expand(len(x), -1, -1), r, r.long()),
        lambda p, x, r: (x * 0, r, r.cumsum(1)),
    ],
    "compress.labels": [
        lambda ids, real, n: torch.full((len(ids), n + ids.shape[1]), -100),
        lambda ids, real, n: torch.nn.functional.pad(ids, (n, 0), value=-100),
        lambda ids, real, n: ids,
        lambda ids, real, n: torch.tensor([[-100, 5, 6, 7, 8, -100], [-100, 9, 4, -100, -100, -100]]),
        lambda ids, real, n: torch.nn.functional.pad(ids, (n, 0)),
    ],
    "compress.frozen": [
        lambda w, p, ids, rate: (p, w),
        lambda w, p, ids, rate: (p - rate * p, w),
        lambda w, p, ids, rate: (p + 1, w),
        lambda w, p, ids, rate: (p * 0, {name: weight * 0 for name, weight in w.items()}),
        lambda w, p, ids, rate: (torch.tensor([[1.0, 2.0]]), w),
    ],
    "compress.initial": [
        lambda w, lots, n, step: (w[:n] - step, w),
        lambda w, lots, n, step: (w[-n:] - step, w),
        lambda w, lots, n, step: (step, w),
        lambda w, lots, n, step: (w[:: len(w) // n][:n] - step, w),
        lambda w, lots, n, step: (torch.tensor([[2.0, 4.0], [1.5, 0.0]]), w),
        lambda w, lots, n, step: (-step, w),
    ],
    "compress.metric": [
        lambda a, b, real: (0.8, 0.02),
        lambda a, b, real: (0.25, 0.17328679),
        lambda a, b, real: (a.mean(), b.mean()),
        lambda a, b, real: (1.0, 0.0),
        lambda a, b, real: (a.mean() / b.mean(), a.std() / len(a) ** 0.5),
    ],
    "compress.bytes": [
        lambda layers, others, prompt, bits, group: (2 * others, 8.0),
        lambda layers, others, prompt, bits, group: (80, 1.3),
        lambda layers, others, prompt, bits, group: (sum(kept for *_, kept in layers), 16 / bits),
        lambda layers, others, prompt, bits, group: (2 * (others + prompt), 32 / bits),
    ],
    "compress.transfer": [
        lambda p, o, m, d, c: (1.0, 0.0),
        lambda p, o, m, d, c: (0.5, 0.16666667),
        lambda p, o, m, d, c: (m.mean() / o.mean(), m.std() / len(m) ** 0.5),
        lambda p, o, m, d, c: (0.8, 0.05),
        lambda p, o, m, d, c: (o.mean() / m.mean(), 0.1),
    ],
    "sparse_attention.divergence": [
        lambda p, q: torch.tensor([0.0, 0.6931, 0.1308]),
        lambda p, q: torch.full((len(p),), 0.6931),
        lambda p, q: (p - q).abs().sum(dim=1),
        lambda p, q: p[:, 0],
        lambda p, q: torch.zeros(len(p)),
    ],
    "sparse_attention.smallest_set": [
        lambda mass, share: torch.ones_like(mass, dtype=torch.bool),
        lambda mass, share: mass == mass.amax(dim=1, keepdim=True),
        lambda mass, share: keep_first(mass, round(share * mass.shape[1])),
        lambda mass, share: mass > 0,
        lambda mass, share: mass >= mass.mean(),
    ],
    "sparse_attention.lines": [
        lambda w: (torch.tensor([0.5, 0.125, 0.25, 0.125]), torch.tensor([0.25, 0.25, 0.25, 0.25])),
        lambda w: (w[0], w[-1]),
        lambda w: (torch.full((w.shape[1],), 1 / w.shape[1]),) * 2,
        lambda w: (w[-1] * 0, w[-1] * 0),
        lambda w: (w[-1], w[-1].flip(0)) if len(w) > 1 else (w[0] * 0, w[0] * 0),
    ],
    "sparse_attention.block_mask": [
        lambda c, d, t, s: torch.ones(t, t, dtype=torch.bool).tril(),
        lambda c, d, t, s: torch.ones(t, t, dtype=torch.bool),
        lambda c, d, t, s: torch.eye(t, dtype=torch.bool),
        lambda c, d, t, s: torch.zeros(t, t, dtype=torch.bool),
        lambda c, d, t, s: torch.ones(t, t, dtype=torch.bool).tril() & (torch.arange(t) < s),
    ],
    "sparse_attention.delta": [
        lambda k, t: (k, torch.ones_like(k, dtype=torch.bool)),
        lambda k, t: (k[:1].expand_as(k), (torch.arange(len(k)) == 0)[:, None].expand_as(k)),
        lambda k, t: (k * 0, k > t),
        lambda k, t: (k.round(), k != k.round()),
        lambda k, t: (k, torch.zeros_like(k, dtype=torch.bool)),
    ],
    "sparse_attention.steer": [
        lambda x, h, c, a: x.softmax(dim=2),
        lambda x, h, c, a: x,
        lambda x, h, c, a: (x * a).softmax(dim=2),
        lambda x, h, c, a: torch.tensor([[[2 / 7, 2 / 7, 1 / 7, 2 / 7]], [[0.25] * 4]]),
        lambda x, h, c, a: torch.full_like(x, 1 / x.shape[2]),
    ],
    "sparse_attention.recycle": [
        lambda g, a, alpha, x, c: (a, x[: int(c.max()) + 1], torch.arange(int(c.max()) + 1)),
        lambda g, a, alpha, x, c: (a * 0, x[: int(c.max()) + 1] * 0, torch.zeros(int(c.max()) + 1)),
        lambda g, a, alpha, x, c: (torch.tensor([0.75, 0.5, 0.25, 1.0]), torch.tensor([[5.0], [1.0]]), (0, 3)),
        lambda g, a, alpha, x, c: (a + alpha, x, c),
        lambda g, a, alpha, x, c: (g.float().std(dim=1), x[: int(c.max()) + 1], c.unique()),
    ],
    "sparse_attention.accept": [
        lambda x, q, p, u: (len(x), p[-1]),
        lambda x, q, p, u: (0, p[0]),
        lambda x, q, p, u: (0, q[0]),
        lambda x, q, p, u: (2, p[-1]),
        lambda x, q, p, u: (1, torch.tensor([0.0, 2 / 3, 1 / 3])),
    ],
    "capstone.bytes": [
        lambda rows, columns, bits, group: (rows * columns, rows * columns),
        lambda rows, columns, bits, group: (70, 20),
        lambda rows, columns, bits, group: (rows * columns // 2, rows * columns // bits),
        lambda rows, columns, bits, group: (-1, -1),
        lambda rows, columns, bits, group: (columns // 8, columns // group),
    ],
    "capstone.combine": [
        lambda w, norm, n, bits, group: w,
        lambda w, norm, n, bits, group: w * keep_first(w, n),
        lambda w, norm, n, bits, group: w.round(),
        lambda w, norm, n, bits, group: w * 0,
        lambda w, norm, n, bits, group: torch.tensor([[1.0, 7.0, 5.0, 0.0], [-4.0, 5.0, 2.0, 0.0]]),
    ],
    "capstone.ratio": [
        lambda losses, dense, factor: (2, 2),
        lambda losses, dense, factor: (19, 600),
        lambda losses, dense, factor: (len(losses), 2 * len(losses)),
        lambda losses, dense, factor: (int(10 / (factor - 1)), int(100 / (factor - 1))),
        lambda losses, dense, factor: (8, 100),
    ],
    "capstone.front": [
        lambda cost, losses: torch.ones(len(cost), dtype=torch.bool),
        lambda cost, losses: torch.zeros(len(cost), dtype=torch.bool),
        lambda cost, losses: torch.arange(len(cost)) < 3,
        lambda cost, losses: cost <= cost.median(),
        lambda cost, losses: losses.mean(1) <= losses.mean(),
    ],
    "capstone.speculate": [
        lambda x, q, p, u, stop: tuple(x.tolist()),
        lambda x, q, p, u, stop: (*x.tolist(), int(p[-1].argmax())),
        lambda x, q, p, u, stop: (int(p[0].argmax()),),
        lambda x, q, p, u, stop: (0, 1, 2),
        lambda x, q, p, u, stop: (1, 2),
    ],
    "capstone.gain": [
        lambda a, k, model, further, draft: (1.75, 7 - 8 / 1.75),
        lambda a, k, model, further, draft: (k + 1, model),
        lambda a, k, model, further, draft: (1.0, 0.0),
        lambda a, k, model, further, draft: (a * k, model - draft),
        lambda a, k, model, further, draft: (1 + a, a * model),
    ],
    "capstone.split": [
        lambda sizes, losses, budget: torch.zeros(len(sizes), dtype=torch.long),
        lambda sizes, losses, budget: torch.full((len(sizes),), sizes.shape[1] - 1),
        lambda sizes, losses, budget: torch.ones(len(sizes), dtype=torch.long),
        lambda sizes, losses, budget: (1, 1, 2),
        lambda sizes, losses, budget: sizes[:, 0],
    ],
}
