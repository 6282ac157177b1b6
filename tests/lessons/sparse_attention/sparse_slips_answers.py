"""Slips in the exercises of lesson 11 that were told another slip's name, each with the name it gets."""

from math import log

import torch

INF = float("inf")


# --- divergence: p, q ---


def kept_terms(p, q):
    m = (p + q) / 2
    a, b = torch.zeros(p.shape), torch.zeros(p.shape)
    a[p > 0] = (p * (p / m).log())[p > 0].float()
    b[q > 0] = (q * (q / m).log())[q > 0].float()
    return (a + b).sum(dim=1) / 2


DIVERGENCE = {
    "by the common logarithm": (lambda p, q: kept_terms(p, q) / log(10), "not in nats"),
    "distance in bits": (lambda p, q: (kept_terms(p, q).clamp(min=0) / log(2)).sqrt(), "square root, in bits"),
    "the sum over q": (
        lambda p, q: torch.where(q > 0, q * (2 * q / (p + q)).log(), 0).sum(dim=1),
        "one of the two sums",
    ),
}


# --- lines: weights ---


def diagonals(weights, by):
    n_last, n = weights.shape
    return torch.stack([weights.diagonal(n - n_last - delta).sum() for delta in range(n)]) / by


LINES = {"slashes over T": (lambda w: (w.mean(dim=0), diagonals(w, w.shape[1])), "divided by T")}


# --- block_mask: columns, diagonals, n_tokens, block_size ---


def blocks_read(columns, diagonals, t, s, tokens=(False, False)):
    """tokens: whether columns and diagonals are taken for those of tokens."""
    i, position = torch.arange(t) // s, torch.arange(t)
    apart, near = i[:, None] - i, position[:, None] - position
    padded = [torch.cat([line, torch.zeros(t, dtype=torch.bool)]) for line in (columns, diagonals)]
    read = (padded[0][position] if tokens[0] else columns[i]) | (i == 0) | (apart == 0)
    return (read | (padded[1][near.clamp(min=0)] if tokens[1] else diagonals[apart.clamp(min=0)])).tril()


BLOCK_MASK = {
    "columns of tokens": (lambda *g: blocks_read(*g, tokens=(True, False)), "lines of tokens"),
    "diagonals of tokens": (lambda *g: blocks_read(*g, tokens=(False, True)), "lines of tokens"),
    "both of tokens": (lambda *g: blocks_read(*g, tokens=(True, True)), "lines of tokens"),
    "no diagonals": (lambda c, d, t, s: blocks_read(c, d & False, t, s), "one of the two kinds"),
    "transposed": (lambda *g: blocks_read(*g).T, "queries and keys exchanged"),
    "to be added": (lambda *g: torch.zeros(g[2], g[2]).masked_fill(~blocks_read(*g), -INF), "numbers to add to logits"),
}


# --- delta: keys, theta ---


def sent_where(moved, forget=False):
    def answer(keys, theta):
        last, held, sent = keys[0], [keys[0]], [torch.ones_like(keys[0], dtype=torch.bool)]
        compared = last
        for key in keys[1:]:
            send = moved((key - compared).abs(), theta)
            last = torch.where(send, key, last)
            compared = torch.where(send, key, 0.0) if forget else last
            held.append(last)
            sent.append(send)
        return torch.stack(held), torch.stack(sent)

    return answer


DELTA = {
    "squares": (sent_where(lambda far, theta: far**2 >= theta), "squared difference"),
    "compared with 0": (sent_where(torch.ge, forget=True), "forgotten what was sent"),
}


# --- steer: logits, highlighted, chosen, alpha ---


def both_ways(logits, highlighted, chosen, alpha):
    moved = torch.zeros(logits.shape[2])
    moved[: len(highlighted)] = torch.where(highlighted, -log(alpha), log(alpha))
    moved[0] = -log(alpha) if highlighted[0] else 0.0
    return (logits + moved * chosen[:, None, None]).softmax(dim=2)


# --- recycle: grey, attention, alpha, tokens, cell ---


def recycled(worth):
    def answer(grey, attention, alpha, tokens, cell):
        entropy = []
        for row in grey:
            p = row.bincount() / len(row)
            p = p[p > 0]
            entropy.append(-(p * p.log2()).sum())
        importance = worth(attention, torch.stack(entropy), alpha)
        groups = [(cell == c).nonzero()[:, 0] for c in range(int(cell.max()) + 1)]
        fused = [importance[g] @ tokens[g] / importance[g].sum() for g in groups]
        return importance, torch.stack(fused), torch.stack([g[importance[g].argmax()] for g in groups])

    return answer


RECYCLE = {
    "H / ΣH": (recycled(lambda a, h, alpha: a + alpha * h / h.sum()), "divided, not a softmax"),
    "no α": (recycled(lambda a, h, alpha: a + h.softmax(0)), "α left out or at another place"),
    "a product": (recycled(lambda a, h, alpha: a * h.softmax(0)), "multiplied, not added"),
}


# --- accept: drafted, q, p, luck ---


def tried(stays=lambda p, q, luck: luck < p / q, fallen=lambda p, q: (p - q).clamp(min=0), on=0, behind=None, more=0):
    def answer(drafted, q, p, luck):
        for i, x in enumerate(drafted.tolist()):
            if not stays(p[i + on, x], q[i, x], luck[i]):
                weights = fallen(p[i], q[i])
                return i + more, weights / weights.sum()
        return len(drafted), p[len(drafted)] if behind is None else behind(p, q)

    return answer


ACCEPT = {
    "luck above the ratio": (tried(lambda p, q, luck: luck > p / q), "above the ratio"),
    "ratio above a half": (tried(lambda p, q, luck: p / q > 0.5), "a fixed threshold on the ratio"),
    "p one row on": (tried(on=1), "the row of the next place"),
    "below q": (tried(lambda p, q, luck: luck < q), "q alone"),
    "below p": (tried(lambda p, q, luck: luck < p), "p alone"),
    "next from p over q": (tried(fallen=lambda p, q: p / q), "a product or a quotient"),
    "next from |p − q|": (tried(fallen=lambda p, q: (p - q).abs()), "absolute difference"),
    "next by a softmax": (tried(fallen=lambda p, q: (p - q).softmax(0)), "softmax of the difference"),
    "the rejected token counted too": (tried(more=1), "the rejected token counted"),
    "last row but one": (tried(behind=lambda p, q: p[-2]), "the wrong row after all"),
}

RIGHT = {"sparse_attention.divergence": {"zeros of torch's own dtype": kept_terms}}
WRONG = {
    "sparse_attention.divergence": DIVERGENCE,
    "sparse_attention.lines": LINES,
    "sparse_attention.block_mask": BLOCK_MASK,
    "sparse_attention.delta": DELTA,
    "sparse_attention.steer": {"up and down": (both_ways, "lowered and raised")},
    "sparse_attention.recycle": RECYCLE,
    "sparse_attention.accept": ACCEPT,
}
