"""Answers to the last four exercises of lesson 11, as people write them.

Dimension key: T tokens, D channels or width, H heads, Q queries, N patches, C cells, k drafted tokens, V words.
"""

import math
from collections import Counter
from functools import reduce

import numpy
import torch

# --- delta: keys (T, D), theta (D,) ---


def coded(moved=lambda x, last, t: abs(x - last) >= t, first=True, hold=lambda x, last: last, follow=False):
    """Channel by channel, in Python."""

    def answer(keys, theta):
        held, sent = torch.zeros_like(keys), torch.zeros_like(keys, dtype=torch.bool)
        for c in range(keys.shape[1]):
            last = out = 0.0
            for j in range(len(keys)):
                x, t = keys[j, c], theta[c]
                if (first and not j) or moved(x, last, t):
                    out, sent[j, c], last = x, True, x
                else:
                    out = hold(x, out)
                    last = x if follow else last
                held[j, c] = out
        return held, sent

    return answer


def by_rows(keys, theta):
    rows, masks = [keys[0]], [torch.ones_like(keys[0]) > 0]
    for key in keys[1:]:
        m = torch.abs(key - rows[-1]) >= theta
        masks.append(m)
        rows.append(m * key + ~m * rows[-1])
    return torch.vstack(rows), torch.vstack(masks)


def by_indices(keys, theta):
    """The number of the token that was sent last, of each channel, and then one gather."""
    at, sent = torch.zeros(keys.shape, dtype=torch.long), torch.ones(keys.shape, dtype=torch.bool)
    for j in range(1, len(keys)):
        last = keys.gather(0, at[j - 1 : j])[0]
        sent[j] = ~((keys[j] - last).abs() < theta)
        at[j] = torch.where(sent[j], j, at[j - 1])
    return keys.gather(0, at), sent


def coded_in_numpy(keys, theta):
    k, t = keys.numpy(), theta.numpy()
    held, sent = k.copy(), numpy.ones(k.shape, dtype=bool)
    for j in range(1, len(k)):
        sent[j] = numpy.abs(k[j] - held[j - 1]) >= t
        held[j, ~sent[j]] = held[j - 1, ~sent[j]]
    return held, sent


def by_reduce(keys, theta):
    def step(done, key):
        return [*done, torch.where((key - done[-1]).abs() >= theta, key, done[-1])]

    held = torch.stack(reduce(step, keys[1:], [keys[0]]))
    before = torch.cat([torch.full_like(held[:1], math.inf), held[:-1]])
    return held, (keys - before).abs() >= theta


def neighbours(keys, theta):
    d = torch.diff(keys, dim=0)
    sent = torch.cat([torch.ones(1, keys.shape[1]) > 0, d.abs() >= theta])
    return torch.cat([keys[:1], keys[:1] + torch.cumsum(d * (d.abs() >= theta), 0)]), sent


def in_place_of_the_keys(keys, theta):
    sent = torch.ones_like(keys, dtype=torch.bool)
    for j in range(1, len(keys)):
        sent[j] = (keys[j] - keys[j - 1]).abs() >= theta
        keys[j] = torch.where(sent[j], keys[j], keys[j - 1])
    return keys, sent


def remembering(keep):
    """One vector, changed in place; what of it is kept for each token."""

    def answer(keys, theta):
        now, rows, masks = keys[0].clone(), [], []
        for j, key in enumerate(keys):
            moved = (key - now).abs() >= theta if j else torch.ones_like(key, dtype=torch.bool)
            now[moved] = key[moved]
            rows.append(keep(now))
            masks.append(moved)
        return torch.stack(rows), torch.stack(masks)

    return answer


def first_not_marked(keys, theta):
    held, sent = by_rows(keys, theta)
    return held, sent & (torch.arange(len(keys)) > 0)[:, None]


def one_late(keys, theta):
    held, sent = by_rows(keys, theta)
    return torch.cat([keys[:1], held[:-1]]), sent


def by_thetas(keys, theta):
    """Up or down by θ where a channel has moved."""
    held, sent = keys.clone(), torch.ones_like(keys) > 0
    for j in range(1, len(keys)):
        d = keys[j] - held[j - 1]
        sent[j] = d.abs() >= theta
        held[j] = held[j - 1] + d.sign() * theta * sent[j]
    return held, sent


# --- steer: logits (H, Q, T), highlighted (P,), chosen (H,), alpha ---


def others(highlighted, n, first=False, behind=False):
    low = torch.full((n,), behind)
    low[: len(highlighted)] = ~highlighted
    return low if first else low & (torch.arange(n) > 0)


def pushed(low=others, add=math.log, who=lambda c: c, end=lambda x, a, low, c: x.softmax(-1), of=lambda x: x):
    def answer(logits, highlighted, chosen, alpha):
        columns = low(highlighted, logits.shape[-1])
        x = of(logits) + add(alpha) * columns * who(chosen)[:, None, None]
        return end(x, alpha, columns, chosen)

    return answer


def scaled(normalise=lambda w: w / w.sum(-1, keepdim=True), low=others, every=False):
    def answer(logits, highlighted, chosen, alpha):
        w = torch.softmax(logits, -1).clone()
        heads = range(len(logits)) if every else chosen.nonzero().flatten().tolist()
        for h in heads:
            w[h] = normalise(torch.where(low(highlighted, logits.shape[-1]), alpha * w[h], w[h]))
        return w

    return answer


def steered_in_numpy(logits, highlighted, chosen, alpha):
    x = logits.numpy().astype(float).copy()
    for h in numpy.flatnonzero(chosen.numpy()):
        for t in range(1, len(highlighted)):
            if not highlighted[t]:
                x[h, :, t] += numpy.log(alpha)
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def by_logsumexp(logits, highlighted, chosen, alpha):
    x = logits + torch.where(others(highlighted, logits.shape[-1]) & chosen.view(-1, 1, 1), math.log(alpha), 0.0)
    return (x - x.logsumexp(-1, keepdim=True)).exp()


def times_logits(logits, highlighted, chosen, alpha):
    low = others(highlighted, logits.shape[-1]) & chosen[:, None, None]
    return torch.where(low, alpha * logits, logits).softmax(-1)


def last_query(logits, highlighted, chosen, alpha):
    w = logits.softmax(-1)
    w[:, -1:] = scaled()(logits[:, -1:], highlighted, chosen, alpha)
    return w


def of_exponentials(logits, highlighted, chosen, alpha):
    e = (logits - logits.amax(-1, keepdim=True)).exp()
    e = torch.where(others(highlighted, logits.shape[-1]) & chosen[:, None, None], alpha * e, e)
    return e / e.sum(-1, keepdim=True)


def into_a_copy(logits, highlighted, chosen, alpha):
    """An index of an index is a copy, which is changed and lost."""
    x = logits.clone()
    x[chosen][:, :, others(highlighted, logits.shape[-1])] += math.log(alpha)
    return x.softmax(-1)


def handed_over(logits, highlighted, chosen, alpha):
    """What the others lose goes to the highlighted ones, equally."""
    w = logits.softmax(-1)
    low, high = others(highlighted, w.shape[-1]), others(~highlighted, w.shape[-1], first=True)
    given = ((1 - alpha) * w * low).sum(-1, keepdim=True) / high.sum()
    return torch.where(chosen[:, None, None], torch.where(low, alpha * w, w) + given * high, w)


# --- recycle: grey (N, P), attention (N,), alpha, tokens (N, D), cell (N,) ---


def bits(row, base=2.0):
    n = len(row)
    return -sum(c / n * math.log(c / n, base) for c in Counter(row.tolist()).values())


def bits_with_a_little(row):
    p = torch.bincount(row, minlength=256) / len(row)
    return -(p * (p + 1e-8).log2()).sum()


def recycled(
    entropy=bits,
    worth=lambda a, h, alpha: a + alpha * h.softmax(0),
    mean=lambda w, x: (w[:, None] * x).sum(0) / w.sum(),
    place=lambda w, members: members[int(w.argmax())],
    of=lambda cell, c: (cell == c).nonzero().flatten().tolist(),
):
    def answer(grey, attention, alpha, tokens, cell):
        h = torch.tensor([float(entropy(row)) for row in grey])
        w = worth(attention, h, alpha)
        members = [of(cell, c) for c in range(int(cell.max()) + 1)]
        fused = torch.stack([mean(w[m], tokens[m]) for m in members])
        return w, fused, torch.tensor([int(place(w[m], m)) for m in members])

    return answer


def by_scatter(grey, attention, alpha, tokens, cell):
    counts = torch.stack([torch.bincount(row, minlength=256) for row in grey]).double()
    share = counts / counts.sum(1, keepdim=True)
    h = -torch.where(share > 0, share * share.clamp(min=1e-12).log2(), 0).sum(1)
    w = attention.double() + alpha * torch.softmax(h, 0)
    there, n = cell >= 0, int(cell.max()) + 1
    total = torch.zeros(n, dtype=torch.double).index_add(0, cell[there], w[there])
    sums = torch.zeros(n, tokens.shape[1], dtype=torch.double).index_add(
        0, cell[there], (w[:, None] * tokens)[there]
    )  # fmt: skip
    place = [max((float(x), i) for i, (x, c) in enumerate(zip(w, cell, strict=True)) if c == k)[1] for k in range(n)]
    return w, sums / total[:, None], place


def by_matrix(grey, attention, alpha, tokens, cell):
    p = (grey[:, :, None] == torch.arange(256)).float().mean(1)
    w = attention + alpha * (torch.special.entr(p).sum(1) / math.log(2)).softmax(-1)
    m = torch.nn.functional.one_hot(cell + 1, int(cell.max()) + 2)[:, 1:].T * w
    return w, (m / m.sum(1, keepdim=True)) @ tokens, m.argmax(1)


def by_unique(row):
    share = numpy.unique(row, return_counts=True)[1] / len(row)
    return -(share * numpy.log2(share)).sum()


def of_values(row):
    return torch.special.entr(row / 255).sum() / math.log(2)


def placed_by(worth):
    """Importance and tokens as they should be, places by something else."""
    return lambda *g: (*recycled()(*g)[:2], recycled(worth=worth)(*g)[2])


def weaker_ones(w, x):
    """The mean without the strongest."""
    return (w[:, None] * x)[w < w.max()].sum(0) if len(w) > 1 else x[0]


def unguarded(row):
    p = torch.bincount(row, minlength=256) / len(row)
    return -(p * p.log2()).sum()


# --- accept: drafted (k,), q (k, V), p (k+1, V), luck (k,) ---


def left(p, q):
    return torch.relu(p - q) / torch.relu(p - q).sum()


def shared(p, q):
    return torch.minimum(p, q) / torch.minimum(p, q).sum()


def tried(stays=lambda p, q, u: u < min(1.0, p / q), fallen=left, all_stay=lambda p, q: p[-1], count=0, stop=True):
    def answer(drafted, q, p, luck):
        n, first = 0, None
        for i, x in enumerate(drafted.tolist()):
            if stays(float(p[i, x]), float(q[i, x]), float(luck[i])):
                n += 1
            else:
                first = i if first is None else first
                if stop:
                    break
        return (n, all_stay(p, q)) if first is None else (n + count, fallen(p[first], q[first]))

    return answer


def accepted_in_numpy(drafted, q, p, luck):
    p, q, x = p.numpy().astype(float), q.numpy().astype(float), drafted.numpy()
    k = len(x)
    falls = numpy.flatnonzero(luck.numpy() * q[range(k), x] >= p[range(k), x])
    if not falls.size:
        return k, p[k]
    rest = numpy.maximum(p[falls[0]] - q[falls[0]], 0)
    return int(falls[0]), rest / rest.sum()


def by_padding(drafted, q, p, luck):
    """A draft of nothing stands behind the last, so that the residual there is p itself."""
    ratio = p[:-1].gather(1, drafted[:, None])[:, 0] / q.gather(1, drafted[:, None])[:, 0]
    n = (luck < ratio).int().cumprod(0).sum()
    padded = torch.cat([q, torch.zeros_like(q[:1])])
    return n, torch.nn.functional.normalize((p[n] - padded[n]).clamp(min=0), p=1, dim=0)


def by_argmax(drafted, q, p, luck):
    falls = ~(luck < p[range(len(drafted)), drafted] / q[range(len(drafted)), drafted])
    n = int(falls.float().argmax()) if falls.any() else len(drafted)
    return n, left(p[n], q[n]) if falls.any() else p[n]


def if_likeliest(drafted, q, p, luck):
    n = 0
    while n < len(drafted) and p[n].argmax() == drafted[n]:
        n += 1
    return n, p[n] if n == len(drafted) else left(p[n], q[n])


def kept(drafted, q, p, luck):
    """The fallen token all the same."""
    n, after = tried()(drafted, q, p, luck)
    return (n, after) if n == len(drafted) else (n, torch.nn.functional.one_hot(drafted[n], p.shape[1]).float())


RIGHT = {
    "sparse_attention.delta": {
        "channel by channel": coded(),
        "row by row": by_rows,
        "by the number of the last": by_indices,
        "numpy": coded_in_numpy,
        "reduce": by_reduce,
        "lists": lambda k, t: [x.tolist() for x in by_rows(k, t)],
        "in float64": lambda k, t: by_rows(k.double(), t.double()),
        "not smaller": coded(lambda x, last, t: not abs(x - last) < t),
        "in place of the keys": in_place_of_the_keys,
        "one vector, copied": remembering(torch.clone),
    },
    "sparse_attention.steer": {
        "log α added": pushed(),
        "weights scaled": scaled(),
        "numpy": steered_in_numpy,
        "logsumexp": by_logsumexp,
        "in float64": lambda x, *g: pushed()(x.double(), *g),
        "lists": lambda *g: pushed()(*g).tolist(),
        "log_softmax first": lambda x, *g: pushed()(x.log_softmax(-1), *g),
        "exponentials": of_exponentials,
        "normalised by torch": scaled(lambda w: torch.nn.functional.normalize(w, p=1, dim=-1)),
    },
    "sparse_attention.recycle": {
        "a counter": recycled(),
        "bincount and index_add": by_scatter,
        "matrices": by_matrix,
        "lists": lambda *g: [x.tolist() for x in recycled()(*g)],
        "numpy's unique": recycled(by_unique),
        "average": recycled(mean=lambda w, x: torch.tensor(numpy.average(x.numpy(), axis=0, weights=w.numpy()))),
        "natural logarithm divided": recycled(lambda r: bits(r, math.e) / math.log(2)),
        "1e-8 in the logarithm": recycled(bits_with_a_little),
        "weights first": recycled(mean=lambda w, x: (w / w.sum()) @ x),
    },
    "sparse_attention.accept": {
        "a loop": tried(),
        "numpy": accepted_in_numpy,
        "nothing drafted behind": by_padding,
        "no minimum": tried(lambda p, q, u: u < p / q),
        "no division": tried(lambda p, q, u: u * q < p),
        "the first that falls": by_argmax,
        "as a list": lambda *g: [tried()(*g)[0], tried()(*g)[1].tolist()],
        "in float64": lambda x, q, p, u: tried()(x, q.double(), p.double(), u.double()),
        "p less the minimum": tried(fallen=lambda p, q: (p - torch.minimum(p, q)) / (p - torch.minimum(p, q)).sum()),
    },
}  # fmt: skip

WRONG = {
    "sparse_attention.delta": {
        "neighbour": coded(follow=True),
        "neighbours' steps added up": neighbours,
        "more than θ": coded(lambda x, last, t: abs(x - last) > t),
        "upwards only": coded(lambda x, last, t: x - last >= t),
        "downwards only": coded(lambda x, last, t: last - x >= t),
        "first not sent": coded(first=False),
        "zero if not sent": coded(hold=lambda x, last: 0.0),
        "small ones sent": coded(lambda x, last, t: abs(x - last) < t),
        "share of the value": coded(lambda x, last, t: abs(x - last) >= t * abs(last)),
        "exact keys": lambda k, t: (k, by_rows(k, t)[1]),
        "mask inverted": lambda k, t: (by_rows(k, t)[0], ~by_rows(k, t)[1]),
        "deltas": lambda k, t: (torch.cat([k[:1], by_rows(k, t)[0].diff(dim=0)]), by_rows(k, t)[1]),
        "keys alone": lambda k, t: by_rows(k, t)[0],
        "by size": coded(lambda x, last, t: abs(x) >= t),
        "rounded to θ": lambda k, t: ((k / t).round() * t, by_rows(k, t)[1]),
        "one vector for all": (remembering(lambda now: now), "one tensor for all tokens"),
        "first not marked": (first_not_marked, "first token not sent"),
        "before each token": (one_late, "one token late"),
        "by θ": (by_thetas, "rounded"),
        "one θ for all channels": (lambda k, t: by_rows(k, t.mean()), ""),
        "half of the threshold": (coded(lambda x, last, t: abs(x - last) >= t / 2), ""),
        "the mean of both": (coded(hold=lambda x, last: (x + last) / 2), ""),
    },
    "sparse_attention.steer": {
        "wrong sign": pushed(add=lambda a: -math.log(a)),
        "α added": pushed(add=lambda a: a),
        "highlighted lowered": pushed(lambda h, n: torch.nn.functional.pad(h, (0, n - len(h)))),
        "generated too": pushed(lambda h, n: others(h, n, behind=True)),
        "first too": pushed(lambda h, n: others(h, n, first=True)),
        "all others": pushed(lambda h, n: others(h, n, first=True, behind=True)),
        "every head": scaled(every=True),
        "the other heads": pushed(who=lambda c: ~c),
        "not normalised": scaled(lambda w: w),
        "softmax of weights": scaled(lambda w: w.softmax(-1)),
        "softmax twice": pushed(end=lambda x, *rest: x.softmax(-1).softmax(-1)),
        "logits scaled": times_logits,
        "last query": last_query,
        "logits": pushed(end=lambda x, *rest: x),
        "over queries": pushed(end=lambda x, *rest: x.softmax(-2)),
        "base 10": pushed(add=math.log10),
        "nothing": lambda x, h, c, a: x.softmax(-1),
        "an index of an index": (into_a_copy, "nothing steered"),
        "handed over": (handed_over, ""),
        "log α twice": (pushed(add=lambda a: 2 * math.log(a)), ""),
        "half of it": (pushed(add=lambda a: math.log(a) / 2), ""),
        "first 2 spared": (pushed(lambda h, n: others(h, n) & (torch.arange(n) != 2)), ""),
    },
    "sparse_attention.recycle": {
        "nats": recycled(lambda r: bits(r, math.e)),
        "no guard": recycled(unguarded),
        "wrong sign": recycled(lambda r: -bits(r)),
        "how many levels": recycled(lambda r: len(r.unique())),
        "standard deviation": recycled(lambda r: r.float().std()),
        "16 levels": recycled(lambda r: bits(r // 16)),
        "no softmax": recycled(worth=lambda a, h, alpha: a + alpha * h),
        "shares of entropy": recycled(worth=lambda a, h, alpha: a + alpha * h / h.sum()),
        "α inside": recycled(worth=lambda a, h, alpha: a + (alpha * h).softmax(0)),
        "softmax of both": recycled(worth=lambda a, h, alpha: a.softmax(0) + alpha * h.softmax(0)),
        "product": recycled(worth=lambda a, h, alpha: a * h.softmax(0)),
        "plain mean": recycled(mean=lambda w, x: x.mean(0)),
        "sum": recycled(mean=lambda w, x: w @ x),
        "softmax weights": recycled(mean=lambda w, x: w.softmax(0) @ x),
        "the strongest": recycled(mean=lambda w, x: x[w.argmax()]),
        "first place": recycled(place=lambda w, m: m[0]),
        "weakest place": recycled(place=lambda w, m: m[int(w.argmin())]),
        "place within": recycled(place=lambda w, m: int(w.argmax())),
        "those that stay too": recycled(of=lambda cell, c: (cell.clamp(min=0) == c).nonzero().flatten().tolist()),
        "grey as a probability": (recycled(of_values), "entropy of the pixels' values"),
        "α outside": (recycled(worth=lambda a, h, alpha: alpha * (a + h.softmax(0))), "α left out or at another place"),
        "place by the attention": (placed_by(lambda a, h, alpha: a), "place by one of the two parts"),
        "place by the entropy": (placed_by(lambda a, h, alpha: h), "place by one of the two parts"),
        "by the largest entropy": (recycled(worth=lambda a, h, alpha: a + alpha * h / 8), ""),
        "without the strongest": (recycled(mean=weaker_ones), ""),
        "α halved": (recycled(worth=lambda a, h, alpha: a + alpha / 2 * h.softmax(0)), ""),
    },
    "sparse_attention.accept": {
        "upside down": tried(lambda p, q, u: u < min(1.0, q / p)),
        "p alone": tried(lambda p, q, u: u < p),
        "only if likelier": tried(lambda p, q, u: p >= q),
        "luck above": tried(lambda p, q, u: u > p / q),
        "not normalised": tried(fallen=lambda p, q: torch.relu(p - q)),
        "p again": tried(fallen=lambda p, q: p),
        "q again": tried(fallen=lambda p, q: q),
        "q less p": tried(fallen=lambda p, q: left(q, p)),
        "absolute": tried(fallen=lambda p, q: (p - q).abs() / (p - q).abs().sum()),
        "softmax of the difference": tried(fallen=lambda p, q: (p - q).softmax(0)),
        "kept": kept,
        "counted": tried(count=1),
        "going on": tried(stop=False),
        "residual behind": tried(all_stay=lambda p, q: left(p[len(q) - 1], q[-1])),
        "the last but one": tried(all_stay=lambda p, q: p[-2]),
        "the likeliest": lambda *g: (tried()(*g)[0], int(tried()(*g)[1].argmax())),
        "only how many": lambda *g: tried()(*g)[0],
        "swapped": lambda *g: tried()(*g)[::-1],
        "one more counted": (lambda *g: (tried()(*g)[0] + 1, tried()(*g)[1]), "the next token counted too"),
        "likeliest word": (if_likeliest, "only the likeliest token"),
        "what both share": (tried(fallen=shared), "what both share"),
        "drawn": (lambda *g: (tried()(*g)[0], torch.multinomial(tried()(*g)[1], 1)), None),  # by lot
        "any word": (tried(fallen=lambda p, q: torch.full_like(p, 1 / len(p))), ""),
        "always half": tried(lambda p, q, u: u < 0.5),
        "the mean of both": (tried(fallen=lambda p, q: (p + q) / 2), ""),
    },
}  # fmt: skip
