"""Answers to the exercises of lesson 09 that are off by one slip, each with the name that it is told.

Dimension key: T tokens, F neurons, D width, H heads of d entries, L blocks, N tokens in a cache, M of them missing.
"""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, silu


def keep_best(score, k):
    return torch.zeros(score.shape, dtype=torch.bool).scatter(1, score.topk(k, dim=1).indices, True)


def lengths(hidden, down):
    return hidden.abs() * down.norm(dim=0)


# --- heads ---


def heads_with(cut_heads=lambda a, n: a.unflatten(1, (n, -1)), finish=lambda p: p.norm(dim=2)):
    """finish(parts (T, H, D))."""
    return lambda a, w, n: finish(torch.einsum("thi,dhi->thd", cut_heads(a, n), w.unflatten(1, (n, -1))))


# --- gathered ---


def gathered(act=lambda g, u: silu(g) * u, empty=None, after=lambda y, F, K: y):
    """empty(x, gate, up, down): what is said where no neuron stays."""

    def answer(x, gate, up, down, index):
        if empty and not len(index):
            return empty(x, gate, up, down)
        y = torch.zeros(len(x))
        for i in index.tolist():
            y += down[:, i] * act(gate[i] @ x, up[i] @ x)
        return after(y, len(gate), len(index))

    return answer


def scattered(x, gate, up, down, index):
    hidden = torch.zeros(len(gate))
    hidden[index] = silu(gate[index] @ x) * (up[index] @ x)
    return down @ hidden


def stacked(x, gate, up, down, index):
    return torch.stack([down[:, i] * silu(gate[i] @ x) * (up[i] @ x) for i in index.tolist()]).sum(0)


# --- loss ---


def loss_of(clamped=lambda z: z, labels=lambda y: y, weigh=lambda y, w: y + (1 - y) * w, more=0.005, top=lambda k: k):
    def answer(logits, parts, k):
        z = logits.clone().requires_grad_()
        best = torch.zeros(parts.shape).scatter(1, parts.topk(min(top(k), parts.shape[1]), dim=1).indices, 1.0)
        y = labels(best * (parts > 0))
        loss = binary_cross_entropy_with_logits(clamped(z), y, weight=weigh(y, y.mean() + more))
        loss.backward()
        return loss.detach(), z.grad

    return answer


# --- recall: hidden (T, F), down (D, F), active, keep (T, F) ---


def recall_and(energy, recall=lambda a, k: (a & k).sum() / a.sum()):
    """energy(hidden, down) -> (T, F), of which the kept part is taken."""

    def answer(h, d, a, k):
        each = energy(h, d)
        return recall(a, k), (each * k).sum() / each.sum()

    return answer


def energy_of(h, d):
    return (h * d.norm(dim=0)).square()


# --- lookahead: stream (2L + 1, T, D), active (L, T, F), n ---


def read_at(place):
    return lambda s, a, n: (torch.stack([s[place(b, n)] for b in range(n, len(a))]), a[n:])


# --- missing ---


def completed(read=lambda stored: stored, turn_keys=True, turn_values=False, turn=None, rows=slice(None)):
    def half_turned(x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([-second, first], dim=-1)

    def answer(keys, values, position, missing, stored, wk, wv, cos, sin):
        at = position[missing]

        def turned(x):
            return turn(x, cos[at], sin[at]) if turn else x * cos[at] + half_turned(x) * sin[at]

        made_keys, made_values = read(stored) @ wk.T, read(stored) @ wv.T
        keys, values = keys.clone(), values.clone()
        keys[missing[rows]] = (turned(made_keys) if turn_keys else made_keys)[rows]
        values[missing[rows]] = (turned(made_values) if turn_values else made_values)[rows]
        return keys, values

    return answer


# --- break_even ---


def pays_with(whole=None, token=lambda dense, sparse: dense / sparse, even=lambda e: e):
    def answer(d, f, b, r, o, s, g, p, n):
        mlp, predictor = 3 * d * f * b, r * (d + f) * b
        dense, sparse = mlp + o, g * s * mlp + predictor + o
        total = whole(p, n, dense, sparse) if whole else (p + n) * dense / (p * dense + n * sparse)
        return token(dense, sparse), total, even(max(0.0, (mlp - predictor) / (g * mlp)))

    return answer


RIGHT = {
    "dejavu.importance": {"scatter": lambda h, w, k: keep_best(lengths(h, w), k)},
    "dejavu.heads": {"einsum": heads_with()},
    "dejavu.gathered": {"added to zeros": gathered()},
    "dejavu.loss": {"labels in zeros": loss_of()},
    "dejavu.recall": {"two ratios": recall_and(energy_of)},
    "dejavu.lookahead": {"places": read_at(lambda b, n: 2 * (b - n) + 1)},
    "dejavu.missing": {"at once": completed()},
    "dejavu.break_even": {"numbers": pays_with()},
}

WRONG = {
    "dejavu.importance": {
        "all": (lambda h, w, k: torch.ones(h.shape, dtype=torch.bool), "all neurons"),
        "not zero": (lambda h, w, k: h != 0, "all that fire"),
        "k best that fire": (lambda h, w, k: keep_best(lengths(h, w), k) & (h != 0), "only those that fire"),
        "lengths of the best": (lambda h, w, k: lengths(h, w).topk(k).values, "the k longest lengths"),
        "signed rows": (lambda h, w, k: keep_best(h * w.norm(dim=1), k), "norm over the wrong axis, and signed values"),
    },
    "dejavu.heads": {
        "lengths of entries": (
            lambda a, w, n: (a * w.norm(dim=0)).unflatten(1, (n, -1)).norm(dim=2),
            "entry by entry",
        ),
        "means of norms": (heads_with(finish=lambda p: p.norm(dim=2).mean(0)), "over the tokens"),
        "before, interleaved": (
            lambda a, w, n: a.unflatten(1, (-1, n)).norm(dim=1),
            "before the output projection, interleaved",
        ),
    },
    "dejavu.gathered": {
        "no entries": (gathered(empty=lambda x, g, u, d: torch.zeros(0)), "no entries where there are no neurons"),
        "one zero": (gathered(empty=lambda x, g, u, d: torch.tensor(0.0)), "no entries where there are no neurons"),
        "the whole MLP": (
            gathered(empty=lambda x, g, u, d: d @ (silu(g @ x) * (u @ x))),
            "all neurons where there should be none",
        ),
        "nothing": (gathered(empty=lambda x, g, u, d: None), "nothing without neurons"),
        "raises": stacked,  # many slips raise the same error, so it need not have a name
        "scattered": (scattered, "everything read"),
        "silu of both": (gathered(lambda g, u: silu(g) * silu(u)), "activation on both"),
        "K / F": (gathered(after=lambda y, F, K: y * K / F), "made larger for those that left"),
    },
    "dejavu.loss": {
        "within 30": (loss_of(lambda z: z.clamp(-30, 30)), "large logits cut off"),
        "k + 1": (loss_of(top=lambda k: k + 1), "one too many"),
        "inactive": (loss_of(labels=lambda y: 1 - y), "labels exchanged"),
        "0.005 for all": (loss_of(weigh=lambda y, w: y + (1 - y) * w + 0.005), "0.005 added to the active ones"),
    },
    "dejavu.recall": {
        "precision of tokens": (
            recall_and(energy_of, lambda a, k: ((a & k).sum(1) / k.sum(1).clamp(min=1)).mean()),
            "precision of each token",
        ),
        "signed": (recall_and(lambda h, d: h * d.norm(dim=0)), "signed and unsquared"),
        "sizes of values": (recall_and(lambda h, d: h.abs()), "values alone, unsquared"),
    },
    "dejavu.lookahead": {
        "own MLP's output": (read_at(lambda b, n: 2 * b + 2), "what its own MLP gives"),
        "own attention's input": (read_at(lambda b, n: 2 * b), "what its own attention reads"),
        "earlier MLP's output": (read_at(lambda b, n: 2 * (b - n) + 2), "what the MLP gives"),
        "labels rolled": (lambda s, a, n: (s[1::2], torch.roll(a, -n, 0)), "labels wrapped round"),
    },
    "dejavu.missing": {
        "mean": (completed(lambda stored: stored.mean(0).expand(stored.shape)), "computed from the mean input"),
        "value turned": (completed(turn_keys=False, turn_values=True), "the value rotated instead of the key"),
        "both turned": (completed(turn_values=True), "the value rotated too"),
        "all but the newest": (completed(rows=slice(0, -1)), "the newest left out"),
        "cosine": (completed(turn=lambda x, cos, sin: x * cos), "no sine"),
        "flipped": (completed(turn=lambda x, cos, sin: x * cos + x.flip(1) * sin), "entries in reverse order"),
    },
    "dejavu.break_even": {
        "prompt in another unit": (
            pays_with(lambda p, n, dense, sparse: (p + n * dense) / (p + n * sparse)),
            "prompt in another unit",
        ),
        "prompt not converted on one side": (
            pays_with(lambda p, n, dense, sparse: (p + n) * dense / (p + n * sparse)),
            "prompt in another unit",
        ),
        "prompt left out": (
            pays_with(lambda p, n, dense, sparse: n * dense / (n * sparse)),
            "prompt left out, or faster too",
        ),
        "prompt in the dense time alone": (
            pays_with(lambda p, n, dense, sparse: (p + n) * dense / (n * sparse)),
            "prompt on one side",
        ),
        "sparsity at break-even": (pays_with(even=lambda e: 1 - e), "break-even sparsity"),
        "less one": (
            pays_with(
                lambda p, n, dense, sparse: (p + n) * dense / (p * dense + n * sparse) - 1,
                lambda dense, sparse: dense / sparse - 1,
            ),
            "how much more, not how many times",
        ),
    },
}
