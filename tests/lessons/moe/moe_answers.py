"""Answers to the exercises of lesson 06 on gates and dispatch, as people write them.

Dimension key: T tokens, E experts, k experts for each token, D width, F neurons, G groups, N tokens in each.
"""

import heapq
import math

import numpy
import torch
from torch.nn.functional import cross_entropy, gumbel_softmax, one_hot, sigmoid, silu, softmax

# --- gate: logits (T, E), k ---


def gate_with_mask(logits, k, fill=0.0, dim=-1, largest=True, after=False):
    best = torch.topk(logits, k, dim=dim, largest=largest).indices
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter_(dim, best, True)
    if after:
        return softmax(logits.masked_fill(~chosen, fill), dim=dim)
    return softmax(logits, dim=dim).masked_fill(~chosen, fill)


def gate_in_numpy(logits, k):
    z = logits.double().numpy()
    p = numpy.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rest = numpy.argpartition(-z, k - 1, axis=1)[:, k:]
    numpy.put_along_axis(p, rest, 0.0, axis=1)
    return p


def gate_with_a_heap(logits, k):
    weights = torch.zeros_like(logits)
    for t, row in enumerate(logits.tolist()):
        top = max(row)
        total = math.fsum(math.exp(h - top) for h in row)
        for e in heapq.nlargest(k, range(len(row)), key=row.__getitem__):
            weights[t, e] = math.exp(row[e] - top) / total
    return weights


def gate_renormalised_back(logits, k):
    """The softmax of the best, times their share of all."""
    best, places = logits.topk(k)
    share = (best.logsumexp(-1) - logits.logsumexp(-1)).exp()
    return torch.zeros_like(logits).scatter_(1, places, best.softmax(-1) * share[:, None])


def gate_by_thresholds(logits, k):
    probs = logits.softmax(-1)
    return probs * (probs >= probs.topk(k).values[:, -1:])


def gate_in_place(logits, k):
    p = logits.sub_(logits.amax(1, keepdim=True)).exp_()
    p /= p.sum(1, keepdim=True)
    keep = p.argsort(dim=1, descending=True)[:, :k]
    out = torch.zeros_like(p)
    for row in range(len(p)):
        out[row, keep[row]] = p[row, keep[row]]
    return out


# --- top1: logits (T, E), slope (T,) ---


def top1_tracked(weigh):
    def answer(logits, slope):
        logits = logits.clone().requires_grad_()
        weight = weigh(logits)
        (weight * slope).sum().backward()
        return weight, torch.zeros_like(logits) if logits.grad is None else logits.grad

    return answer


def top1_by_formula(gradient=None, weigh=None):
    def answer(logits, slope):
        p = logits.softmax(-1)
        i = logits.argmax(-1)
        w = p[torch.arange(len(p)), i]
        return (weigh or (lambda w, h, i: w))(w, logits, i), gradient(p, one_hot(i, p.shape[1]), w, slope)

    return answer


def top1_in_loops(logits, slope):
    weights, rows = [], []
    for row, s in zip(logits.double().tolist(), slope.tolist(), strict=True):
        z = [math.exp(h - max(row)) for h in row]
        p = [x / sum(z) for x in z]
        best = p.index(max(p))
        weights.append(p[best])
        rows.append([s * p[best] * ((j == best) - p[j]) for j in range(len(p))])
    return weights, rows


def top1_by_vjp(logits, slope):
    weight, back = torch.func.vjp(lambda h: torch.softmax(h, -1).max(-1).values, logits)
    return weight, back(slope)[0]


def top1_by_jacobian(logits, slope):
    jacobian = torch.func.vmap(torch.func.jacrev(lambda h: h.softmax(0)))(logits)
    best = logits.argmax(1)
    rows = torch.stack([jacobian[t, e] for t, e in enumerate(best)])
    return softmax(logits, 1).max(1)[0], slope.unsqueeze(1) * rows


def top1_by_cross_entropy(logits, slope):
    """p is exp(-cross-entropy with the expert that is chosen)."""
    logits = logits.detach().requires_grad_(True)
    p = torch.exp(-cross_entropy(logits, logits.argmax(1), reduction="none"))
    return p, torch.autograd.grad(p, logits, grad_outputs=slope)[0]


# --- dispatch: tokens (T, D), chosen (T, k), weights (T, k), into (E, 2F, D), out (E, D, F) ---


def swiglu(rows, into, out):
    g, u = (rows @ into.transpose(-1, -2)).chunk(2, -1)
    return (silu(g) * u) @ out.transpose(-1, -2)


def dispatch_by_masks(tokens, chosen, weights, into, out, add=True, expert=swiglu, weigh="after", residual=False):
    """One expert after the other, its tokens found by a mask."""
    order, ends, y = [], [], torch.zeros_like(tokens)
    for e in range(len(out)):
        rows, choice = torch.where(chosen == e)
        order.append(rows)
        ends.append(sum(map(len, order)))
        w = weights[rows, choice].unsqueeze(-1)
        made = expert(tokens[rows] * (w if weigh == "before" else 1), into[e], out[e])
        made = made * w if weigh == "after" else made
        y[rows] = y[rows] + made if add else made
    return torch.cat(order), torch.tensor(ends), y + tokens if residual else y


def dispatch_in_numpy(tokens, chosen, weights, into, out):
    k = chosen.shape[1]
    flat = chosen.numpy().ravel()
    order = numpy.argsort(flat, kind="stable")
    ends = numpy.searchsorted(flat[order], numpy.arange(len(out)), side="right")
    x, y = tokens.double().numpy(), numpy.zeros(tuple(tokens.shape))
    for e, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        pairs = order[begin:end]
        hidden = x[pairs // k] @ into[e].double().numpy().T
        g, u = numpy.split(hidden, 2, axis=1)
        made = (g / (1 + numpy.exp(-g)) * u) @ out[e].double().numpy().T
        numpy.add.at(y, pairs // k, made * weights.numpy().ravel()[pairs, None])
    return order // k, ends, y


def dispatch_with_lists(tokens, chosen, weights, into, out):
    queues = [[] for _ in out]
    for t, row in enumerate(chosen.tolist()):
        for j, e in enumerate(row):
            queues[e].append((t, float(weights[t, j])))
    token = [t for queue in queues for t, _ in queue]
    ends = [sum(len(queue) for queue in queues[: e + 1]) for e in range(len(queues))]
    y = torch.zeros_like(tokens)
    for e, queue in enumerate(queues):
        for t, w in queue:
            y[t] += w * swiglu(tokens[t], into[e], out[e])
    return token, ends, y


def dispatch_sorted(tokens, chosen, weights, into, out, token_of=None, home="inverse", end=None, weight_of=None):
    k, flat = chosen.shape[1], chosen.reshape(-1)
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=len(out))
    token = (token_of or (lambda order, k, n: order // k))(order, k, len(tokens))
    w = (weight_of or (lambda w, order: w.reshape(-1)[order]))(weights, order)
    made = [swiglu(x, into[e], out[e]) for e, x in enumerate(tokens[token].split(counts.tolist()))]
    made = torch.cat(made) * w[:, None]
    y = torch.zeros_like(tokens)
    if home == "inverse":
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        y = made[back].reshape(len(tokens), k, -1).sum(1)
    elif home == "order":
        y = made[order].reshape(len(tokens), k, -1).sum(1)
    elif home == "as they are":
        y = made.reshape(len(tokens), k, -1).sum(1)
    elif home == "index":
        y[token] = made
    elif home == "plus":
        y[token] += made
    elif home == "scatter":
        y.scatter_add_(0, token[:, None].expand_as(made), made)
    return token, (end or (lambda c: c.cumsum(0)))(counts), y


def dispatch_dense(tokens, chosen, weights, into, out, masked=False):
    token, ends, _ = dispatch_sorted(tokens, chosen, weights, into, out)
    every = torch.stack([swiglu(tokens, into[e], out[e]) for e in range(len(out))], dim=1)  # (T, E, D)
    full = torch.zeros(len(tokens), len(out), dtype=tokens.dtype).scatter_(1, chosen, weights)
    weighted = full[..., None] * every
    if masked:
        weighted = torch.where(full[..., None] > 0, weighted, 0)
    return token, ends, weighted.sum(1)


def dispatch_by_einsum(tokens, chosen, weights, into, out):
    token, ends, _ = dispatch_sorted(tokens, chosen, weights, into, out)
    g, u = torch.einsum("td,tkfd->tkf", tokens, into[chosen]).chunk(2, dim=-1)
    return token, ends, torch.einsum("tk,tkf,tkdf->td", weights, silu(g) * u, out[chosen])


# --- capacity: stream (G, N, D), outputs (G, N, D), chosen (G, N), weights (G, N), E, factor ---


def capacity_by_one_hot(stream, outputs, chosen, weights, n, factor, dim=1, zero=False, room=None, behind=None):
    room = (room or (lambda c, n, f: int(f * c.shape[1] / n)))(chosen, n, factor)
    hot = one_hot(chosen, n)
    place = (hot.cumsum(dim) * hot).sum(-1) - int(zero)
    keep = place <= room
    behind = behind or (lambda s, o, w, keep: s + o * (w * keep)[..., None])
    return keep, behind(stream, outputs, weights, keep)


def capacity_in_numpy(stream, outputs, chosen, weights, n, factor):
    c, keep = chosen.numpy(), numpy.zeros(tuple(chosen.shape), dtype=bool)
    for group in range(len(c)):
        for e in range(n):
            keep[group, numpy.flatnonzero(c[group] == e)[: math.floor(factor * c.shape[1] / n)]] = True
    part = numpy.where(keep, weights.numpy(), 0.0)[..., None] * outputs.numpy()
    return keep, stream.numpy() + part


def capacity_with_dictionaries(stream, outputs, chosen, weights, n, factor):
    room, keep = int(chosen.shape[1] / n * factor + 1e-9), []
    for row in chosen.tolist():
        seen = {}
        keep.append([seen.setdefault(e, []).append(e) or len(seen[e]) <= room for e in row])
    mask = torch.tensor(keep)
    stream[mask] += weights[mask].unsqueeze(1) * outputs[mask]
    return mask, stream


def capacity_by_topk(stream, outputs, chosen, weights, n, factor):
    """The earliest of every expert: topk of how early a token is."""
    tokens = chosen.shape[1]
    early = (one_hot(chosen, n) * torch.arange(tokens, 0, -1)[None, :, None]).transpose(1, 2)  # (G, E, N)
    room = min(int(factor * tokens / n), tokens)
    values, places = early.topk(room, dim=2)
    keep = torch.zeros_like(early).scatter_(2, places, (values > 0).long()).sum(1)
    return keep, torch.addcmul(stream, (weights * keep).unsqueeze(2), outputs)


def capacity_by_sort(stream, outputs, chosen, weights, n, factor, score=None):
    keep = torch.zeros_like(chosen, dtype=torch.bool)
    for g, row in enumerate(chosen):
        for e in range(n):
            mine = (row == e).nonzero()[:, 0]
            if score is not None:
                mine = mine[score(weights[g, mine]).argsort(descending=True)]
            keep[g, mine[: int(factor * len(row) / n)]] = True
    return keep, stream + (keep * weights)[..., None] * outputs


def capacity_of_the_batch(stream, outputs, chosen, weights, n, factor):
    flat = [x.flatten(0, 1)[None] for x in (stream, outputs, chosen, weights)]
    keep, new = capacity_by_one_hot(*flat, n, factor)
    return keep.view(chosen.shape), new.view(stream.shape)


RIGHT = {
    "moe.gate": {
        "mask": gate_with_mask,
        "numpy": gate_in_numpy,
        "heap": gate_with_a_heap,
        "share of the best": gate_renormalised_back,
        "in place": gate_in_place,
        "topk of probabilities": lambda h, k: torch.zeros_like(h).scatter(
            1, *reversed(tuple(softmax(h, 1).topk(k, dim=1)))
        ),
        "one-hot and sum": lambda h, k: one_hot(h.topk(k).indices, h.shape[1]).sum(1) * h.softmax(1),
        "log softmax": lambda h, k: h.log_softmax(1).exp() * one_hot(h.sort(1, True)[1][:, :k], h.shape[1]).sum(1),
    },
    "moe.top1": {
        "autograd": top1_tracked(lambda h: h.softmax(1).max(1)[0]),
        "autograd through the index": top1_tracked(lambda h: h.softmax(1)[torch.arange(len(h)), h.detach().argmax(1)]),
        "autograd through a mask": top1_tracked(lambda h: (h.softmax(1) * one_hot(h.argmax(1), h.shape[1])).sum(1)),
        "autograd through logsumexp": top1_tracked(lambda h: (h.amax(1) - h.logsumexp(1)).exp()),
        "formula": top1_by_formula(lambda p, one, w, s: (s * w).unsqueeze(1) * (one - p)),
        "two cases": top1_by_formula(
            lambda p, one, w, s: torch.where(one > 0, p * (1 - p), -w[:, None] * p) * s[:, None]
        ),
        "loops": top1_in_loops,
        "vjp": top1_by_vjp,
        "jacobian": top1_by_jacobian,
        "cross-entropy": top1_by_cross_entropy,
    },
    "moe.dispatch": {
        "masks": dispatch_by_masks,
        "numpy": dispatch_in_numpy,
        "lists": dispatch_with_lists,
        "sorted, inverse": dispatch_sorted,
        "sorted, scattered": lambda *a: dispatch_sorted(*a, home="scatter"),
        "dense, but masked": lambda *a: dispatch_dense(*a, masked=True),
        "einsum over copies": dispatch_by_einsum,
        "in place": lambda x, c, w, i, o: (lambda token, ends, y: (token, ends, x.copy_(y)))(
            *dispatch_sorted(x, c, w, i, o)
        ),
    },
    "moe.capacity": {
        "one-hot": capacity_by_one_hot,
        "numpy": capacity_in_numpy,
        "dictionaries, in place": capacity_with_dictionaries,
        "topk": capacity_by_topk,
        "slices": capacity_by_sort,
        "zero based": lambda *a: capacity_by_one_hot(*a, zero=True, room=lambda c, n, f: int(f * c.shape[1] / n) - 1),
        "room not rounded": lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: f * c.shape[1] / n),
    },
}

WRONG = {
    "moe.gate": {
        "softmax of the best": lambda h, k: torch.zeros_like(h).scatter(1, h.topk(k)[1], h.topk(k)[0].softmax(1)),
        "minus infinity": (lambda h, k: gate_with_mask(h, k, -math.inf, after=True), "softmax after the choice"),
        "divided by the sum": (
            lambda h, k: (w := gate_with_mask(h, k)) / w.sum(1, keepdim=True),
            "softmax after the choice",
        ),
        "lowest": (lambda h, k: gate_with_mask(h, k, largest=False), "lowest k"),
        "lowest, renormalised": lambda h, k: (w := gate_with_mask(h, k, largest=False)) / w.sum(1, keepdim=True),
        "all": (lambda h, k: softmax(h, 1), "all experts"),
        "over the tokens": (
            lambda h, k: h.softmax(0) * one_hot(h.topk(k)[1], h.shape[1]).sum(1),
            "probabilities over the tokens",
        ),
        "zero logits": (lambda h, k: gate_with_mask(h, k, 0.0, after=True), "zeros for logits"),
        "a threshold": (gate_by_thresholds, "more than k where logits are equal"),
        "values alone": (lambda h, k: h.softmax(1).topk(k).values, "best first, without places"),
        "indices alone": (lambda h, k: h.topk(k).indices, "which, not how much"),
        "ones": (lambda h, k: one_hot(h.topk(k).indices, h.shape[1]).sum(1), "equal weights"),
        "equal shares": (lambda h, k: one_hot(h.topk(k).indices, h.shape[1]).sum(1) / k, "equal weights"),
        "minus infinity left": lambda h, k: gate_with_mask(h, k, -math.inf),
        "logits": (lambda h, k: h * one_hot(h.topk(k).indices, h.shape[1]).sum(1), "logits as weights"),
        "sigmoid": (lambda h, k: sigmoid(h) * one_hot(h.topk(k).indices, h.shape[1]).sum(1), "sigmoid"),
        "sigmoid, renormalised": lambda h, k: (
            (w := sigmoid(h) * one_hot(h.topk(k).indices, h.shape[1]).sum(1)) / w.sum(1, keepdim=True)
        ),
        "exp over sum": (
            lambda h, k: h.exp() / h.exp().sum(1, keepdim=True) * one_hot(h.topk(k).indices, h.shape[1]).sum(1),
            "overflow",
        ),
        "sorted places": (
            lambda h, k: torch.zeros_like(h).scatter(1, h.topk(k)[1].sort()[0], h.softmax(1).topk(k)[0]),
            "weights of another expert",
        ),
        "noise": lambda h, k: gate_with_mask(h + torch.randn(h.shape, dtype=h.dtype), k),
        "gumbel": lambda h, k: gumbel_softmax(h) * one_hot(h.topk(k).indices, h.shape[1]).sum(1),
        "first": lambda h, k: h.softmax(1) * (torch.arange(h.shape[1]) < k),
        "top one": lambda h, k: gate_with_mask(h, 1),
        "columns": lambda h, k: gate_with_mask(h, min(k, len(h)), dim=0),
        "scaled to k": lambda h, k: (w := gate_with_mask(h, k)) / w.sum(1, keepdim=True) * k,
        "squares": lambda h, k: gate_with_mask(h, k).square(),
        "root of the width": lambda h, k: gate_with_mask(h / h.shape[1] ** 0.5, k),
    },
    "moe.top1": {
        "renormalised": (top1_tracked(lambda h: (p := h.softmax(1).amax(1)) / p), "renormalised"),
        "softmax of one": (top1_tracked(lambda h: h.topk(1)[0].softmax(1)[:, 0]), "renormalised"),
        "one": (lambda h, s: (torch.ones(len(h)), torch.zeros(h.shape)), "renormalised"),
        "no gradient": (lambda h, s: (h.softmax(1).amax(1), torch.zeros_like(h)), "detached"),
        "gradient of the right loss with a detached weight": (
            top1_tracked(lambda h: h.softmax(1).amax(1).detach() + 0 * h.sum(1)),
            "detached",
        ),
        "straight through": (
            top1_tracked(lambda h: (p := h.softmax(1).amax(1)) + (1 - p).detach()),
            "one in the forward pass",
        ),
        "one-hot of the chosen": (
            top1_by_formula(lambda p, one, w, s: s[:, None] * one),
            "with respect to the probability",
        ),
        "diagonal of the chosen": (
            top1_by_formula(lambda p, one, w, s: s[:, None] * one * (w * (1 - w))[:, None]),
            "only the chosen logit",
        ),
        "diagonal": (top1_by_formula(lambda p, one, w, s: s[:, None] * p * (1 - p)), "each expert by itself"),
        "log p": (top1_by_formula(lambda p, one, w, s: s[:, None] * (one - p)), "gradient of the logarithm"),
        "cross-entropy": top1_by_formula(lambda p, one, w, s: s[:, None] * (p - one)),
        "downhill": (top1_by_formula(lambda p, one, w, s: (s * w)[:, None] * (p - one)), "turned round"),
        "no slope": (top1_by_formula(lambda p, one, w, s: w[:, None] * (one - p)), "slope left out"),
        "mean": (
            top1_by_formula(lambda p, one, w, s: (s * w)[:, None] * (one - p) / len(p)),
            "mean over the tokens",
        ),
        "squared weight": top1_by_formula(lambda p, one, w, s: (s * w * w)[:, None] * (one - p)),
        "others with the wrong sign": top1_by_formula(lambda p, one, w, s: (s * w)[:, None] * (one - p).abs()),
        "logit": (top1_tracked(lambda h: h.max(1).values), "logit as weight"),
        "sigmoid": (top1_tracked(lambda h: h.max(1).values.sigmoid()), "sigmoid"),
        "log": (top1_tracked(lambda h: h.log_softmax(1).max(1).values), "logarithm as weight"),
        "least": (top1_tracked(lambda h: h.softmax(1).min(1).values), "least likely expert"),
        "tokens": (top1_tracked(lambda h: h.softmax(0).amax(1)), "probabilities over the tokens"),
        "sum of all": top1_tracked(lambda h: h.softmax(1).sum(1)),
        "exp": (top1_tracked(lambda h: (h.exp() / h.exp().sum(1, keepdim=True)).amax(1)), "overflow"),
        "margin": top1_tracked(lambda h: (v := h.softmax(1).topk(2)[0])[:, 0] - v[:, 1]),
        "weight alone": (lambda h, s: h.softmax(1).amax(1), "one of the two, or the other way round"),
        "exchanged": (lambda h, s: top1_in_loops(h, s)[::-1], "one of the two, or the other way round"),
        "all weights": (
            top1_by_formula(lambda p, one, w, s: (s * w)[:, None] * (one - p), lambda w, h, i: h.softmax(1)),
            "weights of all experts",
        ),
        "times experts": top1_tracked(lambda h: h.shape[1] * h.softmax(1).amax(1)),
        "index": lambda h, s: (h.argmax(1), top1_by_vjp(h, s)[1]),
    },
    "moe.dispatch": {
        "overwritten": (lambda *a: dispatch_by_masks(*a, add=False), "second choice overwrites the first"),
        "y[token] = made": lambda *a: dispatch_sorted(*a, home="index"),
        "y[token] += made": lambda *a: dispatch_sorted(*a, home="plus"),
        "weight before": (lambda *a: dispatch_by_masks(*a, weigh="before"), "weight on the input"),
        "no weight": (lambda *a: dispatch_by_masks(*a, weigh="never"), "without weights"),
        "order lost": (lambda *a: dispatch_sorted(*a, home="as they are"), "order lost"),
        "ordered twice": (lambda *a: dispatch_sorted(*a, home="order"), "sorted once more"),
        "nothing comes home": lambda *a: dispatch_sorted(*a, home="nowhere"),
        "weights not sorted": (
            lambda *a: dispatch_sorted(*a, weight_of=lambda w, order: w.reshape(-1)),
            "weights of other pairs",
        ),
        "weights read by columns": lambda *a: dispatch_sorted(*a, weight_of=lambda w, order: w.T.reshape(-1)[order]),
        "remainder of T": lambda *a: dispatch_sorted(*a, token_of=lambda order, k, n: order % n, home="scatter"),
        "remainder of k": lambda *a: dispatch_sorted(*a, token_of=lambda order, k, n: order % k, home="scatter"),
        "starts": (lambda *a: dispatch_sorted(*a, end=lambda c: c.cumsum(0) - c), "where experts begin"),
        "counts": (lambda *a: dispatch_sorted(*a, end=lambda c: c), "how many, not where they end"),
        "offsets with a zero": (
            lambda *a: dispatch_sorted(*a, end=lambda c: torch.cat([c[:1] * 0, c.cumsum(0)])),
            "begin and end",
        ),
        "inclusive": (lambda *a: dispatch_sorted(*a, end=lambda c: c.cumsum(0) - 1), "last row instead of the end"),
        "only who has tokens": (
            lambda *a: dispatch_sorted(*a, end=lambda c: c[c > 0].cumsum(0)),
            "an expert without tokens",
        ),
        "dense": (dispatch_dense, "all experts for all tokens"),
        "silu of the second": (
            lambda *a: dispatch_by_masks(
                *a, expert=lambda x, i, o: ((h := (x @ i.T).chunk(2, 1))[0] * silu(h[1])) @ o.T
            ),
            "halves exchanged",
        ),
        "relu": lambda *a: dispatch_by_masks(
            *a, expert=lambda x, i, o: ((h := (x @ i.T).chunk(2, 1))[0].relu() * h[1]) @ o.T
        ),
        "even and odd rows": (
            lambda *a: dispatch_by_masks(*a, expert=lambda x, i, o: (silu((h := x @ i.T)[:, ::2]) * h[:, 1::2]) @ o.T),
            "every other row for a half",
        ),
        "residual": (lambda *a: dispatch_by_masks(*a, residual=True), "residual added"),
        "output alone": (lambda *a: dispatch_by_masks(*a)[2], "output alone"),
        "pairs": (
            lambda x, c, w, i, o: (c.flatten().argsort(stable=True), *dispatch_sorted(x, c, w, i, o)[1:]),
            "pairs instead of tokens",
        ),
        "experts of the rows": (
            lambda x, c, w, i, o: (c.flatten().sort()[0], *dispatch_sorted(x, c, w, i, o)[1:]),
            "experts instead of tokens",
        ),
        "renormalised": lambda x, c, w, i, o: dispatch_sorted(x, c, w / w.sum(1, keepdim=True), i, o),
        "softmax": lambda x, c, w, i, o: dispatch_sorted(x, c, w.softmax(1), i, o),
        "first choice alone": (
            lambda x, c, w, i, o: (
                *dispatch_sorted(x, c, w, i, o)[:2],
                dispatch_by_masks(x, c[:, :1], w[:, :1], i, o)[2],
            ),
            "second choice overwrites the first",
        ),
        "dispatch of the first choice": lambda x, c, w, i, o: dispatch_sorted(x, c[:, :1], w[:, :1], i, o),
        "largest instead of sum": lambda x, c, w, i, o: (
            *dispatch_sorted(x, c, w, i, o)[:2],
            torch.stack(
                [
                    torch.stack([swiglu(x[t], i[e], o[e]) * w[t, j] for j, e in enumerate(c[t])]).amax(0)
                    for t in range(len(x))
                ]
            ),
        ),
    },
    "moe.capacity": {
        "by weight": (lambda *a: capacity_by_sort(*a, score=lambda w: w), "ranked by weight"),
        "by smallest weight": (lambda *a: capacity_by_sort(*a, score=lambda w: -w), "smallest weights first"),
        "stream zeroed": (
            lambda *a: capacity_by_one_hot(*a, behind=lambda s, o, w, keep: (s + w[..., None] * o) * keep[..., None]),
            "residual zeroed too",
        ),
        "stream zeroed by the weight": lambda *a: capacity_by_one_hot(
            *a, behind=lambda s, o, w, keep: (w * keep)[..., None] * (s + o)
        ),
        "no stream": (
            lambda *a: capacity_by_one_hot(*a, behind=lambda s, o, w, keep: (w * keep)[..., None] * o),
            "no residual",
        ),
        "mask not used": (
            lambda *a: capacity_by_one_hot(*a, behind=lambda s, o, w, keep: s + w[..., None] * o),
            "computed all the same",
        ),
        "no weight": (
            lambda *a: capacity_by_one_hot(*a, behind=lambda s, o, w, keep: s + keep[..., None] * o),
            "without the weight",
        ),
        "of the batch": (capacity_of_the_batch, "counted over the batch"),
        "cumsum over groups": lambda *a: capacity_by_one_hot(*a, dim=0),
        "cumsum over experts": (lambda *a: capacity_by_one_hot(*a, dim=2), "a slot for every token"),
        "room of the batch": (
            lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: int(f * c.numel() / n)),
            "counted over the batch",
        ),
        "below": (
            lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: int(f * c.shape[1] / n) - 1),
            "one place fewer",
        ),
        "one too many": (lambda *a: capacity_by_one_hot(*a, zero=True), "one place more"),
        "ceil": (
            lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: math.ceil(f * c.shape[1] / n)),
            "rounded up",
        ),
        "round": (lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: round(f * c.shape[1] / n)), "rounded up"),
        "share rounded first": (
            lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: f * (c.shape[1] // n)),
            "rounded too early",
        ),
        "no factor": (lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: c.shape[1] / n), "factor forgotten"),
        "not divided": (
            lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: int(f * c.shape[1])),
            "a slot for every token",
        ),
        "from the end": (
            lambda s, o, c, w, n, f: tuple(
                x.flip(1) for x in capacity_by_one_hot(*(x.flip(1) for x in (s, o, c, w)), n, f)
            ),
            "last come, first served",
        ),
        "who leaves": (
            lambda *a: (lambda keep, new: (~keep, new))(*capacity_by_one_hot(*a)),
            "who has no place",
        ),
        "half of the stream": lambda *a: capacity_by_one_hot(
            *a, behind=lambda s, o, w, keep: torch.where(keep[..., None], s + w[..., None] * o, s / 2)
        ),
        "dropped ones with the mean": lambda *a: capacity_by_one_hot(
            *a, behind=lambda s, o, w, keep: s + torch.where(keep[..., None], w[..., None] * o, o.mean(1, keepdim=True))
        ),
        "stream alone": (lambda *a: capacity_by_one_hot(*a)[1], "one of the two"),
        "mask alone": (lambda *a: capacity_by_one_hot(*a)[0], "one of the two"),
        "numbers of places": (
            lambda s, o, c, w, n, f: (
                (one_hot(c, n).cumsum(1) * one_hot(c, n)).sum(2),
                capacity_by_one_hot(s, o, c, w, n, f)[1],
            ),
            "places instead of a mask",
        ),
        "every n-th": lambda *a: capacity_by_one_hot(*a, room=lambda c, n, f: n),
        "first tokens": lambda s, o, c, w, n, f: (
            (keep := (torch.arange(c.shape[1]) < int(f * c.shape[1] / n)).expand(c.shape)),
            s + (w * keep)[..., None] * o,
        ),
    },
}
