"""Answers to the first four exercises of lesson 11, as people write them.

Dimension key: H heads, N blocks or entries, R rows, T tokens, S tokens of a block.
"""

import math

import numpy
import scipy.spatial
import scipy.stats
import torch
from torch.nn.functional import kl_div

# --- divergence: p, q (H, N) ---


def kl(p, q):
    return torch.where(p > 0, p * torch.log(p / q), torch.zeros_like(p)).sum(1)


def js(p, q, mean=lambda p, q: (p + q) / 2, distance=kl, weights=(0.5, 0.5)):
    m = mean(p, q)
    return weights[0] * distance(p, m) + weights[1] * distance(q, m)


def entropy(p):
    return torch.special.entr(p).sum(1)


def js_of_masked(p, q):
    """Row by row, only where there is something."""
    found = []
    for a, b in zip(p, q, strict=True):
        m = 0.5 * (a + b)
        found.append(0.5 * sum((x[x > 0] * (x[x > 0] / m[x > 0]).log()).sum() for x in (a, b)))
    return torch.stack(found)


def js_in_numpy(p, q):
    p, q = p.numpy().astype(float), q.numpy().astype(float)
    return 0.5 * (scipy.stats.entropy(p, (p + q) / 2, axis=1) + scipy.stats.entropy(q, (p + q) / 2, axis=1))


def js_by_torch(p, q):
    m = ((p + q) / 2).clamp(min=1e-30).log()
    return (kl_div(m, p, reduction="none") + kl_div(m, q, reduction="none")).sum(-1) / 2


def unguarded(p, m):
    return (p * (p / m).log()).sum(1)


def by_xlogy_of_the_quotient(p, q):
    return sum(torch.xlogy(x, x / ((p + q) / 2)).sum(1) / 2 for x in (p, q))


def by_kl_div_of_log_0(p, q):
    m = (p + q) / 2
    return sum(kl_div(m.log(), x, reduction="none").sum(1) / 2 for x in (p, q))


def with_a_little(more):
    """So much added to what the logarithm is taken of."""
    return lambda p, q: js(p, q, distance=lambda x, m: (x * ((x + more) / (m + more)).log()).sum(1))


def of_a_distance(p, q):
    return scipy.spatial.distance.jensenshannon(p.numpy(), q.numpy(), axis=1) ** 2


# --- smallest_set: mass (R, N), share ---


def picked(stop, descending=True, of=lambda m: m):
    """Row by row, the largest first, until stop(sum with it, sum before it, total, share)."""

    def answer(mass, share):
        keep = torch.zeros(mass.shape, dtype=torch.bool)
        for r, row in enumerate(of(mass).double()):
            held = 0.0
            for i in row.argsort(descending=descending).tolist():
                before, held = held, held + float(row[i])
                if stop(held, before, float(row.sum()), share):
                    break
                keep[r, i] = True
        return keep

    return answer


def by_cut(mass, share):
    """The value at which the share is reached, and all from there on."""
    values = mass.double().sort(1, descending=True).values
    at = (values.cumsum(1) / values.sum(1, keepdim=True) >= share).long().argmax(1, keepdim=True)
    cut, keep = values.gather(1, at), torch.zeros(mass.shape, dtype=torch.bool)
    for r in range(len(mass)):
        for i in mass[r].argsort(descending=True, stable=True)[: int(at[r]) + 1].tolist():
            keep[r, i] = bool(mass[r, i].double() >= cut[r])
    return keep


def by_search(mass, share):
    order = numpy.argsort(-mass.numpy(), axis=1, kind="stable")
    keep = numpy.zeros(mass.shape, dtype=bool)
    for r, places in enumerate(order):
        sums = numpy.cumsum(mass.numpy()[r, places].astype(float))
        keep[r, places[: numpy.searchsorted(sums, share * sums[-1]) + 1]] = True
    return keep


def by_bincount(mass, share):
    ordered, order = torch.sort(mass.double(), dim=-1, descending=True)
    p = ordered / ordered.sum(-1, keepdim=True)
    drop = p.cumsum(-1) - p >= share  # as top-p sampling is written
    return ~torch.zeros_like(drop).scatter(-1, order, drop)


def top_p(shift, share_of=lambda s: s):
    """As in top-p sampling, with the usual slips."""

    def answer(mass, share):
        ordered, order = mass.double().sort(dim=-1, descending=True)
        p = ordered / ordered.sum(-1, keepdim=True)
        drop = shift(p.cumsum(-1), p, share_of(share))
        return ~torch.zeros_like(drop).scatter(-1, order, drop)

    return answer


def by_growing(mass, share):
    """One more of each row until topk is enough."""
    keep = torch.zeros(mass.shape, dtype=torch.bool)
    for r, row in enumerate(mass):
        k = next(k for k in range(1, len(row) + 1) if row.topk(k).values.sum() >= share * row.sum())
        keep[r, row.topk(k).indices] = True
    return keep


def by_rank(mass, share):
    values, order = mass.sort(1, descending=True)
    reached = values.cumsum(1) / values.sum(1, keepdim=True) >= share
    return order.argsort(1) <= reached.float().argmax(1, keepdim=True)


def as_large_as_the_last(mass, share):
    values = mass.sort(1, descending=True).values
    n = (values.cumsum(1) < share * values.sum(1, keepdim=True)).sum(1, keepdim=True)
    return mass >= values.gather(1, n)


# --- lines: weights (R, T) ---


def looped(position, scale_v=lambda r, n: r, scale_s=lambda r, n: r, keep=lambda d, t: 0 <= d < t):
    def answer(weights):
        r, t = weights.shape
        v, s = torch.zeros(t), torch.zeros(t)
        count = torch.zeros(t)
        for row in range(r):
            for key in range(t):
                v[key] += weights[row, key]
                d = position(row, key, r, t)
                if keep(d, t):
                    s[d] += weights[row, key]
                    count[d] += 1
        return v / scale_v(r, count), s / scale_s(r, count)

    return answer


def behind(row, key, r, t):
    return t - r + row - key


def lines_by_roll(weights):
    r = len(weights)
    moved = torch.stack([row.flip(0).roll(-(r - 1 - i)) for i, row in enumerate(weights)])
    return torch.einsum("rt->t", weights) / r, moved.mean(0)


def lines_by_index(weights):
    r, t = weights.shape
    query, key = torch.arange(t - r, t)[:, None], torch.arange(t)[None]
    distance = (query - key).clamp(min=0)
    return weights.mean(0), torch.bincount(distance.flatten(), weights.double().flatten(), minlength=t) / r


def lines_by_matrix(weights):
    r, t = weights.shape
    distance = torch.arange(t - r, t)[:, None] - torch.arange(t)
    return weights.mean(0), torch.stack([weights[distance == d].sum() / r for d in range(t)])


def lines_by_numpy_trace(weights):
    x, (r, t) = weights.numpy(), weights.shape
    return x.mean(0), numpy.array([numpy.trace(x, offset=t - r - d) / r for d in range(t)])


def lines_at(offset):
    """The diagonal of the distance d at offset(R, T, d)."""

    def answer(weights):
        r, t = weights.shape
        there = [(d, offset(r, t, d)) for d in range(t)]
        sums = [weights.diagonal(at).sum() if -r < at < t else weights.new_zeros(()) for _, at in there]
        return weights.mean(0), torch.stack(sums) / r

    return answer


# --- block_mask: columns, diagonals (N,), n_tokens, block_size ---


def masked(of_blocks, causal=True, of_tokens=lambda t, s: torch.arange(t) // s, spread=None):
    """From (i, j, columns, diagonals) of two blocks to whether one reads the other."""

    def answer(columns, diagonals, n_tokens, size):
        block = of_tokens(n_tokens, size).tolist()
        rows = [[of_blocks(i, j, columns, diagonals) for j in block] for i in block]
        mask = torch.tensor(rows).bool()
        return mask.tril() if causal else mask

    return answer


def reads(i, j, c, d):
    return bool(j == 0 or i == j or c[j] or (i >= j and d[i - j]))


def mask_by_slices(columns, diagonals, n_tokens, size):
    mask = torch.zeros(n_tokens, n_tokens, dtype=torch.bool)
    n = len(columns)
    for i in range(n):
        for j in range(i + 1):
            if j in (0, i) or columns[j] or diagonals[i - j]:
                mask[i * size : (i + 1) * size, j * size : (j + 1) * size] = True
    return mask & torch.tril(torch.ones_like(mask))


def mask_in_numpy(columns, diagonals, n_tokens, size):
    t = numpy.arange(n_tokens)
    i, j = t[:, None] // size, t[None] // size
    c, d = columns.numpy(), diagonals.numpy()
    return (c[j] | d[numpy.abs(i - j)] | (j == 0) | (i == j)) & (t[:, None] >= t[None])


def by_setting_the_first(columns, diagonals, n_tokens, size):
    c, d, block = columns.clone(), diagonals.clone(), torch.arange(n_tokens) // size
    c[0] = d[0] = True
    return (c[block].expand(n_tokens, -1) | d[block[:, None] - block]).tril()


def by_token(first, own):
    """Whether the first column and the main diagonal are of tokens, not of blocks."""

    def answer(columns, diagonals, n_tokens, size):
        t, block = torch.arange(n_tokens), torch.arange(n_tokens) // size
        always = (t if first else block) == 0
        mine = (t[:, None] == t) if own else (block[:, None] == block)
        return (columns[block] | diagonals[(block[:, None] - block).clamp(0)] | always | mine).tril()

    return answer


def as_bias(columns, diagonals, n_tokens, size):
    keep = masked(reads)(columns, diagonals, n_tokens, size)
    return torch.zeros(n_tokens, n_tokens).masked_fill(~keep, -torch.inf)


RIGHT = {
    "sparse_attention.divergence": {
        "where": js,
        "masked row by row": js_of_masked,
        "scipy's entropy": js_in_numpy,
        "torch's kl_div": js_by_torch,
        "weights given": lambda p, q: js(p, q, mean=lambda p, q: p / 2 + q / 2),
        "in float64": lambda p, q: js(p.double(), q.double()),
        "nansum": lambda p, q: sum(torch.nansum(x * (x / ((p + q) / 2)).log(), 1) for x in (p, q)) / 2,
        "scipy's distance, squared": of_a_distance,
        "1e-8 added in the logarithms": with_a_little(1e-8),
        "entropies": lambda p, q: entropy((p + q) / 2) - entropy(torch.cat([p, q], 1)) / 2,
    },
    "sparse_attention.smallest_set": {
        "a loop": picked(lambda held, before, total, share: before >= share * total),
        "by the value at the cut": by_cut,
        "searchsorted": by_search,
        "as top-p sampling": by_bincount,
        "as top-p, shifted": top_p(lambda sums, p, s: sums - p >= s),
        "as a list": lambda m, s: by_bincount(m, s).tolist(),
        "of normalised rows": lambda m, s: by_search(m.double() / m.double().sum(1, keepdim=True), s),
        "zeros and ones in float": lambda m, s: by_bincount(m, s).float(),
        "topk, one more each time": by_growing,
        "ranks": by_rank,
    },
    "sparse_attention.lines": {
        "loops": looped(behind),
        "rows rolled": lines_by_roll,
        "bincount": lines_by_index,
        "masks of distances": lines_by_matrix,
        "lists": lambda w: [x.tolist() for x in lines_by_matrix(w)],
        "float64": lambda w: lines_by_matrix(w.double()),
        "a dictionary's values": lambda w: tuple({"v": w.mean(0), "s": lines_by_index(w)[1]}.values()),
        "numpy's trace": lines_by_numpy_trace,
        "numpy arrays": lambda w: tuple(x.numpy() for x in lines_by_matrix(w)),
    },
    "sparse_attention.block_mask": {
        "loops over tokens": masked(reads),
        "slices": mask_by_slices,
        "numpy": mask_in_numpy,
        "zeros and ones": lambda *g: masked(reads)(*g).float(),
        "lists": lambda *g: masked(reads)(*g).tolist(),
        "causal in the blocks too": masked(lambda i, j, c, d: j <= i and reads(i, j, c, d)),
        "first of both lines set": by_setting_the_first,
        "rounded up": masked(reads, of_tokens=lambda t, s: ((torch.arange(t) + 1) / s).ceil().long() - 1),
        "logical_and": lambda *g: torch.logical_and(masked(reads, causal=False)(*g), torch.ones(g[2], g[2]).tril() > 0),
    },
}  # fmt: skip

WRONG = {
    "sparse_attention.divergence": {
        "KL of p and q": kl,
        "KL of q and p": lambda p, q: kl(q, p),
        "symmetrised KL": lambda p, q: (kl(p, q) + kl(q, p)) / 2,
        "no guard": lambda p, q: js(p, q, distance=unguarded),
        "xlogy of the quotient": by_xlogy_of_the_quotient,
        "kl_div of log 0": by_kl_div_of_log_0,
        "m beside p": lambda p, q: (kl((p + q) / 2, p) + kl((p + q) / 2, q)) / 2,
        "1e-5 added in the logarithms": (with_a_little(1e-5), ""),
        "one less it": (lambda p, q: 1 - js(p, q), ""),
        "not halved": lambda p, q: js(p, q, weights=(1, 1)),
        "root": lambda p, q: js(p, q).sqrt(),
        "bits": lambda p, q: js(p, q) / math.log(2),
        "m not halved": lambda p, q: js(p, q, mean=lambda p, q: p + q),
        "first sum alone": lambda p, q: js(p, q, weights=(0.5, 0)),
        "first sum alone, not halved": lambda p, q: js(p, q, weights=(1, 0)),
        "over heads": lambda p, q: js(p.T, q.T),
        "mean": lambda p, q: js(p, q).mean(),
        "total variation": lambda p, q: (p - q).abs().sum(1) / 2,
        "epsilon": lambda p, q: js(p + 1e-3, q + 1e-3),
        "one less the cosine": lambda p, q: 1 - (p * q).sum(1) / p.norm(dim=1) / q.norm(dim=1),
        "the largest of both": (lambda p, q: torch.maximum(kl(p, (p + q) / 2), kl(q, (p + q) / 2)), ""),
        "of softmaxes": (lambda p, q: js(p.softmax(1), q.softmax(1)), ""),
        "zero": lambda p, q: torch.zeros(len(p)),
    },
    "sparse_attention.smallest_set": {
        "without the one that reaches": picked(lambda held, before, total, share: held >= share * total),
        "one more": picked(lambda held, before, total, share: before > share * total and before / total > share + 0.1),
        "sum of one taken for granted": picked(lambda held, before, total, share: before >= share),
        "smallest first": picked(lambda held, before, total, share: before >= share * total, descending=False),
        "top-p without shift": top_p(lambda sums, p, s: sums > s),
        "top-p, strictly": top_p(lambda sums, p, s: sums >= s),
        "the share that may go": top_p(lambda sums, p, s: sums - p >= s, share_of=lambda s: 1 - s),
        "so many entries": lambda m, s: m >= m.topk(max(1, round(s * m.shape[1]))).values[:, -1:],
        "over all rows": lambda m, s: by_bincount(m.flatten()[None], s).reshape(m.shape),
        "sorted mask": lambda m, s: by_bincount(m.sort(1, descending=True).values, s),
        "above the mean": lambda m, s: m > m.mean(1, keepdim=True),
        "above 1 - share": lambda m, s: m / m.sum(1, keepdim=True) >= 1 - s,
        "in order": lambda m, s: m.cumsum(1) - m < s * m.sum(1, keepdim=True),
        "complement": lambda m, s: ~by_bincount(m, s),
        "as large as the last": (as_large_as_the_last, "threshold with ties"),
        "two at least": (lambda m, s: by_bincount(m, s) | (m.argsort(1, descending=True).argsort(1) < 2), ""),
        "of squares": (lambda m, s: by_bincount(m**2, s), ""),
        "of a softmax": (lambda m, s: by_bincount(m.softmax(1), s), ""),
        "how many": lambda m, s: by_bincount(m, s).sum(1),
    },
    "sparse_attention.lines": {
        "row for token": looped(lambda row, key, r, t: row - key),
        "absolute": looped(lambda row, key, r, t: abs(row - key)),
        "key less query": looped(lambda row, key, r, t: (key - (t - r + row)) % t),
        "diagonals upwards": (lines_at(lambda r, t, d: t - r + d), "key minus query"),
        "both lines up to each": (lambda w: tuple(x.cumsum(0) for x in lines_by_index(w)), ""),
        "one off": looped(lambda row, key, r, t: t - r + row - key + 1),
        "one off the other way": looped(lambda row, key, r, t: t - r + row - key - 1),
        "antidiagonals": looped(lambda row, key, r, t: (t - r + row + key) % t),
        "by how many there are": looped(behind, scale_s=lambda r, n: n.clamp(min=1)),
        "sums": looped(behind, scale_v=lambda r, n: 1, scale_s=lambda r, n: 1),
        "by T": looped(behind, scale_s=lambda r, n: len(n)),
        "swapped": lambda w: looped(behind)(w)[::-1],
        "row means": lambda w: (w.mean(1), lines_by_index(w)[1]),
        "maxima": lambda w: (w.amax(0), lines_by_index(w)[1]),
        "last query": lambda w: (w[-1], w[-1].flip(0)),
        "only vertical": lambda w: w.mean(0),
        "not those far away": (looped(behind, keep=lambda d, t: 0 <= d < t // 2), ""),
        "medians": (lambda w: (w.median(0).values, lines_by_index(w)[1]), ""),
    },
    "sparse_attention.block_mask": {
        "not causal in blocks": masked(reads, causal=False),
        "first column missing": masked(lambda i, j, c, d: bool(i == j or c[j] or (i >= j and d[i - j]))),
        "diagonal missing": masked(lambda i, j, c, d: bool(j == 0 or c[j] or (i >= j and d[i - j]))),
        "chosen alone": masked(lambda i, j, c, d: bool(c[j] or (i >= j and d[i - j]))),
        "rows": masked(lambda i, j, c, d: bool(j == 0 or i == j or c[i] or (i >= j and d[i - j]))),
        "and": masked(lambda i, j, c, d: bool(j == 0 or i == j or (c[j] and i >= j and d[i - j]))),
        "wrong sign": masked(lambda i, j, c, d: bool(j == 0 or i == j or c[j] or d[j - i])),
        "columns alone": masked(lambda i, j, c, d: bool(j == 0 or i == j or c[j])),
        "diagonals alone": masked(lambda i, j, c, d: bool(j == 0 or i == j or (i >= j and d[i - j]))),
        "counted from the end": masked(reads, of_tokens=lambda t, s: (torch.arange(t) + (-t) % s) // s),
        "whole blocks": lambda c, d, t, s: masked(reads)(c, d, t // s * s, s),
        "filled up": lambda c, d, t, s: masked(reads)(c, d, len(c) * s, s),
        "blocks": lambda c, d, t, s: masked(reads)(c, d, len(c), 1),
        "strictly causal": lambda c, d, t, s: masked(reads, causal=False)(c, d, t, s).tril(-1),
        "complement": lambda *g: ~masked(reads)(*g),
        "a bias": as_bias,
        "transposed": lambda *g: masked(reads)(*g).T,
        "first token alone": (by_token(True, False), "tokens for blocks"),
        "own token alone": (by_token(False, True), "tokens for blocks"),
        "exclusive or": (masked(lambda i, j, c, d: bool(j == 0 or i == j or (i >= j and c[j] != d[i - j]))), ""),
        "as many tokens in each block": (masked(reads, of_tokens=lambda t, s: torch.arange(t) * -(-t // s) // t), ""),
        "one block wider": (masked(lambda i, j, c, d: bool(reads(i, j, c, d) or i - j == 1)), ""),
        "last column too": (masked(lambda i, j, c, d: bool(reads(i, j, c, d) or j == len(c) - 2)), ""),
    },
}  # fmt: skip
