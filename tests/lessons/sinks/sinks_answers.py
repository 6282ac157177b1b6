"""Answers to the exercises of lesson 08, as people write them.

Dimension key: L layers, H heads, Q queries, N tokens in the cache, D size of a head.
"""

import math

import numpy
import torch


def share_in_loops(w, start):
    out = numpy.zeros(w.shape[:3])
    for layer in range(w.shape[0]):
        for head in range(w.shape[1]):
            for token in range(w.shape[2]):
                queries = [w[layer, head, i, token].item() for i in range(start, w.shape[2]) if i >= token]
                out[layer, head, token] = sum(queries) / len(queries)
    return out


def seen(w, start):
    """How many queries from `start` on see each token."""
    return torch.tensor([w.shape[2] - max(start, token) for token in range(w.shape[2])])


SHARE_RIGHT = {
    "loops": share_in_loops,
    "numpy": lambda w, s: w.numpy()[:, :, s:].sum(axis=2) / seen(w, s).numpy(),
    "token by token": lambda w, s: torch.stack([w[:, :, max(s, j) :, j].mean(2) for j in range(w.shape[3])], dim=2),
    "counted where it is seen": lambda w, s: w[:, :, s:].sum(2) / torch.ones_like(w[:, :, s:]).tril(s).sum(2),
    "two parts": lambda w, s: torch.cat(
        [w[:, :, s:, :s].mean(2), w[:, :, s:, s:].sum(2) / torch.arange(w.shape[2] - s, 0, -1)], dim=2
    ),
}
SHARE_WRONG = {
    "one divisor": lambda w, s: w[:, :, s:].mean(2),
    "all queries": lambda w, s: w.sum(2) / seen(w, 0),
    "all queries, one divisor": lambda w, s: w.mean(2),
    "rows": lambda w, s: w[:, :, s:].mean(3),
    "sum": lambda w, s: w[:, :, s:].sum(2),
    "heads averaged": lambda w, s: (w[:, :, s:].sum(2) / seen(w, s)).mean(1),
    "layers averaged": lambda w, s: (w[:, :, s:].sum(2) / seen(w, s)).mean(0),
    "start + 1": lambda w, s: w[:, :, s + 1 :].sum(2) / seen(w, s + 1),
    "start - 1": lambda w, s: w[:, :, max(s - 1, 0) :].sum(2) / seen(w, max(s - 1, 0)),
    "first token": lambda w, s: w[:, :, s:, 0].mean(2),
    "newest token": lambda w, s: w[:, :, s:, -1].mean(2),
    "largest": lambda w, s: w[:, :, s:].amax(2),
    "median": lambda w, s: w[:, :, s:].median(2).values,
    "queries before start": lambda w, s: w[:, :, :s].mean(2),
    "divided by all": lambda w, s: w[:, :, s:].sum(2) / w.shape[2],
    "divided by the place": lambda w, s: w[:, :, s:].sum(2) / seen(w, 0),
    "divided from the front": lambda w, s: w[:, :, s:].sum(2) / torch.arange(1, w.shape[2] + 1),
    "does not see itself": lambda w, s: w[:, :, s:].sum(2) / (seen(w, s) - 1).clamp(min=1),
    "normalised": lambda w, s: torch.nn.functional.normalize(w[:, :, s:].sum(2) / seen(w, s), p=1, dim=2),
    "the sink alone": lambda w, s: (w[:, :, s:].sum(2) / seen(w, s)).argmax(2),
    "queries kept": lambda w, s: w[:, :, s:] / seen(w, s),
}


def evict_in_loops(w, keep):
    rows = []
    for row in w.tolist():
        left = [x for x, k in zip(row, keep.tolist(), strict=True) if k]
        rows.append([x / sum(left) for x in left])
    return rows


EVICT_RIGHT = {
    "loops": evict_in_loops,
    "numpy": lambda w, k: w.numpy()[:, k.numpy()] / w.numpy()[:, k.numpy()].sum(1, keepdims=True),
    "normalize": lambda w, k: torch.nn.functional.normalize(w[:, k], p=1, dim=1),
    "in place": lambda w, k: (w.mul_(k), w.div_(w.sum(1, keepdim=True)))[1][:, k.nonzero().flatten()],
}
EVICT_WRONG = {
    "not divided": lambda w, k: w[:, k],
    "softmax": lambda w, k: w[:, k].softmax(1),
    "even shares": lambda w, k: w[:, k] + (1 - w[:, k].sum(1, keepdim=True)) / k.sum(),
    "even shares of all": lambda w, k: w[:, k] + (1 - w[:, k].sum(1, keepdim=True)) / len(k),
    "one factor": lambda w, k: w[:, k] / w[:, k].sum(1).mean(),
    "one sum": lambda w, k: w[:, k] / w[:, k].sum(),
    "count": lambda w, k: w[:, k] / k.sum(),
    "what left": lambda w, k: w[:, k] / w[:, ~k].sum(1, keepdim=True),
    "zeros": lambda w, k: torch.where(k, w, 0) / torch.where(k, w, 0).sum(1, keepdim=True),
    "those that leave": lambda w, k: w[:, ~k] / w[:, ~k].sum(1, keepdim=True),
    "columns": lambda w, k: w[:, k] / w[:, k].sum(0, keepdim=True),
    "by the largest": lambda w, k: w[:, k] / w[:, k].amax(1, keepdim=True),
    "by the length": lambda w, k: torch.nn.functional.normalize(w[:, k], dim=1),
    "times the share": lambda w, k: w[:, k] * w[:, k].sum(1, keepdim=True),
    "rows chosen": lambda w, k: w[k[: len(w)]],
    "sum over everything": lambda w, k: w[:, k] / w.sum(1, keepdim=True),
}


def streamed(n, s, b):
    kept = []
    for token in range(n):
        if len(kept) == b:
            kept.pop(s)
        kept.append(token)
    return kept


SLOTS_RIGHT = {
    "a stream": streamed,
    "a set": lambda n, s, b: set(range(min(s, n))) | set(range(max(0, n - (b - s)), n)),
    "a frozen set": lambda n, s, b: frozenset(t for t in range(n) if t < s or t >= n - (b - s)),
    "numpy": lambda n, s, b: numpy.unique(numpy.r_[: min(s, n), max(0, n - b + s) : n]),
    "a tuple, newest first": lambda n, s, b: tuple(t for t in reversed(range(n)) if t < s or n - t <= b - s),
    "floats": lambda n, s, b: torch.tensor([t for t in range(n) if t < s or t >= n + s - b], dtype=torch.float32),
}
SLOTS_WRONG = {
    "window": lambda n, s, b: list(range(max(0, n - b), n)),
    "sinks beside": lambda n, s, b: sorted({*range(min(s, n)), *range(max(0, n - b), n)}),
    "twice": lambda n, s, b: [*range(min(s, n)), *range(max(0, n - (b - s)), n)],
    "sinks unbounded": lambda n, s, b: [*range(s), *range(max(s, n - (b - s)), n)],
    "negative numbers": lambda n, s, b: [*range(s), *range(n - (b - s), n)],
    "newest missing": lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - 1 - (b - s), n - 1)],
    "one missing": lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - (b - s) + 1, n)],
    "one more": lambda n, s, b: list(range(n)) if n <= b else [*range(s), *range(n - (b - s) - 1, n)],
    "first ones": lambda n, s, b: list(range(min(n, b))),
    "all": lambda n, s, b: list(range(n)),
    "counted from 1": lambda n, s, b: [t + 1 for t in streamed(n, s, b)],
    "sinks alone": lambda n, s, b: list(range(min(s, n))),
    "a mask": lambda n, s, b: [t in streamed(n, s, b) for t in range(n)],
    "how many": lambda n, s, b: len(streamed(n, s, b)),
    "those that left": lambda n, s, b: [t for t in range(n) if t not in streamed(n, s, b)],
    "begins anew": lambda n, s, b: [*range(min(s, n)), *range(s, min(n, b))],
}


def places_in_loops(p):
    out = p.clone()
    for row, left in zip(p, out, strict=True):
        for place, slot in enumerate(numpy.argsort(row.numpy())):
            left[slot] = place - row[slot]
    return out


POSITIONS_RIGHT = {
    "loops": places_in_loops,
    "numpy": lambda p: numpy.argsort(numpy.argsort(p.numpy(), 1), 1) - p.numpy(),
    "minus those that left": lambda p: -(p - (p[:, None] < p[..., None]).sum(2)),
    "scattered": lambda p: (
        torch.zeros_like(p).scatter(1, p.argsort(1), torch.arange(p.shape[1]).expand(p.shape)).double() - p
    ),
}
POSITIONS_WRONG = {
    "wrong way": lambda p: p - p.argsort(1).argsort(1),
    "place": lambda p: p.argsort(1).argsort(1),
    "slot": lambda p: torch.arange(p.shape[1]).expand(p.shape) - p,
    "one argsort": lambda p: p.argsort(1) - p,
    "from 1": lambda p: p.argsort(1).argsort(1) + 1 - p,
    "all alike": lambda p: (p.shape[1] - 1 - p.amax(1, keepdim=True)).expand(p.shape),
    "by the smallest": lambda p: -p.amin(1, keepdim=True).expand(p.shape),
    "over all heads": lambda p: p.flatten().argsort().argsort().reshape(p.shape) - p,
    "down the heads": lambda p: p.argsort(0).argsort(0) - p,
    "first head's": lambda p: p[:1].argsort(1).argsort(1) - p,
    "from behind": lambda p: p.argsort(1, descending=True).argsort(1) - p,
    "sorted": lambda p: torch.arange(p.shape[1]) - p.sort(1).values,
    "position": lambda p: p,
    "gap to the one before": lambda p: torch.diff(p, dim=1, prepend=p[:, :1]),
    "back to zero": lambda p: -p,
    "size of the window": lambda p: p % p.shape[1] - p,
}


def angles(by, f):
    return by[:, None] * f


def rotate_matrix(k, by, f):
    out, half = k.double(), len(f)
    for n in range(len(k)):
        for i in range(half):
            a = float(by[n]) * float(f[i])
            turn = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
            out[n, [i, i + half]] = turn @ out[n, [i, i + half]]
    return out


def by_half(k, cos, sin):
    half = k.shape[1] // 2
    return k * cos + torch.cat([-k[:, half:], k[:, :half]], 1) * sin


def paired(k, by, f):
    a = angles(by, f).repeat_interleave(2, 1)
    turned = torch.stack([-k[:, 1::2], k[:, ::2]], 2).flatten(1)
    return k * a.cos() + turned * a.sin()


def both(k, by, f, cos=torch.cos, sin=torch.sin):
    return by_half(k, cos(angles(by, f)).repeat(1, 2), sin(angles(by, f)).repeat(1, 2))


ROTATE_RIGHT = {
    "matrices": rotate_matrix,
    "rotate half": both,
    "complex": lambda k, b, f: (
        torch.view_as_real(torch.complex(*k.chunk(2, 1)) * torch.polar(torch.ones(()), angles(b, f)))
        .movedim(2, 1)
        .flatten(1)
    ),
    "numpy": lambda k, b, f: numpy.concatenate(
        [
            numpy.cos(angles(b, f)) * k[:, : len(f)].numpy() - numpy.sin(angles(b, f)) * k[:, len(f) :].numpy(),
            numpy.sin(angles(b, f)) * k[:, : len(f)].numpy() + numpy.cos(angles(b, f)) * k[:, len(f) :].numpy(),
        ],
        axis=1,
    ),
}
ROTATE_WRONG = {
    "back": lambda k, b, f: both(k, -b, f),
    "neighbours": paired,
    "one frequency": lambda k, b, f: both(k, b, f[:1].expand(len(f))),
    "frequencies reversed": lambda k, b, f: both(k, b, f.flip(0)),
    "repeated in place": lambda k, b, f: by_half(
        k, angles(b, f).repeat_interleave(2, 1).cos(), angles(b, f).repeat_interleave(2, 1).sin()
    ),
    "no minus": lambda k, b, f: (
        k * angles(b, f).repeat(1, 2).cos() + k.roll(len(f), 1) * angles(b, f).repeat(1, 2).sin()
    ),
    "not exchanged": lambda k, b, f: k * (angles(b, f).repeat(1, 2).cos() + angles(b, f).repeat(1, 2).sin()),
    "sine for cosine": lambda k, b, f: both(k, b, f, torch.sin, torch.cos),
    "first amount": lambda k, b, f: both(k, b[:1].expand(len(b)), f),
    "cosine alone": lambda k, b, f: k * angles(b, f).repeat(1, 2).cos(),
    "twice as far": lambda k, b, f: both(k, 2 * b, f),
    "half as far": lambda k, b, f: both(k, b / 2, f),
    "divided by the frequencies": lambda k, b, f: both(k, b, 1 / f.clamp(min=1e-9)),
    "amount added": lambda k, b, f: k + angles(b, f).repeat(1, 2),
    "degrees": lambda k, b, f: both(k, b, f * math.pi / 180),
    "halves swapped": lambda k, b, f: both(k, b, f).roll(len(f), 1),
    "two pi": lambda k, b, f: both(k, b, 2 * math.pi * f),
    "low used twice": lambda k, b, f: torch.cat(
        [
            (low := k[:, : len(f)] * angles(b, f).cos() - k[:, len(f) :] * angles(b, f).sin()),
            k[:, len(f) :] * angles(b, f).cos() + low * angles(b, f).sin(),
        ],
        1,
    ),
}


def cost(token=2, pair=4, pairs=lambda m: m * (m + 1) // 2, held=min, seen=lambda m: m, read=lambda m: m, dense=int):
    """`held` of tokens read and window are m; `seen`, `pairs` and `read` are counts of m, `dense` of tokens read."""

    def flops(p, n, d, t, w):
        each, m = pair * n * d, held(t, w)
        return token * p + each * dense(t), token * p + each * seen(m), token * p * read(m) + each * pairs(m)

    return flops


COST_RIGHT = {
    "query by query": lambda p, n, d, t, w: (
        2 * p + t * 4 * n * d,
        sum([2 * p, *[4 * n * d] * (w if t > w else t)]),
        sum(2 * p + 4 * n * d * seen for seen in range(1, min(w, t) + 1)),
    ),
    "a list of floats": lambda p, n, d, t, w: [
        2.0 * p + 4.0 * n * d * t,
        2.0 * p + 4.0 * n * d * (m := min(t, w)),
        m * 2.0 * p + 2.0 * n * d * m * (m + 1),
    ],
    "numpy": lambda p, n, d, t, w: numpy.array(
        [2 * p + 4 * n * d * x for x in (t, min(t, w))]
        + [2 * p * min(t, w) + 4 * n * d * numpy.arange(min(t, w) + 1).sum()]
    ),
}
COST_WRONG = {
    "all pairs": cost(pairs=lambda m: m * m),
    "half of all": cost(pairs=lambda m: m * m / 2),
    "not itself": cost(pairs=lambda m: m * (m - 1) // 2),
    "newest alone": cost(pairs=lambda m: m),
    "weights once": cost(read=lambda m: 1),
    "logits alone": cost(pair=2),
    "multiplications alone": cost(pair=1),
    "one FLOP": cost(token=1),
    "streaming without pairs": cost(seen=lambda m: 0),
    "streaming reads itself": cost(seen=lambda m: 1),
    "streaming as causal": cost(seen=lambda m: m * (m + 1) // 2),
    "streaming without itself": cost(seen=lambda m: m - 1),
    "with one more": cost(seen=lambda m: m + 1),
    "always a full window": cost(held=lambda t, w: w),
    "never a window": cost(held=lambda t, w: t),
    "dense without itself": cost(dense=lambda t: t - 1),
    "dense as causal": cost(dense=lambda t: t * (t + 1) // 2),
    "one layer": lambda p, n, d, t, w: cost()(p, 1, d, t, w),
    "the other order": lambda *sizes: cost()(*sizes)[::-1],
    "the last two exchanged": lambda *sizes: [cost()(*sizes)[i] for i in (0, 2, 1)],
    "ratio": lambda *sizes: cost()(*sizes)[2] / cost()(*sizes)[1],
    "two of three": lambda *sizes: cost()(*sizes)[1:],
}


def by_rows(x, s):
    out = numpy.zeros(x.shape)
    for h in range(x.shape[0]):
        for q in range(x.shape[1]):
            row = numpy.append(x[h, q].numpy(), s[h]).astype(float)
            e = numpy.exp(row - row.max())
            out[h, q] = e[:-1] / e.sum()
    return out


def less(shift, sink=None):
    """Logits and sink less something, exponentials, and the sum of both below."""

    def softmax(x, s):
        m = shift(x, s)
        e, own = (x - m).exp(), (s[:, None, None] - (m if sink is None else sink(x, s))).exp()
        return e / (own + e.sum(2, keepdim=True))

    return softmax


def joined(x, s):
    return torch.cat([x, s[:, None, None].expand(-1, x.shape[1], 1)], 2)


def ROW(x, s):
    return torch.maximum(x.amax(2, keepdim=True), s[:, None, None])


SOFTMAX_RIGHT = {
    "rows": by_rows,
    "shifted by the largest": less(ROW),
    "shifted by the largest logit": less(lambda x, s: x.amax(2, keepdim=True).clamp(min=-1e4)),
    "logsumexp": lambda x, s: (x - joined(x, s).logsumexp(2, keepdim=True)).exp(),
    "log softmax, float64": lambda x, s: joined(x, s).double().log_softmax(2).exp()[..., : x.shape[2]],
    "sigmoid": lambda x, s: (x.softmax(2) * torch.sigmoid(x.logsumexp(2) - s[:, None]).unsqueeze(2)).nan_to_num(0),
}
SOFTMAX_WRONG = {
    "softmax": lambda x, s: x.softmax(2),
    "column kept": lambda x, s: joined(x, s).softmax(2),
    "first dropped": lambda x, s: joined(x, s).softmax(2)[:, :, 1:],
    "one sink": lambda x, s: joined(x, s[:1].expand(len(s))).softmax(2)[..., :-1],
    "mean sink": lambda x, s: joined(x, s.mean().expand(len(s))).softmax(2)[..., :-1],
    "naive": less(lambda x, s: 0),
    "naive float64": lambda x, s: less(lambda x, s: 0)(x.double(), s.double()),
    "shifted by the sink": less(lambda x, s: s[:, None, None]),
    "one beside the shifted": lambda x, s: (
        (x - s[:, None, None]).exp() / (1 + (x - s[:, None, None]).exp().sum(2, keepdim=True))
    ),
    "largest of all": less(lambda x, s: x.max()),
    "largest of all and sinks": less(lambda x, s: torch.maximum(x.max(), s.max())),
    "largest of the head": less(lambda x, s: x.amax((1, 2), keepdim=True)),
    "largest of the head and its sink": less(lambda x, s: torch.maximum(x.amax((1, 2)), s)[:, None, None]),
    "sink not shifted": less(lambda x, s: x.amax(2, keepdim=True), sink=lambda x, s: 0),
    "always 1": lambda x, s: joined(x, 0 * s).softmax(2)[..., :-1],
    "1 shifted": lambda x, s: (x - ROW(x, s)).exp() / (1 + (x - ROW(x, s)).exp().sum(2, keepdim=True)),
    "logit added": lambda x, s: (x - ROW(x, s)).exp() / ((x - ROW(x, s)).exp().sum(2, keepdim=True) + s[:, None, None]),
    "1 and sink": lambda x, s: joined(x, torch.logaddexp(s, 0 * s)).softmax(2)[..., :-1],
    "sign": lambda x, s: joined(x, -s).softmax(2)[..., :-1],
    "normalised again": lambda x, s: torch.nn.functional.normalize(
        joined(x, s).softmax(2)[..., :-1].double(), p=1, dim=2
    ),
    "less the sink": lambda x, s: (x - s[:, None, None]).softmax(2),
    "over the queries": lambda x, s: torch.cat([x, s[:, None, None].expand(-1, 1, x.shape[2])], 1).softmax(1)[:, :-1],
    "sink a query": lambda x, s: torch.cat([x, s[None, : x.shape[1], None].expand(len(x), -1, 1)], 2).softmax(2)[
        ..., :-1
    ],
    "share subtracted": lambda x, s: x.softmax(2) - joined(x, s).softmax(2)[..., -1:] / x.shape[2],
}


def gate(share):
    return lambda o, lse, s: o * share(lse, s)[..., None]


GATE_RIGHT = {
    "one over": lambda o, lse, s: o / (1 + torch.exp(s[:, None] - lse)).unsqueeze(-1),
    "logaddexp": gate(lambda lse, s: (lse - torch.logaddexp(lse, s[:, None].expand_as(lse))).exp()),
    "numpy": lambda o, lse, s: o.numpy() / (1 + numpy.exp((s[:, None] - lse).double().numpy()))[..., None],
    "einsum": lambda o, lse, s: torch.einsum("hqd,hq->hqd", o, torch.sigmoid(lse - s.unsqueeze(1))),
    "head by head": lambda o, lse, s: torch.stack(
        [x * (row - own).sigmoid()[:, None] for x, row, own in zip(o, lse, s, strict=True)]
    ),
}
GATE_WRONG = {
    "the sink's": gate(lambda lse, s: (s[:, None] - lse).sigmoid()),
    "ratio": gate(lambda lse, s: (lse - s[:, None]).exp()),
    "ratio the other way": gate(lambda lse, s: (s[:, None] - lse).exp()),
    "beside queries": gate(lambda lse, s: (lse - s).sigmoid()),
    "one sink": gate(lambda lse, s: (lse - s[0]).sigmoid()),
    "mean sink": gate(lambda lse, s: (lse - s.mean()).sigmoid()),
    "zero": gate(lambda lse, s: lse.sigmoid()),
    "sink alone": gate(lambda lse, s: (-s[:, None]).sigmoid().expand_as(lse)),
    "sum": gate(lambda lse, s: (lse + s[:, None]).sigmoid()),
    "naive": gate(lambda lse, s: lse.exp() / (lse.exp() + s.exp()[:, None])),
    "logarithms": gate(lambda lse, s: lse / (lse + s[:, None])),
    "divided": lambda o, lse, s: o / (lse - s[:, None]).sigmoid()[..., None],
    "subtracted": lambda o, lse, s: o - (s[:, None] - lse).sigmoid()[..., None],
    "exp of lse by sink": gate(lambda lse, s: lse.exp() / (lse.exp() + s[:, None])),
    "tanh": gate(lambda lse, s: (lse - s[:, None]).tanh()),
    "softmax over queries": gate(lambda lse, s: (lse - s[:, None]).softmax(1)),
    "squared": gate(lambda lse, s: (lse - s[:, None]).sigmoid() ** 2),
}

RIGHT = {
    "sinks.share": SHARE_RIGHT,
    "sinks.evict": EVICT_RIGHT,
    "sinks.slots": SLOTS_RIGHT,
    "sinks.positions": POSITIONS_RIGHT,
    "sinks.rotate": ROTATE_RIGHT,
    "sinks.cost": COST_RIGHT,
    "sinks.softmax": SOFTMAX_RIGHT,
    "sinks.gate": GATE_RIGHT,
}
WRONG = {
    "sinks.share": SHARE_WRONG,
    "sinks.evict": EVICT_WRONG,
    "sinks.slots": SLOTS_WRONG,
    "sinks.positions": POSITIONS_WRONG,
    "sinks.rotate": ROTATE_WRONG,
    "sinks.cost": COST_WRONG,
    "sinks.softmax": SOFTMAX_WRONG,
    "sinks.gate": GATE_WRONG,
}
