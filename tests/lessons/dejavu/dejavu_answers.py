"""Answers to the first four exercises of lesson 09, as people write them.

Dimension key: T tokens, D width, F neurons, H query heads, d size of a head, K neurons that stay.
"""

import math

import numpy
import torch
from torch.nn import functional
from torch.nn.functional import binary_cross_entropy_with_logits, silu

# --- importance: hidden (T, F), down (D, F), k ---


def mask_of(score, k, largest=True):
    keep = torch.zeros(score.shape, dtype=torch.bool)
    for t, row in enumerate(score):
        keep[t, row.topk(k, largest=largest).indices] = True
    return keep


def neurons_in_numpy(hidden, down, k):
    score = numpy.abs(hidden.numpy()) * numpy.linalg.norm(down.numpy(), axis=0)
    keep = numpy.zeros(score.shape, dtype=bool)
    numpy.put_along_axis(keep, numpy.argpartition(-score, k - 1, axis=1)[:, :k], True, axis=1)
    return keep


def neurons_one_by_one(hidden, down, k):
    """By how far the output moves when a neuron is set to zero, in double precision."""
    hidden, down = hidden.double(), down.double()
    y, moved = hidden @ down.T, torch.zeros_like(hidden)
    for i in range(hidden.shape[1]):
        without = hidden.clone()
        without[:, i] = 0
        moved[:, i] = (y - without @ down.T).norm(dim=1)
    # Zero up to rounding is zero: a neuron that does not fire is never before one that does.
    return mask_of(moved, k)


def neurons_by_sort(hidden, down, k):
    order = (hidden.abs() * down.pow(2).sum(0).sqrt()).sort(dim=1, descending=True)[1]
    keep = torch.zeros_like(hidden)
    keep[torch.arange(len(hidden)).unsqueeze(1), order[:, :k]] = 1.0
    return keep > 0


def neurons_in_place(hidden, down, k):
    hidden.abs_().mul_(down.square_().sum(0).sqrt_())
    return hidden.argsort(1).argsort(1) >= hidden.shape[1] - k


def neurons_without_most(hidden, down, k, energy=0.9):
    """As many as hold nine tenths of the energy."""
    parts = (hidden * down.norm(dim=0)).square()
    values, order = parts.sort(dim=1, descending=True)
    few = values.cumsum(1) / values.sum(1, keepdim=True).clamp(min=1e-9) <= energy
    return torch.zeros_like(few).scatter(1, order, few)


# --- heads: heads (T, H d), weight (D, H d), n_heads ---


def heads_by_slices(heads, weight, n, part=lambda a, w: a @ w.T, measure=lambda y: y.norm(dim=-1), rows=False):
    size, out = heads.shape[1] // n, []
    for h in range(n):
        at = slice(h * size, (h + 1) * size)
        out.append(measure(part(heads[:, at], weight[at] if rows else weight[:, at])))
    return torch.stack(out, dim=1)


def heads_in_numpy(heads, weight, n):
    a = heads.double().numpy().reshape(len(heads), n, -1)
    w = weight.double().numpy().reshape(len(weight), n, -1)
    return numpy.sqrt((numpy.einsum("thd,ohd->tho", a, w) ** 2).sum(-1))


def heads_in_loops(heads, weight, n):
    size = heads.shape[1] // n
    return [
        [math.hypot(*(weight[:, h * size : (h + 1) * size].double() @ row[h * size : (h + 1) * size].double()).tolist())
         for h in range(n)]
        for row in heads
    ]  # fmt: skip


def heads_by_matmul(heads, weight, n, swap=True):
    a = heads.reshape(len(heads), n, -1).transpose(0, 1)  # (H, T, d)
    w = weight.reshape(len(weight), n, -1).permute(1, 2, 0)  # (H, d, D)
    norms = torch.linalg.norm(a @ w, dim=-1)
    return norms.T if swap else norms


def heads_by_difference(heads, weight, n):
    """How far the output moves when a head is set to zero, in double precision."""
    a, w = heads.double(), weight.double()
    moved = []
    for at in torch.arange(a.shape[1]).chunk(n):
        without = a.clone()
        without[:, at] = 0
        moved.append(
            torch.dist(a[:1] @ w.T, without[:1] @ w.T) if len(a) == 1 else (a @ w.T - without @ w.T).norm(dim=1)
        )
    return torch.stack([m.reshape(-1) for m in moved], dim=1)


# --- gathered: x (D,), gate (F, D), up (F, D), down (D, F), index (K,) ---


def gathered_mlp(x, gate, up, down, index, act=silu, combine=torch.mul, back=lambda d, i: d[:, i]):
    return back(down, index) @ combine(act(gate[index] @ x), up[index] @ x)


def gathered_in_loops(x, gate, up, down, index):
    y = [0.0] * len(x)
    for i in index.tolist():
        g, u = float(gate[i].double() @ x.double()), float(up[i].double() @ x.double())
        h = g / (1 + math.exp(-g)) * u
        y = [total + h * w for total, w in zip(y, down[:, i].tolist(), strict=True)]
    return y


def gathered_by_index_select(x, gate, up, down, index):
    g, u = (functional.linear(x, matrix.index_select(0, index)) for matrix in (gate, up))
    return torch.mv(down.index_select(1, index), g * torch.sigmoid(g) * u)


def gathered_by_einsum(x, gate, up, down, index):
    both = torch.einsum("gkd,d->gk", torch.stack([gate[index], up[index]]), x)
    return torch.einsum("dk,k->d", down[:, index], silu(both[0]) * both[1])


def gathered_by_bag(x, gate, up, down, index):
    """As the course's own execution does it: a weighted sum of rows."""
    h = silu(gate[index] @ x) * (up[index] @ x)
    return sum((h[n] * down.T[i] for n, i in enumerate(index)), torch.zeros_like(x))


def gathered_by_rank(x, gate, up, down, index):
    """Gate in the order of the index; the others through a mask."""
    keep = torch.zeros(len(gate), dtype=torch.bool)
    keep[index] = True
    return down[:, keep] @ (silu(gate[index] @ x) * (up[keep] @ x))


# --- loss: logits (T, F), parts (T, F), k ---


def labels_of(parts, k):
    best = parts.topk(k, dim=-1).indices
    return torch.zeros_like(parts).scatter_(1, best, 1.0) * (parts != 0)


def tracked(formula):
    """loss and gradient of formula(logits, parts, k)."""

    def answer(logits, parts, k):
        logits = logits.clone().requires_grad_()
        loss = formula(logits, parts, k)
        loss.backward()
        return loss, logits.grad

    return answer


def usual(logits, parts, k, labels=labels_of, share=None, weight=None, reduction="mean"):
    y = labels(parts, k)
    w = y.mean() + 0.005 if share is None else share(y)
    weight = y * (1 - w) + w if weight is None else weight(y, w)
    return binary_cross_entropy_with_logits(logits, y, weight=weight, reduction=reduction)


def usual_with(**changes):
    return tracked(lambda z, p, k: usual(z, p, k, **changes))


def loss_in_numpy(logits, parts, k):
    z, p = logits.double().numpy(), parts.double().numpy()
    rank = numpy.argsort(numpy.argsort(-p, axis=1, kind="stable"), axis=1)
    y = (rank < k) & (p > 0)
    weight = numpy.where(y, 1.0, y.mean() + 0.005)
    loss = (weight * (numpy.logaddexp(0, z) - y * z)).mean()
    return loss, weight * (0.5 + 0.5 * numpy.tanh(z / 2) - y) / z.size


def loss_in_two_parts(logits, parts, k):
    y = labels_of(parts, k).bool()
    w = y.double().mean().item() + 0.005
    logits.requires_grad_()
    loss = (functional.softplus(-logits[y]).sum() + w * functional.softplus(logits[~y]).sum()) / y.numel()
    return loss.detach(), torch.autograd.grad(loss, logits)[0]


def loss_by_hand(slope, k_of=lambda k: k):
    """The right loss, and a gradient from (σ(z), labels, weights)."""

    def answer(logits, parts, k):
        y = labels_of(parts, k_of(k))
        weight = y + (1 - y) * (y.mean() + 0.005)
        loss = (weight * (functional.softplus(logits) - y * logits)).mean()
        return loss, slope(logits.sigmoid(), y, weight)

    return answer


def hinge(logits, parts, k):
    y = labels_of(parts, k)
    return ((1 - (2 * y - 1) * logits).relu() * (y + (1 - y) * (y.mean() + 0.005))).mean()


def by_probability(logits, parts, k, tiny=0.0):
    y, p = labels_of(parts, k), torch.sigmoid(logits)
    weight = torch.where(y == 1, torch.ones_like(y), y.mean() + 0.005)
    return (-weight * (y * torch.log(p + tiny) + (1 - y) * torch.log(1 - p + tiny))).mean()


RIGHT = {
    "dejavu.importance": {
        "numpy": neurons_in_numpy,
        "one neuron after the other": neurons_one_by_one,
        "by sorting": neurons_by_sort,
        "in place": neurons_in_place,
        "squares": lambda h, w, k: mask_of(h**2 * (w**2).sum(0), k),
        "parts of three axes": lambda h, w, k: mask_of(torch.einsum("tf,df->tdf", h, w).norm(dim=1), k),
        "norm by linalg, 0 and 1": lambda h, w, k: mask_of(h.abs() * torch.linalg.vector_norm(w, dim=0), k).long(),
        "the k-th, and as many of the equal ones as there is room for": lambda h, w, k: mask_of(
            (h.double() * w.double().norm(dim=0)).abs(), k
        ),
    },
    "dejavu.heads": {
        "slices": heads_by_slices,
        "numpy": heads_in_numpy,
        "loops": heads_in_loops,
        "matmul": heads_by_matmul,
        "what is missing without the head": heads_by_difference,
        "as a list of rows": lambda a, w, n: heads_by_slices(a, w, n).tolist(),
        "squares summed": lambda a, w, n: heads_by_slices(a, w, n, measure=lambda y: (y**2).sum(-1).sqrt()),
    },
    "dejavu.gathered": {
        "linear": gathered_by_index_select,
        "loops": gathered_in_loops,
        "einsum": gathered_by_einsum,
        "rows added": gathered_by_bag,
        "sigmoid by hand": lambda *a: gathered_mlp(*a, act=lambda g: g * torch.sigmoid(g)),
        "index sorted first": lambda x, g, u, d, i: gathered_mlp(x, g, u, d, i.sort()[0]),
        "x as a column": lambda x, g, u, d, i: (d[:, i] @ (silu(g[i] @ x[:, None]) * (u[i] @ x[:, None]))).squeeze(1),
    },
    "dejavu.loss": {
        "torch's own": usual_with(),
        "numpy": loss_in_numpy,
        "two parts": loss_in_two_parts,
        "by hand": loss_by_hand(lambda s, y, v: v * (s - y) / y.numel()),
        "signs": tracked(
            lambda z, p, k: (
                -functional.logsigmoid((2 * (y := labels_of(p, k)) - 1) * z) * torch.where(y > 0, 1, y.mean() + 0.005)
            ).mean()
        ),
        "pos_weight and w": tracked(
            lambda z, p, k: (
                (w := (y := labels_of(p, k)).mean() + 0.005) * binary_cross_entropy_with_logits(z, y, pos_weight=1 / w)
            )
        ),
    },
}

WRONG = {
    "dejavu.importance": {
        "largest values": lambda h, w, k: mask_of(h, k),
        "largest absolute values": (lambda h, w, k: mask_of(h.abs(), k), "without the norms of the columns"),
        "weighted with its sign": (lambda h, w, k: mask_of(h * w.norm(dim=0), k), "signed value"),
        "norm of rows": (lambda h, w, k: mask_of(h.abs() * w.norm(dim=1), k), "norm over the wrong axis"),
        "norm of the last axis": (lambda h, w, k: mask_of((h * w.norm(dim=-1)).abs(), k), "norm over the wrong axis"),
        "mean over the tokens": (
            lambda h, w, k: mask_of((h.abs() * w.norm(dim=0)).mean(0, keepdim=True), k).expand(h.shape),
            "the same neurons for all tokens",
        ),
        "one row": lambda h, w, k: mask_of((h.abs() * w.norm(dim=0)).mean(0, keepdim=True), k)[0],
        "Wanda's score": (
            lambda h, w, k: mask_of((h.norm(dim=0) * w.norm(dim=0)).repeat(len(h), 1), k),
            "the same neurons for all tokens",
        ),
        "lowest": (lambda h, w, k: mask_of(h.abs() * w.norm(dim=0), k, largest=False), "lowest kept"),
        "a mask of those that leave": (lambda h, w, k: ~neurons_by_sort(h, w, k), "the skipped ones"),
        "k lowest out": (
            lambda h, w, k: ~mask_of(h.abs() * w.norm(dim=0), k, largest=False),
            "k skipped",
        ),
        "threshold": (
            lambda h, w, k: (s := h.abs() * w.norm(dim=0)) >= s.kthvalue(h.shape[1] - k + 1, dim=1, keepdim=True)[0],
            "more than k where parts are equal",
        ),
        "above the threshold": lambda h, w, k: (
            (s := h.abs() * w.norm(dim=0)) > s.kthvalue(h.shape[1] - k + 1, dim=1, keepdim=True)[0]
        ),
        "quantile": lambda h, w, k: (
            (s := h.abs() * w.norm(dim=0)) >= s.quantile(1 - k / h.shape[1], dim=1, keepdim=True)
        ),
        "all tokens together": (
            lambda h, w, k: (s := h.abs() * w.norm(dim=0)) >= s.flatten().sort(descending=True).values[k * len(h) - 1],
            "best of all tokens together",
        ),
        "argsort below k": (
            lambda h, w, k: torch.argsort(h.abs() * w.norm(dim=0), dim=1, descending=True) < k,
            "places taken for ranks",
        ),
        "indices": (lambda h, w, k: (h.abs() * w.norm(dim=0)).topk(k).indices, "numbers of neurons"),
        "values kept": (lambda h, w, k: torch.where(mask_of(h.abs() * w.norm(dim=0), k), h, 0), "the values"),
        "nine tenths of the energy": neurons_without_most,
        "those that fire": lambda h, w, k: h.abs() > 0,
        "norm of each row of hidden": lambda h, w, k: mask_of(h.abs() * h.norm(dim=1, keepdim=True), k),
        "L1": (lambda h, w, k: mask_of(h.abs() * w.abs().sum(0), k), "another length"),
    },
    "dejavu.heads": {
        "before the projection": (
            lambda a, w, n: (
                a.view(len(a), n, -1).norm(dim=-1) if a.is_contiguous() else a.reshape(len(a), n, -1).norm(dim=-1)
            ),
            "before the output projection",
        ),
        "interleaved": (
            lambda a, w, n: torch.stack([(a[:, h::n] @ w[:, h::n].T).norm(dim=1) for h in range(n)], dim=1),
            "heads interleaved",
        ),
        "head axis last": (
            lambda a, w, n: torch.einsum("tdh,odh->tho", a.reshape(len(a), -1, n), w.reshape(len(w), -1, n)).norm(
                dim=-1
            ),
            "heads interleaved",
        ),
        "rows of the weight": lambda a, w, n: heads_by_slices(a, w, n, part=torch.matmul, rows=True),
        "output in pieces": (
            lambda a, w, n: torch.stack([piece.norm(dim=1) for piece in (a @ w.T).tensor_split(n, dim=1)], dim=1),
            "the output cut into heads",
        ),
        "no transposition": lambda a, w, n: (a @ w).reshape(len(a), n, -1).norm(dim=2),
        "norms multiplied": (
            lambda a, w, n: heads_by_slices(a, w, n, part=lambda a, w: a.norm(dim=1) * w.norm(), measure=lambda y: y),
            "product of two lengths",
        ),
        "one number per head": lambda a, w, n: heads_by_slices(a, w, n).mean(0),
        "over the tokens": (
            lambda a, w, n: heads_by_slices(a, w, n, measure=lambda y: y.norm(dim=0)).T,
            "over the tokens",
        ),
        "squares": (lambda a, w, n: heads_by_slices(a, w, n) ** 2, "without the root"),
        "largest entry": (
            lambda a, w, n: heads_by_slices(a, w, n, measure=lambda y: y.abs().max(-1)[0]),
            "another length",
        ),
        "summed": (lambda a, w, n: heads_by_slices(a, w, n, measure=lambda y: y.sum(-1)), "entries added up"),
        "root mean square": (
            lambda a, w, n: heads_by_slices(a, w, n, measure=lambda y: y.pow(2).mean(-1).sqrt()),
            "mean over the channels",
        ),
        "fractions": (
            lambda a, w, n: (s := heads_by_slices(a, w, n)) / s.sum(-1, keepdim=True),
            "fractions",
        ),
        "heads first": (lambda a, w, n: heads_by_matmul(a, w, n, swap=False), "heads first"),
        "parts": lambda a, w, n: heads_by_slices(a, w, n, measure=lambda y: y),
        "all others": (
            lambda a, w, n: ((a @ w.T).unsqueeze(1) - heads_by_slices(a, w, n, measure=lambda y: y)).norm(dim=-1),
            "what is left without the head",
        ),
        "d for n_heads": lambda a, w, n: heads_by_slices(a, w, a.shape[1] // n),
        "one head too far": lambda a, w, n: heads_by_slices(a.roll(-a.shape[1] // n, 1), w, n),
        "columns of the weight scaled": lambda a, w, n: heads_by_slices(
            a * w.norm(dim=0), torch.eye(a.shape[1]).to(a), n
        ),
    },
    "dejavu.gathered": {
        "down read whole": (
            lambda x, g, u, d, i: d @ torch.zeros(len(g)).to(x).index_copy(0, i, silu(g[i] @ x) * (u[i] @ x)),
            "everything read",
        ),
        "rows of down": (lambda *a: gathered_mlp(*a, back=lambda d, i: d[i]), "columns of down for rows"),
        "rows of down turned": (lambda *a: gathered_mlp(*a, back=lambda d, i: d[i].T), "columns of down for rows"),
        "a mask for up and down": gathered_by_rank,
        "a mask for down": (
            lambda x, g, u, d, i: d[:, torch.isin(torch.arange(len(g)), i)] @ (silu(g[i] @ x) * (u[i] @ x)),
            "down in another order",
        ),
        "up sorted": (
            lambda x, g, u, d, i: d[:, i] @ (silu(g[i] @ x) * (u[i.sort().values] @ x)),
            "gate and up in different orders",
        ),
        "activation on up": (
            lambda x, g, u, d, i: d[:, i] @ ((g[i] @ x) * silu(u[i] @ x)),
            "activation on up",
        ),
        "no activation": (lambda *a: gathered_mlp(*a, act=lambda g: g), "without the activation"),
        "sigmoid": (lambda *a: gathered_mlp(*a, act=torch.sigmoid), "another activation"),
        "relu": (lambda *a: gathered_mlp(*a, act=torch.relu), "another activation"),
        "sum of gate and up": (lambda *a: gathered_mlp(*a, combine=torch.add), "gate and up added"),
        "masked dense": (
            lambda x, g, u, d, i: (
                d @ (silu(g @ x) * (u @ x) * torch.zeros(len(g), dtype=x.dtype).index_fill(0, i, 1.0))
            ),
            "everything read",
        ),
        "dense": (lambda x, g, u, d, i: d @ (silu(g @ x) * (u @ x)), "all neurons"),
        "left out": (
            lambda x, g, u, d, i: gathered_mlp(
                x, g, u, d, torch.tensor([n for n in range(len(g)) if n not in i], dtype=torch.long)
            ),
            "the others",
        ),
        "residual": (lambda x, *a: x + gathered_mlp(x, *a), "the residual stream added"),
        "values": (lambda x, g, u, d, i: silu(g[i] @ x) * (u[i] @ x), "the neurons' values"),
        "gate all, up some": lambda x, g, u, d, i: d[:, i] @ (silu(g @ x)[: len(i)] * (u[i] @ x)),
        "entries of x": lambda x, g, u, d, i: d[:, i] @ (silu(g[i][:, i] @ x[i]) * (u[i][:, i] @ x[i])),
        "without dense where index is empty": lambda x, g, u, d, i: gathered_mlp(x, g, u, d, i) if len(i) else None,
        "an element": lambda x, g, u, d, i: (d[:, i] * (silu(g[i] @ x) * (u[i] @ x))).mean(1),
        "scaled": (
            lambda x, g, u, d, i: gathered_mlp(x, g, u, d, i) * len(g) / max(1, len(i)),
            "made larger for those that left",
        ),
    },
    "dejavu.loss": {
        "weights swapped": (usual_with(weight=lambda y, w: y * w + (1 - y)), "weights swapped"),
        "pos_weight w": tracked(
            lambda z, p, k: binary_cross_entropy_with_logits(z, (y := labels_of(p, k)), pos_weight=y.mean() + 0.005)
        ),
        "pos_weight 1 / w": (
            tracked(
                lambda z, p, k: binary_cross_entropy_with_logits(
                    z, (y := labels_of(p, k)), pos_weight=1 / (y.mean() + 0.005)
                )
            ),
            "weights relative to the others",
        ),
        "no weights": (usual_with(weight=lambda y, w: torch.ones_like(y)), "all count the same"),
        "sum": (usual_with(reduction="sum"), "divided by something else"),
        "cross-entropy over neurons": (
            tracked(lambda z, p, k: -(labels_of(p, k) * functional.log_softmax(z, dim=-1)).sum(1).mean()),
            "softmax over the neurons",
        ),
        "torch's cross_entropy": (
            tracked(
                lambda z, p, k: functional.cross_entropy(
                    z, (y := labels_of(p, k)) / y.sum(1, keepdim=True).clamp(min=1)
                )
            ),
            "softmax over the neurons",
        ),
        "top of the batch": (
            usual_with(
                labels=lambda p, k: (p > 0) * (p >= p.flatten().sort(descending=True).values[k * len(p) - 1]).to(p)
            ),
            "active of the whole batch",
        ),
        "all that fire": (usual_with(labels=lambda p, k: (p > 0).to(p)), "all that are not zero"),
        "zeros too": (
            usual_with(labels=lambda p, k: torch.zeros_like(p).scatter(1, p.topk(k).indices, 1.0)),
            "zeros called active",
        ),
        "zeros too, by a threshold": usual_with(labels=lambda p, k: (p >= p.topk(k).values[:, -1:]).to(p)),
        "share a token": (
            usual_with(share=lambda y: y.mean(1, keepdim=True) + 0.005),
            "a fraction for each token or neuron",
        ),
        "share a neuron": (usual_with(share=lambda y: y.mean(0) + 0.005), "a fraction for each token or neuron"),
        "no 0.005": (usual_with(share=lambda y: y.mean()), "0.005 left out"),
        "five per cent": usual_with(share=lambda y: y.mean() + 0.05),
        "logarithm of the sigmoid": (tracked(by_probability), "overflow"),
        "logarithm with an epsilon": (tracked(lambda z, p, k: by_probability(z, p, k, tiny=1e-8)), "overflow"),
        "logarithm with an epsilon, gradient on paper": (
            lambda z, p, k: (by_probability(z, p, k, tiny=1e-7), usual_with()(z, p, k)[1]),
            "overflow",
        ),
        "logits kept within 30": tracked(lambda z, p, k: usual(z.clamp(-30, 30), p, k)),
        "hinge": tracked(hinge),
        "squares": (
            tracked(
                lambda z, p, k: (
                    (z.sigmoid() - (y := labels_of(p, k))).pow(2) * torch.where(y > 0, 1, y.mean() + 0.005)
                ).mean()
            ),
            "square of the difference",
        ),
        "sigmoid twice": (
            tracked(lambda z, p, k: usual(torch.sigmoid(z), p, k)),
            "sigmoid twice",
        ),
        "gradient not divided": (loss_by_hand(lambda s, y, v: v * (s - y)), "gradient without the mean"),
        "gradient without weights": (
            loss_by_hand(lambda s, y, v: (s - y) / y.numel()),
            "gradient without the weights",
        ),
        "gradient the other way": (
            loss_by_hand(lambda s, y, v: v * (y - s) / y.numel()),
            "gradient with the wrong sign",
        ),
        "mean over weights": (
            tracked(
                lambda z, p, k: (
                    (y := labels_of(p, k), v := torch.where(y > 0, 1, y.mean() + 0.005))
                    and (binary_cross_entropy_with_logits(z, y, weight=v, reduction="sum") / v.sum())
                )
            ),
            "divided by something else",
        ),
        "k too large": usual_with(labels=lambda p, k: labels_of(p, min(2 * k, p.shape[1]))),
        "lengths as labels": usual_with(labels=lambda p, k: p / p.amax(1, keepdim=True).clamp(min=1e-9)),
    },
}
