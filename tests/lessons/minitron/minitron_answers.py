"""Answers to the exercises of lesson 05, as people write them.

Dimension key: H query heads, G key-value heads, S size of a head, D width, F neurons, L blocks, N sequences, T tokens,
V words.
"""

import math
from itertools import pairwise

import numpy
import torch
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div, log_softmax, softmax

# --- group: seven matrices, groups (g,), neurons (f,), G ---

OF_HEADS, OF_NEURONS = {"q": 0, "k": 0, "v": 0, "o": 1}, {"gate": 0, "up": 0, "down": 1}


def block_cut(query=None, key=None, axes=OF_HEADS | OF_NEURONS, untouched=(), neurons_of=lambda n, f: n):
    """Cut by lists of rows: query(heads a group, S, groups, G), key(S, groups, G)."""

    def cut(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
        each, size, kept = len(q) // len(k), len(k) // n_key_value, groups.tolist()
        of_query = query(each, size, kept, n_key_value) if query else query_rows(each, size, kept, n_key_value)
        of_key = key(size, kept, n_key_value) if key else [r for g in kept for r in range(g * size, (g + 1) * size)]
        index = {"q": of_query, "o": of_query, "k": of_key, "v": of_key}
        index |= dict.fromkeys(OF_NEURONS, neurons_of(neurons, len(up)))
        given = {"q": q, "k": k, "v": v, "o": o, "gate": gate, "up": up, "down": down}
        return {
            name: matrix if name in untouched else matrix.index_select(axes[name], torch.as_tensor(index[name]))
            for name, matrix in given.items()
        }

    return cut


def query_rows(each, size, groups, n_key_value):
    heads = [h for h in range(each * n_key_value) if h // each in groups]
    return [h * size + i for h in heads for i in range(size)]


def cut_with_slices(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    wide, slim = len(q) // n_key_value, len(k) // n_key_value
    q = torch.cat([q[g * wide : (g + 1) * wide] for g in groups])
    o = torch.cat([o[:, g * wide : (g + 1) * wide] for g in groups], dim=1)
    k, v = (torch.cat([m[g * slim : (g + 1) * slim] for g in groups]) for m in (k, v))
    return dict(q=q, k=k, v=v, o=o, gate=gate[neurons], up=up[neurons], down=down[:, neurons])  # noqa: C408


def cut_with_chunks(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    def stay(matrix, dim=0):
        return torch.cat([matrix.chunk(n_key_value, dim)[g] for g in groups.tolist()], dim)

    cut = {"down": down.T[neurons].T, "o": stay(o, 1), "up": up[neurons.tolist()], "gate": gate[neurons]}
    return cut | {"q": stay(q), "k": stay(k), "v": stay(v)}


def cut_in_numpy(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    heads = numpy.repeat(numpy.isin(numpy.arange(n_key_value), groups), len(q) // n_key_value)
    keys = numpy.repeat(numpy.isin(numpy.arange(n_key_value), groups), len(k) // n_key_value)
    q, k, v, o, gate, up, down = (m.numpy() for m in (q, k, v, o, gate, up, down))
    n = neurons.numpy()
    return {
        "q": q[heads],
        "k": k[keys],
        "v": v[keys],
        "o": o[:, heads],
        "gate": gate[n],
        "up": up[n],
        "down": down[:, n],
    }


def cut_with_a_mask_for_each(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    size = k.shape[0] // n_key_value
    each = q.shape[0] // size // n_key_value
    rows = torch.zeros(q.shape[0], dtype=torch.bool)
    slim = torch.zeros(k.shape[0], dtype=torch.bool)
    for head in range(q.shape[0] // size):
        rows[head * size : (head + 1) * size] = head // each in groups.tolist()
    for group in groups:
        slim[group * size : (group + 1) * size] = True
    cut = {"q": q[rows], "k": k[slim], "v": v[slim], "o": o.T[rows].T}
    return cut | {"gate": gate[neurons], "up": up[neurons], "down": down.T[neurons].T}


def cut_by_width(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    each = q.shape[0] // k.shape[0]
    size = q.shape[1] // (each * n_key_value)
    heads = [h for h in range(each * n_key_value) if h // each in groups.tolist()]
    rows = torch.cat([torch.arange(h * size, (h + 1) * size) for h in heads])
    slim = torch.cat([torch.arange(g * size, (g + 1) * size) for g in groups.tolist()])
    cut = {"q": q[rows], "k": k[slim], "v": v[slim], "o": o[:, rows]}
    return cut | {"gate": gate[neurons], "up": up[neurons], "down": down[:, neurons]}


def cut_from_the_front(q, k, v, o, gate, up, down, groups, neurons, n_key_value):
    n, f = len(groups), len(neurons)
    wide, slim = n * len(q) // n_key_value, n * len(k) // n_key_value
    cut = {"q": q[:wide], "k": k[:slim], "v": v[:slim], "o": o[:, :wide]}
    return cut | {"gate": gate[:f], "up": up[:f], "down": down[:, :f]}


# --- heads: scores (L, H), groups (L, g), G, n_each ---


def heads_by_loop(scores, groups, n_groups, n_each, reverse=True, offset=True, sort=True, owner=None):
    size = scores.shape[1] // n_groups
    rows = []
    for row, stay in zip(scores.tolist(), groups.tolist(), strict=True):
        chosen = []
        for group in stay:
            mine = [h for h in range(len(row)) if (owner or (lambda h: h // size))(h) == group]
            best = sorted(mine, key=lambda h: row[h], reverse=reverse)[:n_each]
            chosen += [h - (0 if offset else group * size) for h in (sorted(best) if sort else best)]
        rows.append(chosen)
    return torch.tensor(rows)


def heads_in_numpy(scores, groups, n_groups, n_each):
    inside = scores.double().numpy().reshape(len(scores), n_groups, -1)
    order = numpy.argsort(-inside, axis=2, kind="stable")[:, :, :n_each]
    numbers = numpy.sort(order, axis=2) + inside.shape[2] * numpy.arange(n_groups)[None, :, None]
    return numpy.take_along_axis(numbers, groups.numpy()[:, :, None], axis=1).reshape(len(scores), -1)


def heads_by_minus_infinity(scores, groups, n_groups, n_each):
    size = scores.shape[1] // n_groups
    rows = []
    for row, stay in zip(scores, groups, strict=True):
        chosen = []
        for g in stay:
            hidden = torch.full_like(row, -torch.inf)
            hidden[g * size : (g + 1) * size] = row[g * size : (g + 1) * size]
            chosen.append(hidden.topk(n_each).indices.sort().values)
        rows.append(torch.cat(chosen))
    return torch.stack(rows)


def heads_of_every_group_then_chosen(scores, groups, n_groups, n_each):
    size = scores.shape[1] // n_groups
    best = scores.view(len(scores), n_groups, size).topk(n_each, dim=-1)[1] if scores.is_contiguous() else None
    if best is None:
        best = scores.reshape(len(scores), n_groups, size).topk(n_each, dim=-1)[1]
    best = best + torch.arange(0, scores.shape[1], size)[:, None]
    return torch.stack([rows[stay].reshape(-1) for rows, stay in zip(best, groups, strict=True)])


def heads_above_a_threshold(scores, groups, n_groups, n_each):
    inside = scores.reshape(len(scores), n_groups, -1)
    edge = inside.sort(dim=2, descending=True).values[:, :, n_each - 1, None]
    keep = (inside >= edge).flatten(1)
    return torch.stack([row.nonzero().flatten()[: n_each * groups.shape[1]] for row in keep])


def heads_of_all(scores, groups, n_groups, n_each):
    return scores.topk(n_each * groups.shape[1], dim=1).indices.sort(dim=1).values


def heads_by_group_means(scores, groups, n_groups, n_each):
    size = scores.shape[1] // n_groups
    best = scores.reshape(len(scores), n_groups, size).mean(1).topk(n_each, dim=1).indices
    return (best[:, None] + size * groups[:, :, None]).flatten(1)


# --- distil: student and teacher (N, T, V), τ ---


def tracked(loss):
    """The loss and what autograd says."""

    def answer(student, teacher, temperature):
        student = student.clone().requires_grad_(True)
        value = loss(student, teacher, temperature)
        value.backward()
        return value, student.grad

    return answer


def by_formula(loss=None, gradient=None):
    def answer(student, teacher, temperature):
        log_q, log_p = log_softmax(student / temperature, -1), log_softmax(teacher / temperature, -1)
        n, (p, q) = student.shape[0] * student.shape[1], (log_p.exp(), log_q.exp())
        value = loss or (lambda p, q, log_p, log_q, n, t: t * t * (p * (log_p - log_q)).sum() / n)
        slope = gradient or (lambda p, q, n, t: t * (q - p) / n)
        return value(p, q, log_p, log_q, n, temperature), slope(p, q, n, temperature)

    return answer


def distil_in_numpy(student, teacher, temperature):
    def logs(logits):
        z = logits.double().numpy() / temperature
        z = z - z.max(axis=-1, keepdims=True)
        return z - numpy.log(numpy.exp(z).sum(axis=-1, keepdims=True))

    log_q, log_p = logs(student), logs(teacher)
    n = log_q.shape[0] * log_q.shape[1]
    loss = temperature**2 * (numpy.exp(log_p) * (log_p - log_q)).sum() / n
    return loss, temperature * (numpy.exp(log_q) - numpy.exp(log_p)) / n


def distil_in_a_loop(student, teacher, temperature):
    student = student.detach().requires_grad_()
    losses = []
    for ours, theirs in zip(student.flatten(0, 1), teacher.flatten(0, 1), strict=True):
        log_p, log_q = (theirs / temperature).log_softmax(0), (ours / temperature).log_softmax(0)
        losses.append(sum(log_p[v].exp() * (log_p[v] - log_q[v]) for v in range(len(ours))))
    loss = temperature**2 * sum(losses) / len(losses)
    return loss.item(), torch.autograd.grad(loss, student)[0]


# --- norm: weight (D,), eps, kept (d,) ---


def narrower(weight_power=0.5, eps_power=1.0, ratio=lambda w, k: len(w) / len(k)):
    return lambda w, e, k: (w[k] * ratio(w, k) ** weight_power, e * ratio(w, k) ** eps_power)


def by_trying_it(weight, eps, kept):
    """The weight from one vector: what the wide norm gives over what the narrow one does."""
    x = torch.zeros(len(weight), dtype=torch.float64)
    x[kept] = torch.linspace(1, 2, len(kept), dtype=torch.float64)
    eps_after = eps * len(weight) / len(kept)
    wide = x / (x.square().mean() + eps).sqrt() * weight
    slim = x[kept] / (x[kept].square().mean() + eps_after).sqrt()
    return wide[kept] / slim, eps_after


def turned(before, after):
    return 1 - (before * after).sum(-1) / (before.norm(dim=-1) * after.norm(dim=-1))


def parameters(w, n, f, h, g, s, v, tied=True):
    attention = w * h * s + 2 * w * g * s + h * s * w
    return v * w * (1 if tied else 2) + n * (attention + 3 * w * f + 2 * w) + w


def column_loop(w, g):
    first, second = [], []
    for j in range(w.shape[1]):
        changes = [float(w[i, j]) * float(g[i, j]) for i in range(w.shape[0])]
        first.append(abs(sum(changes)))
        second.append(sum(map(abs, changes)))
    return torch.tensor(first), torch.tensor(second)


def taylor_of_a_mask(w, g):
    """The gradient of a mask on the neurons, the loss being linear in the weights."""
    mask = torch.ones(w.shape[1], dtype=w.dtype, requires_grad=True)
    (w * mask * g).sum().backward()
    return mask.grad.abs(), (w.abs() * g.abs()).sum(0)


RIGHT = {
    "minitron.group": {
        "lists of rows": block_cut(),
        "slices": cut_with_slices,
        "chunks": cut_with_chunks,
        "numpy": cut_in_numpy,
        "masks": cut_with_a_mask_for_each,
    },
    "minitron.count": {
        "line by line": parameters,
        "attention with one product": lambda w, n, f, h, g, s, v: (
            v * w + w + n * (2 * (h * s) * w + 2 * (g * s) * w + 3 * f * w + w + w)
        ),
        "width factored out": lambda w, n, f, h, g, s, v: w * (v + 1 + n * (2 * s * (h + g) + 3 * f + 2)),
        "a loop over blocks": lambda w, n, f, h, g, s, v: (
            sum(2 * w * s * (h + g) + 3 * w * f + 2 * w for _ in range(n)) + (v + 1) * w
        ),
        "numpy": lambda *a: numpy.int64(parameters(*a)),
        "empty modules": lambda w, n, f, h, g, s, v: sum(
            torch.empty(shape, device="meta").numel()
            for shape in [(v, w), (w,)] + n * [(h * s, w), (g * s, w), (g * s, w), (w, h * s), *[(f, w)] * 3, (2, w)]
        ),
    },
    "minitron.aggregate": {
        "one line": lambda x: x.abs().mean(1).norm(dim=0),
        "a root of squares": lambda x: (x.abs().mean(dim=1) ** 2).sum(dim=0) ** 0.5,
        "numpy": lambda x: numpy.sqrt((numpy.abs(x.numpy()).mean(axis=1) ** 2).sum(axis=0)),
        "linalg": lambda x: torch.linalg.vector_norm(x.abs().mean(dim=1), ord=2, dim=0),
        "sequence by sequence": lambda x: torch.stack([s.abs().sum(0) / len(s) for s in x]).square().sum(0).sqrt(),
        "lists": lambda x: [
            math.sqrt(sum((sum(abs(t[j]) for t in s) / len(s)) ** 2 for s in x.tolist())) for j in range(x.shape[2])
        ],
        "mean of squares": lambda x: x.abs().mean(1).square().mean(0).sqrt(),
    },
    "minitron.heads": {
        "a loop": heads_by_loop,
        "a loop, best first": lambda s, g, n, m: heads_by_loop(s, g, n, m, sort=False),
        "numpy": heads_in_numpy,
        "minus infinity": heads_by_minus_infinity,
        "all groups, then those that stay": heads_of_every_group_then_chosen,
        "lists": lambda s, g, n, m: heads_by_loop(s, g, n, m).tolist(),
        "floating point": lambda s, g, n, m: heads_by_loop(s, g, n, m).double(),
    },
    "minitron.influence": {
        "cosine_similarity": lambda s: 1 - cosine_similarity(s[:-1], s[1:], dim=-1).mean(-1),
        "a loop": lambda s: torch.stack([(1 - cosine_similarity(a, b)).mean() for a, b in pairwise(s)]),
        "inner products": lambda s: turned(s[:-1], s[1:]).mean(1),
        "einsum": lambda s: (
            1 - torch.einsum("ltd,ltd->lt", *(x / x.norm(dim=-1, keepdim=True) for x in (s[1:], s[:-1]))).mean(1)
        ),
        "numpy": lambda s: [
            1 - numpy.mean((a * b).sum(1) / numpy.linalg.norm(a, axis=1) / numpy.linalg.norm(b, axis=1))
            for a, b in pairwise(s.double().numpy())
        ],
        "floats": lambda s: [turned(s[i], s[i + 1]).mean().item() for i in range(len(s) - 1)],
    },
    "minitron.taylor": {
        "products": lambda w, g: ((w * g).sum(0).abs(), (w * g).abs().sum(0)),
        "what is lost": lambda w, g: ((-w * g).sum(0).abs(), (-w * g).abs().sum(0)),
        "a loop": column_loop,
        "numpy": lambda w, g: (abs((w * g).numpy().sum(0)), numpy.abs((w * g).numpy()).sum(axis=0)),
        "gradient of a mask": taylor_of_a_mask,
        "transposed": lambda w, g: [(w.T * g.T).sum(1).abs(), (w.T * g.T).abs().sum(1)],
        "norms": lambda w, g: (((w * g).sum(0) ** 2).sqrt(), torch.linalg.vector_norm(w * g, ord=1, dim=0)),
    },
    "minitron.distil": {
        "kl_div with a batch": tracked(
            lambda s, t, tau: (
                tau**2
                * kl_div(
                    log_softmax(s / tau, -1).flatten(0, 1), softmax(t / tau, -1).flatten(0, 1), reduction="batchmean"
                )
            )
        ),
        "kl_div with a logarithmic target": tracked(
            lambda s, t, tau: (
                tau**2
                * kl_div(log_softmax(s / tau, -1), log_softmax(t / tau, -1), reduction="none", log_target=True)
                .sum(-1)
                .mean()
            )
        ),
        "on paper": by_formula(),
        "cross-entropy less entropy": tracked(
            lambda s, t, tau: (
                tau**2
                * (
                    cross_entropy((s / tau).flatten(0, 1), softmax(t / tau, -1).flatten(0, 1))
                    - torch.special.entr(softmax(t / tau, -1)).sum(-1).mean()
                )
            )
        ),
        "distributions": tracked(
            lambda s, t, tau: (
                tau**2
                * torch.distributions.kl_divergence(
                    torch.distributions.Categorical(logits=t / tau), torch.distributions.Categorical(logits=s / tau)
                ).mean()
            )
        ),
        "numpy": distil_in_numpy,
        "a loop": distil_in_a_loop,
    },
    "minitron.norm": {
        "two factors": narrower(),
        "math": lambda w, e, k: (math.sqrt(w.numel() / k.numel()) * w[k], e * w.numel() / k.numel()),
        "numpy": lambda w, e, k: (
            w.numpy()[k.numpy()] * numpy.sqrt(len(w) / len(k)),
            numpy.float64(e) / len(k) * len(w),
        ),
        "by trying it": by_trying_it,
        "shares": lambda w, e, k: [w.index_select(0, k) / (k.shape[0] / w.shape[0]) ** 0.5, e / (len(k) / len(w))],
        "tensors": lambda w, e, k: (w[k] * torch.tensor(len(w) / len(k)).sqrt(), torch.tensor(e * (len(w) / len(k)))),
    },
}

WRONG = {
    "minitron.group": {
        "h % G": block_cut(
            lambda each, size, groups, n: [
                h * size + i for h in range(each * n) if h % n in groups for i in range(size)
            ]
        ),
        "o by rows": block_cut(axes=OF_HEADS | OF_NEURONS | {"o": 0}),
        "down by rows": block_cut(axes=OF_HEADS | OF_NEURONS | {"down": 0}),
        "o and down by rows": block_cut(axes=OF_HEADS | OF_NEURONS | {"o": 0, "down": 0}),
        "everything transposed": block_cut(axes={name: 1 - axis for name, axis in (OF_HEADS | OF_NEURONS).items()}),
        "gate forgotten": block_cut(untouched=("gate",)),
        "up forgotten": block_cut(untouched=("up",)),
        "down forgotten": block_cut(untouched=("down",)),
        "o forgotten": block_cut(untouched=("o",)),
        "q and o forgotten": block_cut(untouched=("q", "o")),
        "v forgotten": block_cut(untouched=("v",)),
        "k and v forgotten": block_cut(untouched=("k", "v")),
        "MLP forgotten": block_cut(untouched=("gate", "up", "down")),
        "attention forgotten": block_cut(untouched=("q", "k", "v", "o")),
        "one query head a group": block_cut(
            lambda each, size, groups, n: [g * size + i for g in groups for i in range(size)]
        ),
        "the first query head of each group": block_cut(
            lambda each, size, groups, n: [g * each * size + i for g in groups for i in range(size)]
        ),
        "groups as rows": block_cut(lambda each, size, groups, n: groups, lambda size, groups, n: groups),
        "groups as rows of k": block_cut(key=lambda size, groups, n: groups),
        "heads as rows of q": block_cut(
            lambda each, size, groups, n: [g * each + i for g in groups for i in range(each)]
        ),
        "rows interleaved": block_cut(
            lambda each, size, groups, n: [i * n + g for g in groups for i in range(each * size)],
            lambda size, groups, n: [i * n + g for g in groups for i in range(size)],
        ),
        "the others": block_cut(
            lambda each, size, groups, n: query_rows(each, size, set(range(n)) - set(groups), n),
            lambda size, groups, n: [r for g in range(n) if g not in groups for r in range(g * size, (g + 1) * size)],
            neurons_of=lambda kept, f: torch.tensor(sorted(set(range(f)) - set(kept.tolist()))),
        ),
        "from the front": cut_from_the_front,
        "nothing": lambda *a: dict(zip(("q", "k", "v", "o", "gate", "up", "down"), a, strict=False)),
        "a list": lambda *a: list(cut_with_slices(*a).values()),
        "a head as wide as the width allows": cut_by_width,
        "k and v exchanged": lambda *a: (cut := block_cut()(*a)) | {"k": cut["v"], "v": cut["k"]},
        "down transposed": lambda *a: (cut := block_cut()(*a)) | {"down": cut["down"].T},
        "one neuron off": block_cut(neurons_of=lambda kept, f: (kept + 1) % f),
    },
    "minitron.count": {
        "untied": lambda *a: parameters(*a, tied=False),
        "all heads alike": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, h, s, v),
        "square attention": lambda w, n, f, h, g, s, v: v * w + n * (4 * w * w + 3 * w * f + 2 * w) + w,
        "width over heads": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, w // h, v),
        "q and o square": lambda w, n, f, h, g, s, v: v * w + n * (2 * w * w + 2 * w * g * s + 3 * w * f + 2 * w) + w,
        "no gate": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - n * w * f,
        "no o": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - n * w * h * s,
        "k without v": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - n * w * g * s,
        "no norms": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - (2 * n + 1) * w,
        "no last norm": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - w,
        "one norm each": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - n * w,
        "no embedding": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) - v * w,
        "one block": lambda w, n, f, h, g, s, v: parameters(w, 1, f, h, g, s, v),
        "everything times blocks": lambda w, n, f, h, g, s, v: n * parameters(w, 1, f, h, g, s, v),
        "biases": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) + n * (h * s + 2 * g * s + w + 2 * f + w),
        "attention without head size": lambda w, n, f, h, g, s, v: (
            v * w + n * (2 * w * (h + g) + 3 * w * f + 2 * w) + w
        ),
        "g heads in a group": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, h // g, s, v),
        "k and v for every query head of a group": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, h * g, s, v),
        "millions": lambda *a: parameters(*a) / 1e6,
        "untied without norms": lambda w, n, f, h, g, s, v: parameters(w, n, f, h, g, s, v) + v * w - (2 * n + 1) * w,
    },
    "minitron.aggregate": {
        "the paper's other order": lambda x: x.norm(dim=1).mean(dim=0),
        "axes of Megatron": lambda x: x.abs().mean(dim=0).norm(dim=0),
        "no absolute value": lambda x: x.mean(dim=1).norm(dim=0),
        "absolute value too late": lambda x: x.mean(dim=1).abs().square().sum(0).sqrt(),
        "norm of all": lambda x: x.flatten(0, 1).norm(dim=0),
        "root mean square of all": lambda x: x.square().mean(dim=(0, 1)).sqrt(),
        "mean of all": lambda x: x.abs().mean(dim=(0, 1)),
        "squares": lambda x: x.abs().mean(1).pow(2).sum(0),
        "norm first": lambda x: x.norm(dim=0).mean(dim=0),
        "squares first": lambda x: x.square().mean(1).norm(dim=0),
        "no norm": lambda x: x.abs().mean(1),
        "L1": lambda x: x.abs().mean(1).norm(p=1, dim=0),
        "largest norm": lambda x: x.abs().mean(1).norm(p=torch.inf, dim=0),
        "all neurons": lambda x: x.abs().mean(1).norm(),
        "over neurons": lambda x: x.abs().mean(dim=1).norm(dim=1),
        "a score a token": lambda x: x.abs().mean(-1).norm(dim=0),
        "largest token": lambda x: x.abs().max(dim=1).values.norm(dim=0),
        "last token": lambda x: x[:, -1].abs().norm(dim=0),
        "median": lambda x: x.abs().median(dim=1).values.norm(dim=0),
        "ReLU": lambda x: x.relu().mean(1).norm(dim=0),
        "variance": lambda x: x.var(dim=1, correction=0).norm(dim=0),
        "fraction of the sequence": lambda x: (x.abs().mean(1) / x.abs().mean(1).sum(1, keepdim=True)).norm(dim=0),
        "ranks": lambda x: x.abs().mean(1).norm(dim=0).argsort().argsort(),
        "negative": lambda x: -x.abs().mean(1).norm(dim=0),
    },
    "minitron.heads": {
        "best of all": heads_of_all,
        "by the remainder": lambda s, g, n, m: heads_by_loop(s, g, n, m, owner=lambda h: h % n),
        "lowest": lambda s, g, n, m: heads_by_loop(s, g, n, m, reverse=False),
        "no offset": lambda s, g, n, m: heads_by_loop(s, g, n, m, offset=False),
        "above a threshold": heads_above_a_threshold,
        "places of mean scores": heads_by_group_means,
        "one too far": lambda s, g, n, m: heads_by_loop(s, g, n, m) + 1,
        "as if cut already": lambda s, g, n, m: (
            heads_by_loop(s, g, n, m) - (g * (s.shape[1] // n - m)).repeat_interleave(m, dim=1)
        ),
        "groups renumbered": lambda s, g, n, m: torch.cat(
            [
                s.unflatten(1, (n, -1)).gather(1, g[..., None].expand(-1, -1, s.shape[1] // n)).topk(m).indices[:, i]
                + i * (s.shape[1] // n)
                for i in range(g.shape[1])
            ],
            dim=1,
        ),
        "as many as there are groups": lambda s, g, n, m: heads_by_loop(s, g, n, g.shape[1]),
        "whole groups": lambda s, g, n, m: heads_by_loop(s, g, n, s.shape[1] // n),
        "one each": lambda s, g, n, m: heads_by_loop(s, g, n, 1),
        "all groups": lambda s, g, n, m: heads_by_loop(s, torch.arange(n).repeat(len(s), 1), n, m),
        "first groups": lambda s, g, n, m: heads_by_loop(s, torch.arange(g.shape[1]).repeat(len(s), 1), n, m),
        "first block's groups": lambda s, g, n, m: heads_by_loop(s, g[:1].expand(g.shape), n, m),
        "first block's scores": lambda s, g, n, m: heads_by_loop(s[:1].expand(s.shape), g, n, m),
        "mean over blocks": lambda s, g, n, m: heads_by_loop(s.mean(0).expand(s.shape), g, n, m),
        "absolute values": lambda s, g, n, m: heads_by_loop(s.abs(), g, n, m),
        "order of scores": lambda s, g, n, m: torch.stack(
            [row[score[row].argsort(descending=True)] for row, score in zip(heads_by_loop(s, g, n, m), s, strict=True)]
        ),
        "group by group turned": (
            lambda s, g, n, m: heads_by_loop(s, g, n, m).unflatten(1, (-1, m)).mT.flatten(1),
            "groups alternate",
        ),
        "the groups": lambda s, g, n, m: g,
        "a mask": lambda s, g, n, m: torch.zeros(s.shape).scatter(1, heads_by_loop(s, g, n, m), 1.0) > 0,
        "three axes": lambda s, g, n, m: heads_by_loop(s, g, n, m).reshape(len(s), -1, m),
        "one list": lambda s, g, n, m: heads_by_loop(s, g, n, m).flatten(),
        "best of the groups that stay": lambda s, g, n, m: (
            s.masked_fill(~(torch.arange(s.shape[1])[None, :, None] * n // s.shape[1] == g[:, None]).any(2), -torch.inf)
            .topk(m * g.shape[1])
            .indices.sort(1)
            .values
        ),
    },
    "minitron.influence": {
        "cosine": lambda s: cosine_similarity(s[:-1], s[1:], dim=-1).mean(-1),
        "minus cosine": lambda s: -cosine_similarity(s[:-1], s[1:], dim=-1).mean(-1),
        "means first": lambda s: 1 - cosine_similarity(s[:-1].mean(1), s[1:].mean(1), dim=-1),
        "sums first": lambda s: 1 - cosine_similarity(s[:-1].sum(1), s[1:].sum(1), dim=-1),
        "default axis": lambda s: 1 - cosine_similarity(s[:-1], s[1:]).mean(-1),
        "axis of blocks": lambda s: 1 - cosine_similarity(s[:-1], s[1:], dim=0).mean(),
        "flattened": lambda s: 1 - cosine_similarity(s[:-1].flatten(1), s[1:].flatten(1), dim=1),
        "no norms": lambda s: 1 - (s[:-1] * s[1:]).sum(-1).mean(-1),
        "one norm": lambda s: (1 - (s[:-1] * s[1:]).sum(-1) / s[:-1].norm(dim=-1) ** 2).mean(-1),
        "distance": lambda s: (s[1:] - s[:-1]).norm(dim=-1).mean(-1),
        "relative distance": lambda s: ((s[1:] - s[:-1]).norm(dim=-1) / s[:-1].norm(dim=-1)).mean(-1),
        "what is added": lambda s: 1 - cosine_similarity(s[:-1], s.diff(dim=0), dim=-1).mean(-1),
        "from the first": lambda s: 1 - cosine_similarity(s[:1], s[1:], dim=-1).mean(-1),
        "with itself": lambda s: 1 - cosine_similarity(s[1:], s[1:], dim=-1).mean(-1),
        "two blocks on": lambda s: 1 - cosine_similarity(s[:-1], s.roll(-2, 0)[:-1], dim=-1).mean(-1),
        "angle": lambda s: cosine_similarity(s[:-1], s[1:], dim=-1).clamp(-1, 1).arccos().mean(-1),
        "sum": lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=-1)).sum(-1),
        "last token": lambda s: 1 - cosine_similarity(s[:-1, -1], s[1:, -1], dim=-1),
        "without the first token": lambda s: (
            (1 - cosine_similarity(s[:-1], s[1:], dim=-1))[:, 1:].mean(-1)
            if s.shape[1] > 1
            else turned(s[:-1], s[1:])[:, 0] * 0
        ),
        "by token": lambda s: 1 - cosine_similarity(s[:-1], s[1:], dim=-1),
        "one number": lambda s: 1 - cosine_similarity(s[:-1], s[1:], dim=-1).mean(),
        "absolute cosine": lambda s: (1 - cosine_similarity(s[:-1], s[1:], dim=-1).abs()).mean(-1),
        "centred": lambda s: turned(*(x - x.mean(-1, keepdim=True) for x in (s[:-1], s[1:]))).mean(-1),
        "half": lambda s: turned(s[:-1], s[1:]).mean(-1) / 2,
        "weighted by size": lambda s: (turned(s[:-1], s[1:]) * s[:-1].norm(dim=-1)).sum(1) / s[:-1].norm(dim=-1).sum(1),
    },
    "minitron.taylor": {
        "rows": lambda w, g: ((w * g).sum(1).abs(), (w * g).abs().sum(1)),
        "swapped": lambda w, g: ((w * g).abs().sum(0), (w * g).sum(0).abs()),
        "sizes twice": lambda w, g: ((w * g).abs().sum(0), (w * g).abs().sum(0)),
        "sums twice": lambda w, g: ((w * g).sum(0).abs(), (w * g).sum(0).abs()),
        "with a sign": lambda w, g: ((w * g).sum(0), (w * g).abs().sum(0)),
        "loss after less loss before": lambda w, g: ((-w * g).sum(0), (-w * g).abs().sum(0)),
        "g squared": lambda w, g: ((w * g * g).sum(0).abs(), (w * g * g).abs().sum(0)),
        "w squared": lambda w, g: ((w * w * g).sum(0).abs(), (w * w * g).abs().sum(0)),
        "both squared": lambda w, g: (((w * g) ** 2).sum(0), ((w * g) ** 2).sum(0)),
        "weights": lambda w, g: (w.sum(0).abs(), w.abs().sum(0)),
        "gradients": lambda w, g: (g.sum(0).abs(), g.abs().sum(0)),
        "norms": lambda w, g: (w.norm(dim=0) * g.norm(dim=0), w.norm(dim=0) * g.norm(dim=0)),
        "sums first": lambda w, g: ((w.sum(0) * g.sum(0)).abs(), w.abs().sum(0) * g.abs().sum(0)),
        "mean": lambda w, g: ((w * g).mean(0).abs(), (w * g).abs().mean(0)),
        "norm of changes": lambda w, g: ((w * g).sum(0).abs(), (w * g).norm(dim=0)),
        "every weight": lambda w, g: ((w * g).abs(), (w * g).abs()),
        "the first alone": lambda w, g: (w * g).sum(0).abs(),
        "half": lambda w, g: ((w * g).sum(0).abs() / 2, (w * g).abs().sum(0) / 2),
        "with a second term": lambda w, g: (
            (w * g - (w * g) ** 2 / 2).sum(0).abs(),
            (w * g - (w * g) ** 2 / 2).abs().sum(0),
        ),
        "size of the weight times the gradient": lambda w, g: ((w.abs() * g).sum(0).abs(), (w.abs() * g).abs().sum(0)),
        "all neurons": lambda w, g: ((w * g).sum().abs(), (w * g).abs().sum()),
        "a step instead": lambda w, g: ((w - g).sum(0).abs(), (w - g).abs().sum(0)),
        "quotient": lambda w, g: ((g / w.where(w != 0, 1)).sum(0).abs(), (g / w.where(w != 0, 1)).abs().sum(0)),
        "largest": lambda w, g: ((w * g).sum(0).abs(), (w * g).abs().amax(0)),
        "product of matrices": lambda w, g: ((w.T @ g).sum(0).abs(), (w.T @ g).abs().sum(0)),
    },
    "minitron.distil": {
        "reversed": tracked(
            lambda s, t, tau: (
                tau**2 * kl_div(log_softmax(t / tau, -1), softmax(s / tau, -1), reduction="none").sum(-1).mean()
            )
        ),
        "mean": tracked(
            lambda s, t, tau: tau**2 * kl_div(log_softmax(s / tau, -1), softmax(t / tau, -1), reduction="mean")
        ),
        "batchmean": tracked(
            lambda s, t, tau: tau**2 * kl_div(log_softmax(s / tau, -1), softmax(t / tau, -1), reduction="batchmean")
        ),
        "sum": tracked(
            lambda s, t, tau: tau**2 * kl_div(log_softmax(s / tau, -1), softmax(t / tau, -1), reduction="sum")
        ),
        "no square of the temperature": by_formula(
            lambda p, q, log_p, log_q, n, t: (p * (log_p - log_q)).sum() / n, lambda p, q, n, t: (q - p) / n / t
        ),
        "the temperature once": by_formula(
            lambda p, q, log_p, log_q, n, t: t * (p * (log_p - log_q)).sum() / n, lambda p, q, n, t: (q - p) / n
        ),
        "student as it is": tracked(
            lambda s, t, tau: tau**2 * kl_div(log_softmax(s, -1), softmax(t / tau, -1), reduction="none").sum(-1).mean()
        ),
        "no temperature": tracked(
            lambda s, t, tau: kl_div(log_softmax(s, -1), softmax(t, -1), reduction="none").sum(-1).mean()
        ),
        "temperature times logits": tracked(
            lambda s, t, tau: (
                tau**2 * kl_div(log_softmax(s * tau, -1), softmax(t * tau, -1), reduction="none").sum(-1).mean()
            )
        ),
        "soft cross-entropy": tracked(
            lambda s, t, tau: -(tau**2) * (softmax(t / tau, -1) * log_softmax(s / tau, -1)).sum(-1).mean()
        ),
        "hard labels": tracked(lambda s, t, tau: cross_entropy(s.flatten(0, 1), t.flatten(0, 1).argmax(-1))),
        "squared logits": tracked(lambda s, t, tau: ((s - t) ** 2).mean()),
        "squared probabilities": tracked(
            lambda s, t, tau: ((softmax(s / tau, -1) - softmax(t / tau, -1)) ** 2).sum(-1).mean()
        ),
        "over tokens": tracked(
            lambda s, t, tau: (
                tau**2 * kl_div(log_softmax(s / tau, 1), softmax(t / tau, 1), reduction="none").sum(1).mean()
            )
        ),
        "softmax for kl_div": tracked(
            lambda s, t, tau: (
                tau**2 * kl_div(softmax(s / tau, -1), softmax(t / tau, -1), reduction="none").sum(-1).mean()
            )
        ),
        "logarithms for both": tracked(
            lambda s, t, tau: (
                tau**2 * kl_div(log_softmax(s / tau, -1), log_softmax(t / tau, -1), reduction="none").sum(-1).mean()
            )
        ),
        "logarithms of softmax": tracked(
            lambda s, t, tau: (
                tau**2
                * (softmax(t / tau, -1) * (softmax(t / tau, -1).log() - softmax(s / tau, -1).log())).sum(-1).mean()
            )
        ),
        "Jensen and Shannon": tracked(
            lambda s, t, tau: (
                tau**2 * (by_formula()(s, (s + t) / 2, tau)[0] / 2 + by_formula()((s + t) / 2, t, tau)[0] / 2)
            )
        ),
        "gradient downhill": by_formula(gradient=lambda p, q, n, t: t * (p - q) / n),
        "gradient without the mean": by_formula(gradient=lambda p, q, n, t: t * (q - p)),
        "gradient without the chain rule": by_formula(gradient=lambda p, q, n, t: t * t * (q - p) / n),
        "gradient as in the textbook": by_formula(gradient=lambda p, q, n, t: q - p),
        "half": by_formula(lambda p, q, log_p, log_q, n, t: t * t * (p * (log_p - log_q)).sum() / n / 2),
        "small numbers added": tracked(
            lambda s, t, tau: (
                tau**2
                * (softmax(t / tau, -1) * ((softmax(t / tau, -1) + 1e-8).log() - (softmax(s / tau, -1) + 1e-8).log()))
                .sum(-1)
                .mean()
            )
        ),
        "gradient of logits": lambda s, t, tau: (by_formula()(s, t, tau)[0], s - t),
        "gradient in the probabilities": by_formula(gradient=lambda p, q, n, t: -t * t * p / q.clamp(min=1e-12) / n),
        "loss alone": lambda s, t, tau: by_formula()(s, t, tau)[0],
        "the other way round": lambda s, t, tau: by_formula()(s, t, tau)[::-1],
        "minus": by_formula(lambda p, q, log_p, log_q, n, t: t * t * (p * (log_q - log_p)).sum() / n),
    },
    "minitron.norm": {
        "upside down": narrower(-0.5, -1.0),
        "weight upside down": narrower(-0.5, 1.0),
        "weight upside down alone": narrower(-0.5, 0.0),
        "nothing": lambda w, e, k: (w[k], e),
        "weight alone": narrower(0.5, 0.0),
        "epsilon alone": narrower(0.0, 1.0),
        "no root": narrower(1.0, 1.0),
        "no root, upside down": narrower(-1.0, -1.0),
        "roots of both": narrower(0.5, 0.5),
        "squares": narrower(1.0, 2.0),
        "all channels": lambda w, e, k: (w * (len(w) / len(k)) ** 0.5, e * len(w) / len(k)),
        "first channels": lambda w, e, k: (w[: len(k)] * (len(w) / len(k)) ** 0.5, e * len(w) / len(k)),
        "share that leaves": narrower(ratio=lambda w, k: len(w) / max(len(w) - len(k), 1)),
        "share that stays from one": narrower(ratio=lambda w, k: 2 - len(k) / len(w)),
        "norm of the weights": narrower(0.5, 1.0, lambda w, k: float(w.norm() / w[k].norm()) ** 2),
        "norm of the weights, epsilon as it was": lambda w, e, k: (w[k] * w.norm() / w[k].norm(), e),
        "the factors": lambda w, e, k: (math.sqrt(len(w) / len(k)), len(w) / len(k)),
        "weight only": lambda w, e, k: w[k] * math.sqrt(len(w) / len(k)),
        "the other way round": lambda w, e, k: narrower()(w, e, k)[::-1],
        "one taken for the other": lambda w, e, k: (w[k] * len(w) / len(k), e * math.sqrt(len(w) / len(k))),
        "zeros instead of a cut": lambda w, e, k: (
            torch.zeros_like(w).index_copy(0, k, w[k] * math.sqrt(len(w) / len(k))),
            e * len(w) / len(k),
        ),
        "a mean of one": lambda w, e, k: (w[k] / w[k].mean(), e),
    },
}
