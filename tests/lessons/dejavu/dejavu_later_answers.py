"""Answers to the later exercises of lesson 09, on predictions, missing keys and when it pays, as people write them.

Dimension key: T tokens, F neurons, D width, L blocks, N tokens in a cache, M of them without a key, d size of a head.
"""

import numpy
import torch
from torch.nn.functional import linear, pad

# --- recall: hidden (T, F), down (D, F), active (T, F), keep (T, F) ---


def recall_of(active, keep):
    return (active * keep).sum() / active.sum()


def energy_of(hidden, down, keep):
    e = (hidden * torch.linalg.vector_norm(down, dim=0)) ** 2
    return (e * keep).sum() / e.sum()


def both(recall=None, energy=None):
    def answer(h, d, a, k):
        return (recall or recall_of)(a, k), (energy or energy_of)(h, d, k)

    return answer


def recall_in_numpy(hidden, down, active, keep):
    h, w, a, k = (x.numpy() for x in (hidden, down, active, keep))
    e = numpy.einsum("tf,df->tf", h.astype(float) ** 2, w.astype(float) ** 2)
    return numpy.count_nonzero(a & k) / numpy.count_nonzero(a), e[k].sum() / e.sum()


def recall_in_loops(hidden, down, active, keep):
    lengths = [sum(w * w for w in column) for column in down.T.tolist()]
    hits = wanted = 0
    kept = lost = 0.0
    for h_row, a_row, k_row in zip(hidden.tolist(), active.tolist(), keep.tolist(), strict=True):
        for h, a, k, n in zip(h_row, a_row, k_row, lengths, strict=True):
            wanted += a
            hits += a and k
            if k:
                kept += h * h * n
            else:
                lost += h * h * n
    return hits / wanted, kept / (kept + lost)


def recall_by_vectors(hidden, down, active, keep):
    """Every neuron's vector written out."""
    parts = torch.einsum("tf,df->tfd", hidden, down).pow(2).sum(-1)
    return torch.sum(keep[active]) / torch.sum(active), parts.masked_select(keep).sum() / parts.sum()


def recall_token_by_token(skip_empty):
    def answer(hidden, down, active, keep):
        recalls, energies = [], []
        norms = down.norm(dim=0)
        for h, a, k in zip(hidden, active, keep, strict=True):
            if skip_empty and not a.any():
                continue
            e = (h * norms) ** 2
            recalls.append((a & k).sum() / a.sum() if a.any() else torch.tensor(0.0))
            energies.append(e[k].sum() / e.sum() if e.sum() > 0 else torch.tensor(0.0))
        return torch.stack(recalls).mean(), torch.stack(energies).mean()

    return answer


# --- lookahead: stream (2L + 1, T, D), active (L, T, F), ahead ---


def pairs_in_a_loop(place=lambda b, n: 2 * b + 1, target=lambda b, n: b + n, first=0, last=None):
    """Of the pairs, number b: what is read at which place, and which block is predicted."""

    def answer(stream, active, ahead):
        x, y = [], []
        for b in range(first, len(active) - ahead if last is None else last(len(active), ahead)):
            x.append(stream[place(b, ahead)])
            y.append(active[target(b, ahead)])
        return torch.stack(x), torch.stack(y)

    return answer


def pairs_by_reshaping(stream, active, ahead):
    """The embedding cut off, two places to a block."""
    after_attention = stream[1:].unflatten(0, (-1, 2))[:, 0]
    return torch.split(after_attention, [len(active) - ahead, ahead])[0], active[ahead:]


def pairs_with_none(stream, active, ahead):
    reads = [stream[i] for i in range(len(stream)) if i % 2 == 1]
    return (reads[:-ahead] if ahead else reads), list(active[ahead:])


def pairs_in_numpy(stream, active, ahead):
    blocks = numpy.arange(ahead, active.shape[0])
    return stream.numpy()[2 * (blocks - ahead) + 1], active.numpy()[blocks]


def mlp_reads(stream):
    return stream[1::2]


# --- missing: keys, values (N, d), position (N,), missing (M,), stored (M, D), matrices (d, D), cos, sin (P, d) ---


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def rope(x, cos, sin):
    return x * cos + rotate_half(x) * sin


def complete_in_a_loop(x=None, p=None, turned=rope, value=lambda v, cos, sin: v, put=None, wk=5, wv=6):
    """Token by token. x, p, put: which input, which position, which row, of (i, position, missing, stored)."""

    def answer(*given):
        keys, values, position, missing, stored = given[:5]
        cos, sin = given[7:]
        for i in range(len(missing)):
            read = x(i, position, missing, stored) if x else stored[i]
            at = p(i, position, missing, stored) if p else position[missing[i]]
            row = put(i, position, missing, stored) if put else missing[i]
            keys[row] = turned(given[wk] @ read, cos[at], sin[at])
            values[row] = value(given[wv] @ read, cos[at], sin[at])
        return keys, values

    return answer


def complete_by_scatter(keys, values, position, missing, stored, wk, wv, cos, sin):
    """All positions' angles, and rows put by scatter."""
    c, s = cos[position][missing], sin[position][missing]
    rows = missing[:, None].expand(-1, keys.shape[1])
    return (
        keys.scatter(0, rows, rope(linear(stored, wk), c, s)),
        values.scatter(0, rows, linear(stored, wv)),
    )


def complete_with_full_inputs(keys, values, position, missing, stored, wk, wv, cos, sin):
    """An input for every token, zero where there is none, and a mask."""
    x = torch.zeros(len(keys), stored.shape[1], dtype=stored.dtype)
    x[missing] = stored
    gone = torch.zeros(len(keys), 1, dtype=torch.bool)
    gone[missing] = True
    made = rope(x @ wk.T, cos[position], sin[position])
    return torch.where(gone, made, keys), torch.where(gone, x @ wv.T, values)


def complete_in_numpy(keys, values, position, missing, stored, wk, wv, cos, sin):
    k, v, at = keys.double().numpy(), values.double().numpy(), position[missing].numpy()
    made = stored.double().numpy() @ wk.double().numpy().T
    a, b = numpy.split(made, 2, axis=1)
    half = a.shape[1]
    c, s = cos.double().numpy()[at, :half], sin.double().numpy()[at, :half]
    k[missing.numpy()] = numpy.concatenate([a * c - b * s, b * c + a * s], axis=1)
    v[missing.numpy()] = stored.double().numpy() @ wv.double().numpy().T
    return k, v


def everything_anew(keys, values, position, missing, stored, wk, wv, cos, sin):
    """All rows computed again from inputs of which most are zero."""
    x = torch.zeros(len(keys), stored.shape[1], dtype=stored.dtype)
    x[missing] = stored
    return rope(x @ wk.T, cos[position], sin[position]), x @ wv.T


# --- break_even: width, neurons, blocks, rank, others, density, gather, prompt, n_tokens ---


def pays(token=None, whole=None, even=None, mlp=None, predictor=None, kept=None, others=lambda o, s, g: o):
    """Written out, with something else in some places."""

    def answer(d, f, b, r, o, s, g, p, n):
        m = (mlp or (lambda d, f, b: 3 * d * f * b))(d, f, b)
        q = (predictor or (lambda d, f, b, r, s, g: b * (d * r + r * f)))(d, f, b, r, s, g)
        t_dense = m + o
        t_sparse = (kept or (lambda m, s, g: m * s * g))(m, s, g) + q + others(o, s, g)
        faster = (token or (lambda dense, sparse: dense / sparse))(t_dense, t_sparse)
        total = (whole or (lambda p, n, dense, sparse: (p * dense + n * dense) / (p * dense + n * sparse)))(
            p, n, t_dense, t_sparse
        )
        return faster, total, (even or (lambda m, q, o, g: max(0, (m - q) / (m * g))))(m, q, o, g)

    return answer


def pays_by_bisection(d, f, b, r, o, s, g, p, n):
    """The break-even found by halving an interval."""

    def seconds(density):
        return 3 * d * f * b * density * g + r * (d + f) * b + o

    dense = 3 * d * f * b + o
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if seconds(middle) < dense else (low, middle)
    token = dense / seconds(s)
    return token, (p + n) / (p + n / token), low


def pays_block_by_block(d, f, b, r, o, s, g, p, n):
    dense = sparse = float(o)
    for _ in range(b):
        dense += 3 * d * f
        sparse += 3 * d * f * s * g + d * r + r * f
    saved = 1 - r / (3 * f) - r / (3 * d)
    answer = torch.tensor([p * dense, n * dense, n * sparse], dtype=torch.float64)
    return dense / sparse, answer[:2].sum() / answer[::2].sum(), saved / g if saved > 0 else 0


RIGHT = {
    "dejavu.recall": {
        "numpy": recall_in_numpy,
        "loops": recall_in_loops,
        "vectors": recall_by_vectors,
        "matrix products": lambda h, d, a, k: (
            a.float().flatten() @ k.float().flatten() / a.sum(),
            ((h.square() * k) @ d.square().sum(0)).sum() / (h.square() @ d.square().sum(0)).sum(),
        ),
        "what is left": lambda h, d, a, k: (1 - recall_of(a, ~k), 1 - energy_of(h, d, ~k)),
        "float64": lambda h, d, a, k: both()(h.double(), d.double(), a, k),
    },
    "dejavu.lookahead": {
        "loop": pairs_in_a_loop(),
        "reshaped": pairs_by_reshaping,
        "no slice for none": pairs_with_none,
        "numpy": pairs_in_numpy,
        "indices": lambda s, a, n: (s[torch.arange(1, 2 * (len(a) - n), 2)], a[n:].clone()),
        "zip": lambda s, a, n: tuple(map(torch.stack, zip(*zip(mlp_reads(s), a[n:], strict=False), strict=True))),
    },
    "dejavu.missing": {
        "loop": complete_in_a_loop(),
        "scatter": complete_by_scatter,
        "full inputs": complete_with_full_inputs,
        "numpy": complete_in_numpy,
        "lists of rows": lambda *g: tuple(list(x) for x in complete_in_a_loop()(*g)),
    },
    "dejavu.break_even": {
        "written out": pays(),
        "bisection": pays_by_bisection,
        "block by block": pays_block_by_block,
        "rational": pays(
            whole=lambda p, n, dense, sparse: 1 / ((p + n * sparse / dense) / (p + n)),
            even=lambda m, q, o, g: torch.tensor(1 / g - q / m / g).clamp(min=0).item(),
        ),
        "as a list": lambda *g: list(pays()(*g)),
    },
}

WRONG = {
    "dejavu.recall": {
        "precision": (both(lambda a, k: (a * k).sum() / k.sum()), "precision"),
        "accuracy": (both(lambda a, k: (a == k).float().mean()), "accuracy"),
        "a token at a time": (recall_token_by_token(False), "mean of ratios"),
        "a token at a time, none skipped": (recall_token_by_token(True), "mean of ratios"),
        "recall a token": (both(lambda a, k: ((a & k).sum(1) / a.sum(1).clamp(min=1)).mean()), "mean of ratios"),
        "energy a token": (
            both(
                energy=lambda h, d, k: (lambda e: ((e * k).sum(1) / (e.sum(1) + 1e-9)).mean())((h * d.norm(dim=0)) ** 2)
            ),
            "mean of ratios",
        ),
        "recall a neuron": (both(lambda a, k: (a & k).sum(0).div(a.sum(0)).nanmean()), "mean of ratios"),
        "lengths": (
            both(energy=lambda h, d, k: (lambda e: e[k].sum() / e.sum())(h.abs() * d.norm(dim=0))),
            "unsquared",
        ),
        "signed lengths": (
            both(energy=lambda h, d, k: (lambda e: e[k].sum() / e.sum())(h * d.norm(dim=0))),
            "signed and unsquared",
        ),
        "h squared": (
            both(energy=lambda h, d, k: h[k].pow(2).sum() / h.pow(2).sum()),
            "without the norms of the columns",
        ),
        "h squared, norm not": (
            both(energy=lambda h, d, k: (lambda e: e[k].sum() / e.sum())(h**2 * d.norm(dim=0))),
            "half squared",
        ),
        "rows of down": (
            both(energy=lambda h, d, k: (lambda e: e[k].sum() / e.sum())((h * d.norm(dim=1)) ** 2)),
            "norm over the wrong axis",
        ),
        "the output": (
            both(energy=lambda h, d, k: ((h * k) @ d.T).norm() ** 2 / (h @ d.T).norm() ** 2),
            "length of the sum",
        ),
        "the output, not squared": (
            both(energy=lambda h, d, k: ((h * k) @ d.T).norm() / (h @ d.T).norm()),
            "length of the sum",
        ),
        "mean length of the output": both(
            energy=lambda h, d, k: (((h * k) @ d.T).norm(dim=1) / (h @ d.T).norm(dim=1).clamp(min=1e-9)).mean()
        ),
        "hits in energy": (
            lambda h, d, a, k: (recall_of(a, k), energy_of(h, d, k & a)),
            "energy of the active ones",
        ),
        "active by hand": (lambda h, d, a, k: (recall_of(h > 0, k), energy_of(h, d, k)), "active redefined"),
        "lost": (lambda h, d, a, k: (1 - recall_of(a, k), 1 - energy_of(h, d, k)), "what is missed"),
        "mean of the hits": (both(lambda a, k: (a & k).float().mean()), "divided by all neurons"),
        "overlap": (both(lambda a, k: (a & k).sum() / (a | k).sum()), "a mixture with precision"),
        "F1": (both(lambda a, k: 2 * (a & k).sum() / (a.sum() + k.sum())), "a mixture with precision"),
        "number kept": (both(lambda a, k: k.sum() / a.sum()), "how many, not which"),
        "precision and lengths": both(
            lambda a, k: (a & k).sum() / k.sum(),
            lambda h, d, k: (lambda e: e[k].sum() / e.sum())(h.abs() * d.norm(dim=0)),
        ),
        "specificity": both(lambda a, k: (~a & ~k).sum() / (~a).sum()),
        "largest energy": both(energy=lambda h, d, k: (lambda e: (e * k).amax() / e.amax())((h * d.norm(dim=0)) ** 2)),
        "energy alone": (lambda h, d, a, k: energy_of(h, d, k), "one of the two, or the other way round"),
        "a token each": (
            lambda h, d, a, k: (
                (a & k).sum(1) / a.sum(1),
                ((h * d.norm(dim=0)).square() * k).sum(1) / (h * d.norm(dim=0)).square().sum(1),
            ),
            "one per token",
        ),
    },
    "dejavu.lookahead": {
        "own": (pairs_in_a_loop(place=lambda b, n: 2 * (b + n) + 1), "the block's own input"),
        "own, by slices": (lambda s, a, n: (mlp_reads(s)[n:], a[n:]), "the block's own input"),
        "labels not moved": (pairs_in_a_loop(target=lambda b, n: b), "the block's own input"),
        "everything as it is": (lambda s, a, n: (mlp_reads(s), a), "the block's own input"),
        "outputs": (pairs_in_a_loop(place=lambda b, n: 2 * b + 2), "what the MLP gives"),
        "even places": (pairs_in_a_loop(place=lambda b, n: 2 * b), "what the attention reads"),
        "hidden states": (lambda s, a, n: (s[::2][: len(a) - n], a[n:]), "what the attention reads"),
        "consecutive places": (lambda s, a, n: (s[1 : len(a) - n + 1], a[n:]), "not every place is an MLP's"),
        "embedding": (
            lambda s, a, n: (s[0].expand(len(a) - n, -1, -1), a[n:]),
            "the embedding",
        ),
        "first MLP": (pairs_in_a_loop(place=lambda b, n: 1), "the first block for all"),
        "from block 1": (pairs_in_a_loop(target=lambda b, n: b + n + 1, last=lambda size, n: size - n - 1), None),
        "one late": pairs_in_a_loop(place=lambda b, n: 2 * b + 3, last=lambda size, n: size - max(n, 1)),
        "places for blocks": (lambda s, a, n: (s[: len(a) - n], a[n:]), "half a block for a block"),
        "half as far": (pairs_in_a_loop(place=lambda b, n: 2 * (b + n) + 1 - n), "half a block for a block"),
        "the other way": (
            lambda s, a, n: (mlp_reads(s)[n:], a[: len(a) - n]),
            "a later block predicts an earlier one",
        ),
        "clamped": (
            lambda s, a, n: (torch.stack([mlp_reads(s)[max(b - n, 0)] for b in range(len(a))]), a),
            "the first blocks too",
        ),
        "negative index": (
            lambda s, a, n: (torch.stack([mlp_reads(s)[b - n] for b in range(len(a))]), a),
            "wrapped around",
        ),
        "roll": (lambda s, a, n: (torch.roll(mlp_reads(s), n, 0), a), "wrapped around"),
        "padded": (lambda s, a, n: (pad(mlp_reads(s), (0, 0, 0, 0, n, 0))[: len(a)], a), "zeros for the first blocks"),
        "next tokens": (
            lambda s, a, n: (mlp_reads(s)[:, : s.shape[1] - n], a[:, n:]),
            "tokens for blocks",
        ),
        "minus n": (lambda s, a, n: (mlp_reads(s)[:-n], a[n:]), "nothing for n = 0"),
        "both cut from the end": lambda s, a, n: (mlp_reads(s)[:-n], a[:-n]),
        "all places": (lambda s, a, n: (s[: len(s) - 2 * n], a[n:]), "not every place is an MLP's"),
        "always one": pairs_in_a_loop(place=lambda b, n: 2 * (b + n) - 1, first=1, last=lambda size, n: size - n),
        "flattened": (
            lambda s, a, n: (mlp_reads(s)[: len(a) - n].flatten(0, 1), a[n:].flatten(0, 1)),
            "all blocks together",
        ),
        "labels first": (
            lambda s, a, n: (a[n:], mlp_reads(s)[: len(a) - n]),
            "one of the two, or the other way round",
        ),
        "a mean of what came before": lambda s, a, n: (
            torch.stack([s[: 2 * b + 2].mean(0) for b in range(len(a) - n)]),
            a[n:],
        ),
    },
    "dejavu.missing": {
        "today": (complete_in_a_loop(x=lambda i, p, m, s: s[-1]), "computed from the newest input"),
        "today at today's place": (
            complete_in_a_loop(x=lambda i, p, m, s: s[-1], p=lambda i, p, m, s: p[-1]),
            "computed from the newest input",
        ),
        "today's position": (complete_in_a_loop(p=lambda i, p, m, s: p[-1]), "rotated to the newest position"),
        "length of the text": (complete_in_a_loop(p=lambda i, p, m, s: p[-1] + 1), "rotated to the newest position"),
        "as it is": (lambda *g: g[:2], "left as it was"),
        "zero": (
            lambda k, v, p, m, *_: tuple(x.index_fill(0, m, 0.0) for x in (k, v)),
            "zeros",
        ),
        "no rotation": (complete_in_a_loop(turned=lambda k, cos, sin: k), "not rotated"),
        "distance": (complete_in_a_loop(p=lambda i, p, m, s: p[-1] - p[m[i]]), "rotated by the distance"),
        "row": (complete_in_a_loop(p=lambda i, p, m, s: m[i]), "the row for the position"),
        "number of the missing": (complete_in_a_loop(p=lambda i, p, m, s: i), "positions renumbered"),
        "position[i]": (complete_in_a_loop(p=lambda i, p, m, s: p[i]), "positions renumbered"),
        "one early": (complete_in_a_loop(p=lambda i, p, m, s: p[m[i]] - 1), "one position off"),
        "both turned": (complete_in_a_loop(value=rope), "the value rotated too"),
        "newest only": (
            lambda k, v, p, m, s, *g: complete_in_a_loop()(k, v, p, m[-1:], s[-1:], *g),
            "only one of the missing",
        ),
        "old ones only": (
            lambda k, v, p, m, s, *g: complete_in_a_loop()(k, v, p, m[:-1], s[:-1], *g),
            "the newest left out",
        ),
        "row i": (complete_in_a_loop(put=lambda i, p, m, s: i), "put into other rows"),
        "cat": (
            lambda k, v, p, m, s, wk, wv, cos, sin: (
                torch.cat([k, rope(s @ wk.T, cos[p[m]], sin[p[m]])]),
                torch.cat([v, s @ wv.T]),
            ),
            "appended",
        ),
        "made ones": (
            lambda k, v, p, m, s, wk, wv, cos, sin: (rope(s @ wk.T, cos[p[m]], sin[p[m]]), s @ wv.T),
            "the computed ones alone",
        ),
        "all turned": (
            lambda k, v, p, *g: (lambda keys, values: (keys, values))(
                *complete_in_a_loop()(rope(k, g[-2][p], g[-1][p]), v, p, *g)
            ),
            "rotated once more",
        ),
        "put first, then all turned": lambda k, v, p, m, s, wk, wv, cos, sin: (
            rope(k.index_copy(0, m, s @ wk.T), cos[p], sin[p]),
            v.index_copy(0, m, s @ wv.T),
        ),
        "matrices exchanged": (complete_in_a_loop(wk=6, wv=5), "key and value matrix exchanged"),
        "no transpose": (
            lambda k, v, p, m, s, wk, wv, cos, sin: (
                k.index_copy(0, m, rope(s @ wk, cos[p[m]], sin[p[m]])),
                v.index_copy(0, m, s @ wv),
            ),
            "not transposed",
        ),
        "other sign": (complete_in_a_loop(turned=lambda k, c, s: k * c - rotate_half(k) * s), "rotated backwards"),
        "GPT-J": complete_in_a_loop(turned=lambda k, c, s: k * c + torch.stack([-k[1::2], k[::2]], 1).flatten() * s),
        "swapped halves": (complete_in_a_loop(turned=lambda k, c, s: k * c + k.roll(len(k) // 2) * s), "no minus"),
        "cosine alone": (complete_in_a_loop(turned=lambda k, c, s: k * c), "no sine"),
        "sine alone": complete_in_a_loop(turned=lambda k, c, s: rotate_half(k) * s),
        "everything again": (everything_anew, "existing rows changed"),
        "in the order of the newest first": (
            complete_in_a_loop(put=lambda i, p, m, s: m[len(m) - 1 - i]),
            None,
        ),
        "added to what was there": lambda *g: tuple(
            new + old.index_fill(0, torch.tensor([i for i in range(len(old)) if i not in g[3]], dtype=torch.long), 0.0)
            for new, old in zip(complete_in_a_loop()(g[0].clone(), g[1].clone(), *g[2:]), g[:2], strict=True)
        ),
        "keys alone": (lambda *g: complete_in_a_loop()(*g)[0], "one of the two, or the other way round"),
    },
    "dejavu.break_even": {
        "no predictor": (pays(predictor=lambda *g: 0), "predictor forgotten"),
        "no predictor in the break-even": (pays(even=lambda m, q, o, g: 1 / g), "predictor forgotten"),
        "1 / density": (
            lambda d, f, b, r, o, s, g, p, n: (1 / s, (p + n) / (p + n * s), pays()(d, f, b, r, o, s, g, p, n)[2]),
            "1 / density",
        ),
        "1 / density everywhere": (lambda d, f, b, r, o, s, g, p, n: (1 / s, 1 / s, 1 / g), "1 / density"),
        "MLP alone": (lambda d, f, b, r, o, *g: pays()(d, f, b, r, 0, *g), "the MLPs alone"),
        "others for nothing": (pays(others=lambda o, s, g: 0), "the others on one side"),
        "everything decoded": (
            pays(whole=lambda p, n, dense, sparse: dense / sparse),
            "prompt left out, or faster too",
        ),
        "prompt once": (
            pays(whole=lambda p, n, dense, sparse: (p + n) * dense / (p + n * sparse)),
            "prompt in another unit",
        ),
        "prompt not in the dense time": (
            pays(whole=lambda p, n, dense, sparse: n * dense / (p * dense + n * sparse)),
            "prompt on one side",
        ),
        "mean": (
            pays(whole=lambda p, n, dense, sparse: (p * 1 + n * dense / sparse) / (p + n)),
            "mean of the speeds",
        ),
        "no gathering": (
            lambda d, f, b, r, o, s, g, p, n: pays()(d, f, b, r, o, s, 1.0, p, n),
            "gathering for nothing",
        ),
        "gathered faster": (
            lambda d, f, b, r, o, s, g, p, n: pays()(d, f, b, r, o, s, 1 / g, p, n),
            "divided by the factor",
        ),
        "predictor gathered": (
            pays(predictor=lambda d, f, b, r, s, g: g * r * (d + f) * b),
            "gathering all of it",
        ),
        "all the rest gathered too": (
            pays(
                predictor=lambda d, f, b, r, s, g: g * r * (d + f) * b,
                others=lambda o, s, g: o * g,
                even=lambda m, q, o, g: max(0, ((m + o) / g - q / g - o) / m),
            ),
            "gathering all of it",
        ),
        "up and down": (pays(mlp=lambda d, f, b: 2 * d * f * b), "two matrices in the MLP"),
        "a full predictor": (pays(predictor=lambda d, f, b, r, s, g: d * f * b), "predictor of another size"),
        "first matrix alone": (pays(predictor=lambda d, f, b, r, s, g: r * d * b), "predictor of another size"),
        "one predictor": (pays(predictor=lambda d, f, b, r, s, g: r * (d + f)), "one predictor for all blocks"),
        "predictor by density": (
            pays(predictor=lambda d, f, b, r, s, g: r * (d + s * f) * b),
            "sparse predictor",
        ),
        "predictor by density, also in the break-even": (
            lambda d, f, b, r, o, s, g, p, n: (
                *pays(predictor=lambda d, f, b, r, s, g: s * r * (d + f) * b)(d, f, b, r, o, s, g, p, n)[:2],
                3 * d * f / (3 * d * f * g + r * (d + f)),
            ),
            "sparse predictor",
        ),
        "one block": (lambda d, f, b, *g: pays()(d, f, 1, *g), "blocks counted wrongly"),
        "sparsity": (
            lambda d, f, b, r, o, s, *g: pays()(d, f, b, r, o, 1 - s, *g),
            "skipped for kept",
        ),
        "attention sparse": pays(others=lambda o, s, g: o * s * g),
        "a fraction of time": (
            pays(
                token=lambda dense, sparse: sparse / dense, whole=lambda p, n, d, s: (p * d + n * s) / (p * d + n * d)
            ),
            "times for speeds",
        ),
        "no zero": (pays(even=lambda m, q, o, g: (m - q) / (m * g)), "below zero"),
        "others in it": (
            pays(even=lambda m, q, o, g: max(0, (m + o - q) / ((m + o) * g))),
            "the others in the break-even",
        ),
        "sparse share": (pays(even=lambda m, q, o, g: max(0, 1 / g - q / m)), "gathering all of it"),
        "where the token is twice as fast": pays(even=lambda m, q, o, g: max(0, (m - o - 2 * q) / (2 * g * m))),
        "seconds for tokens": pays(whole=lambda p, n, dense, sparse: (p + n * dense) / (p + n * sparse)),
        "no third": (lambda *g: pays()(*g)[:2], "not three numbers"),
    },
}
