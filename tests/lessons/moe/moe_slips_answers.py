"""Answers to the exercises of lesson 06 that are off by one slip, each with the name that it is told; and honest ones
that make their own tensors of zeros, in torch's default dtype.

Dimension key: T tokens, E experts, k of them per token, D width, G groups of N tokens, L layers, S samples, K experts
of a classic mixture, O outputs.
"""

import torch
from torch.nn.functional import one_hot, silu, softplus

# --- gate: logits (T, E), k ---


def gate_of(probs, choose=lambda logits, probs, k: probs.topk(k, dim=1).indices):
    """Weights scattered into zeros: probs(logits), choose(logits, probabilities, k)."""

    def answer(logits, k):
        p = probs(logits)
        places = choose(logits, p, k)
        return torch.zeros(logits.shape).scatter(1, places, p.gather(1, places))

    return answer


def exp_over_sum(logits):
    e = torch.exp(logits)
    return e / e.sum(dim=1, keepdim=True)


def softmax_of(logits):
    return logits.softmax(1)


def gate_by_index(logits, k):
    out = torch.zeros(logits.shape[0], logits.shape[1])
    values, places = logits.softmax(1).topk(k)
    for t in range(len(logits)):
        out[t, places[t]] = values[t]
    return out


# --- top1: logits (T, E), slope (T,) ---


def top1_with(gradient):
    """From (one-hot of the choice, p, its probability w, slope) -> (T, E)."""

    def answer(logits, slope):
        p = logits.softmax(1)
        w, i = p.max(1)
        return w, gradient(one_hot(i, p.shape[1]), p, w, slope)

    return answer


# --- dispatch ---


def dispatch_with(weights_of=lambda w: w.flatten(), finish=lambda y, k: y, act=silu, token=lambda order, k: order // k):
    def answer(tokens, chosen, weights, into, out):
        k, flat = chosen.shape[1], chosen.flatten()
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=len(out)).cumsum(0)
        y = torch.zeros(tokens.shape)
        for pair in order.tolist():
            g, u = (into[flat[pair]] @ tokens[pair // k]).chunk(2)
            row = out[flat[pair]] @ (act(g) * u) * weights_of(weights)[pair]
            y.index_add_(0, torch.tensor([pair // k]), row[None])
        return token(order, k), ends, finish(y, k)

    return answer


# --- capacity ---


def capacity_with(experts=lambda chosen, n: n, behind=lambda s, o, w, keep: s + w * keep * o):
    def answer(stream, outputs, chosen, weights, n_experts, factor):
        room = int(factor * chosen.shape[1] / experts(chosen, n_experts))
        hot = one_hot(chosen, n_experts)
        keep = (hot.cumsum(1) * hot).sum(-1) <= room
        return keep, behind(stream, outputs, weights[..., None], keep[..., None])

    return answer


# --- balance: logits (L, T, E), chosen (L, T, k), α ---


def balance_with(f_of=None, p_of=lambda x: x.softmax(-1).mean(0), experts=lambda x, c: x.shape[1]):
    """Layer by layer, f as a product of counts and P in torch's default dtype."""

    def answer(logits, chosen, alpha):
        x = logits.clone().requires_grad_()
        losses = []
        for each, c in zip(x, chosen, strict=True):
            n = experts(each, c)
            f = torch.bincount(c.flatten(), minlength=n) / c.numel() if f_of is None else f_of(each, c)
            losses.append(alpha * n * (f @ p_of(each)))
        loss = torch.stack(losses).mean()
        loss.backward()
        return loss.detach(), x.grad

    return answer


# --- load ---


def load_with(clean_of=lambda c, h: c, noisy_of=lambda c, h: h, finish=lambda p: p.sum(0)):
    def answer(clean, noise, noisy, k):
        c, h = clean_of(clean, noisy), noisy_of(clean, noisy)
        best = h.topk(k + 1, dim=1).values
        edge = torch.where(h > best[:, k:], best[:, k:], best[:, k - 1 : k])
        return finish(torch.special.ndtr((c - edge) / softplus(noise)))

    return answer


# --- jacobs: prior (S, K), outputs (S, K, O), target (S, O) ---


def squared(o, d):
    return (o - d[:, None]).square().sum(-1)


def jacobs_of(joint):
    def answer(p, o, d):
        x = joint(p, squared(o, d))
        return -torch.logsumexp(x, 1), torch.softmax(x, 1)

    return answer


def jacobs_right(p, o, d):
    return jacobs_of(lambda p, s: p.log() - s / 2)(p, o, d)


def jacobs_by_exponentials(change):
    """From exponentials, of which the sum is changed before it is used."""

    def answer(p, o, d):
        parts = p * torch.exp(-squared(o, d) / 2)
        total = change(parts.sum(1, keepdim=True))
        return -total[:, 0].log(), parts / total

    return answer


# --- estimate: logits (T, E), drawn (T,), halved (T,), outputs, target (T, V) ---


def estimate_with(factor=lambda coin, best: 1 - 0.5 * (coin & ~best), gain=lambda c, best: 2.0, row=None, slope=None):
    def answer(logits, drawn, halved, outputs, target):
        p = logits.softmax(1)
        best, one = logits.argmax(1) == drawn, one_hot(drawn, p.shape[1])
        c, pi = factor(halved, best).float(), p.gather(1, drawn[:, None])
        m = c[:, None] * pi
        s = ((m * outputs - target) * outputs).sum(1, keepdim=True) if slope is None else slope(m, outputs, target)
        g = gain(c[:, None], best[:, None])
        return g * s * (pi * (one - p) if row is None else row(p, one))

    return answer


RIGHT = {
    "moe.gate": {"scatter into zeros": gate_of(softmax_of), "index into zeros": gate_by_index},
    "moe.top1": {"formula": top1_with(lambda one, p, w, s: (s * w)[:, None] * (one - p))},
    "moe.dispatch": {"index_add into zeros": dispatch_with()},
    "moe.capacity": {"one-hot": capacity_with()},
    "moe.balance": {"bincount times means": balance_with()},
    "moe.load": {"two thresholds": load_with()},
    "moe.jacobs": {"exponents": jacobs_right},
    "moe.estimate": {"formula": estimate_with()},
}

WRONG = {
    "moe.gate": {
        "exp over sum": (gate_of(exp_over_sum), "overflow"),
        "exp over sum, chosen by the logits": (gate_of(exp_over_sum, lambda h, p, k: h.topk(k)[1]), "overflow"),
        "exp over sum, times a mask": (
            lambda h, k: exp_over_sum(h) * torch.zeros(h.shape).scatter(1, h.topk(k)[1], 1.0),
            "overflow",
        ),
        "clamp(max=50)": (gate_of(lambda h: h.clamp(max=50).softmax(1)), "large logits cut off"),
        "clamp(-80, 80)": (
            gate_of(lambda h: h.clamp(-80, 80).softmax(1), lambda h, p, k: h.topk(k)[1]),
            "large logits cut off",
        ),
        "lowest, divided by their sum": (
            lambda h, k: (w := gate_of(softmax_of, lambda h, p, k: (-h).topk(k)[1])(h, k)) / w.sum(1, keepdim=True),
            "lowest k, weights that add up to one",
        ),
        "softmax of the k best, no places": (
            lambda h, k: h.topk(k)[0].softmax(1),
            "softmax after the choice, without places",
        ),
        "chosen by columns": (
            gate_of(softmax_of, lambda h, p, k: h.softmax(0).topk(k, dim=1)[1]),
            "chosen by probabilities over the tokens",
        ),
    },
    "moe.top1": {
        "slope without an axis": (
            top1_with(lambda one, p, w, s: s * w[:, None] * (one - p)),
            "slope along the experts",
        ),
        "p at the chosen": (top1_with(lambda one, p, w, s: s[:, None] * p * one), "the factor p alone"),
        "cross-entropy": (top1_with(lambda one, p, w, s: s[:, None] * (p - one)), "gradient of the cross-entropy"),
        "log": (top1_with(lambda one, p, w, s: s[:, None] * (one - p)), "gradient of the logarithm"),
    },
    "moe.dispatch": {
        "weights by columns": (
            dispatch_with(lambda w: w.T.flatten()),
            "weights read by columns",
        ),
        "mean": (dispatch_with(finish=lambda y, k: y / k), "divided by k"),
        "relu for silu": (dispatch_with(act=torch.relu), "another activation"),
        "inverse": (dispatch_with(token=lambda order, k: order.argsort() // k), "inverse of the order"),
        "tokens sorted": (dispatch_with(token=lambda order, k: (order // k).sort()[0]), "tokens in their own order"),
    },
    "moe.capacity": {
        "experts from the largest": (capacity_with(lambda c, n: int(c.max()) + 1), "experts counted in the choices"),
        "experts from unique": (capacity_with(lambda c, n: len(c.unique())), "experts counted in the choices"),
        "stream zeroed and weighted": (
            capacity_with(behind=lambda s, o, w, keep: w * keep * (s + o)),
            "residual zeroed and weighted",
        ),
        "output instead of the stream": (
            capacity_with(behind=lambda s, o, w, keep: torch.where(keep, w * o, s)),
            "stream replaced",
        ),
    },
    "moe.balance": {
        "P added up": (balance_with(p_of=lambda x: x.softmax(-1).sum(0)), "probabilities added up"),
        "f added up": (
            balance_with(lambda x, c: torch.bincount(c.flatten(), minlength=x.shape[1]).float()),
            "counts instead of shares",
        ),
        "both added up": (
            balance_with(
                lambda x, c: torch.bincount(c.flatten(), minlength=x.shape[1]).float(), lambda x: x.softmax(-1).sum(0)
            ),
            "counts, and probabilities added up",
        ),
        "experts from the largest choice": (
            balance_with(
                lambda x, c: torch.bincount(c.flatten(), minlength=x.shape[1]) / c.numel(),
                experts=lambda x, c: int(c.max()) + 1,
            ),
            "",
        ),
        "softmax of the mean": (balance_with(p_of=lambda x: x.mean(0).softmax(-1)), "mean before the softmax"),
        "sigmoid": (balance_with(p_of=lambda x: x.sigmoid().mean(0)), "sigmoid"),
    },
    "moe.load": {
        "sides exchanged": (load_with(lambda c, h: h, lambda c, h: c), "clean and noisy exchanged"),
        "shares": (load_with(finish=lambda p: p.sum(0) / p.sum()), "fractions of the whole load"),
        "one number": (load_with(finish=lambda p: p.sum()), "one number for all experts"),
    },
    "moe.jacobs": {
        "exponentials": (jacobs_by_exponentials(lambda total: total), "exponentials of large numbers"),
        "clamp_min(1e-38)": (
            jacobs_by_exponentials(lambda total: total.clamp_min(1e-38)),
            "a small number under the logarithm",
        ),
        "1e-12 added": (jacobs_by_exponentials(lambda total: total + 1e-12), "a small number under the logarithm"),
        "distances of 80 at most": (jacobs_of(lambda p, s: p.log() - s.clamp(max=80) / 2), "distances cut off"),
        "exponents of −80 at least": (jacobs_of(lambda p, s: p.log() + (-s / 2).clamp(min=-80)), "distances cut off"),
        "largest term": (
            lambda p, o, d: (-(p.log() - squared(o, d) / 2).max(1).values, jacobs_right(p, o, d)[1]),
            "largest term of the sum",
        ),
        "expected distance and prior": (
            lambda p, o, d: ((p * squared(o, d)).sum(1), p),
            "expected distance, prior for posterior",
        ),
        "blended and prior": (
            lambda p, o, d: ((d - (p[..., None] * o).sum(1)).square().sum(1), p),
            "cooperative error, prior for posterior",
        ),
    },
    "moe.estimate": {
        "plain gradient": (estimate_with(gain=lambda c, best: c), "halved backwards too, and not doubled"),
        "best not doubled": (
            estimate_with(gain=lambda c, best: torch.where(best, 1.0, 2.0)),
            "most likely expert not doubled",
        ),
        "π_j for π_D": (estimate_with(row=lambda p, one: p * (one - p)), "each expert's own probability"),
        "o times target": (
            estimate_with(slope=lambda m, o, t: -(o * t).sum(1, keepdim=True)),
            "product of outputs and target",
        ),
        "a third": (
            estimate_with(lambda coin, best: torch.where(coin & ~best, 1 / 3, 1.0)),
            "a third, doubled",
        ),
    },
}
