"""Answers to the exercises of lesson 06 on losses, loads, mixtures and gradients, as people write them.

Dimension key: L layers, T tokens, E experts, k of them a token; S samples, K experts, O and V outputs.
"""

import math

import numpy
import torch
from torch.distributions import Normal
from torch.nn.functional import one_hot, softmax, softplus

# --- balance: logits (L, T, E), chosen (L, T, k), α ---


def tracked(loss):
    """The loss and what autograd says."""

    def answer(logits, chosen, alpha):
        logits = logits.clone().requires_grad_(True)
        value = loss(logits, chosen, alpha)
        value.backward()
        return value, logits.grad

    return answer


def shares(logits, chosen):
    return one_hot(chosen, logits.shape[-1]).float().mean(dim=(1, 2))


def in_every_layer(logits, chosen, alpha):
    losses = []
    for x, c in zip(logits, chosen, strict=True):
        f = torch.stack([(c == e).float().mean() for e in range(x.shape[1])])
        losses.append(alpha * x.shape[1] * torch.dot(f.to(x), x.softmax(1).mean(0)))
    return torch.stack(losses).mean()


def on_paper(factor=lambda x, c: 1.0, sign=1.0, inner=True):
    """The gradient by the formula of the softmax."""

    def answer(logits, chosen, alpha):
        n_layers, n_tokens, n_experts = logits.shape
        p, f = logits.softmax(2), shares(logits, chosen)[:, None]
        g = p * (f - (p * f).sum(2, keepdim=True)) if inner else p * f
        loss = alpha * n_experts * (f[:, 0] * p.mean(1)).sum(1).mean()
        return loss, sign * factor(logits, chosen) * alpha * n_experts / n_layers / n_tokens * g

    return answer


def by_numpy(logits, chosen, alpha):
    x = logits.double().numpy()
    p = numpy.exp(x - x.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    f = (chosen.numpy()[..., None] == numpy.arange(x.shape[2])).mean(axis=(1, 2))
    each = numpy.einsum("le,lte->lt", f, p)
    loss = alpha * x.shape[2] * each.mean(axis=1).mean()
    return float(loss), alpha * x.shape[2] * p * (f[:, None] - each[..., None]) / each.size


def as_transformers(logits, chosen, alpha):
    """The layers' tokens one after the other, and the mean over all of them."""
    n_experts = logits.shape[2]
    probs = softmax(logits.flatten(0, 1), dim=-1)
    mask = one_hot(chosen.flatten(0, 1), n_experts).float()  # (L T, k, E)
    return alpha * n_experts * (mask.mean(0) * probs.mean(0)[None]).sum()


def with_a_mask(logits, chosen, alpha):
    """Masked before the softmax: the probabilities among those chosen."""
    keep = one_hot(chosen, logits.shape[2]).sum(2) > 0
    p = logits.masked_fill(~keep, -torch.inf).softmax(2)
    return alpha * logits.shape[2] * (shares(logits, chosen) * p.mean(1)).sum(1).mean()


# --- load: clean, noise, noisy (T, E), k ---


def load_with(cdf=torch.special.ndtr, deviation=softplus, edge=None):
    """P summed, by the threshold of who is in and of who is out."""

    def two(noisy, k):
        best = noisy.sort(dim=1, descending=True)[0]
        return torch.where(noisy > best[:, k : k + 1], best[:, k : k + 1], best[:, k - 1 : k])

    return lambda c, n, h, k: cdf((c - (edge or two)(h, k)) / deviation(n)).sum(0)


def load_in_a_loop(clean, noise, noisy, k):
    load = torch.zeros(clean.shape[1], dtype=clean.dtype)
    for t in range(len(clean)):
        for i in range(clean.shape[1]):
            rest = torch.cat([noisy[t, :i], noisy[t, i + 1 :]])
            z = (clean[t, i] - rest.sort(descending=True).values[k - 1]) / (1 + noise[t, i].exp()).log()
            load[i] += 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    return load


def load_by_distribution(clean, noise, noisy, k):
    """The chance that new noise is above what is missing."""
    n_experts = clean.shape[1]
    without = noisy[:, None, :].expand(-1, n_experts, -1).masked_fill(torch.eye(n_experts).bool(), -1e9)
    edge = without.topk(k, dim=-1).values[..., -1]
    return 1 - Normal(clean, softplus(noise)).cdf(edge).sum(0) - 1 + len(clean)


def load_by_kthvalue(clean, noise, noisy, k):
    n_experts = noisy.shape[1]
    columns = []
    for i in range(n_experts):
        others = noisy[:, [j for j in range(n_experts) if j != i]]
        edge = others.kthvalue(n_experts - k, dim=1).values
        columns.append(Normal(0, 1).cdf((clean[:, i] - edge) / softplus(noise[:, i])))
    return torch.stack(columns, 1).sum(0)


# --- jacobs: prior (S, K), outputs (S, K, O), target (S, O) ---


def squares(outputs, target):
    return ((target[:, None] - outputs) ** 2).sum(-1)


def jacobs_by(exponent):
    def answer(p, o, d):
        x = exponent(p, squares(o, d))
        return -x.logsumexp(1), softmax(x, dim=1)

    return answer


def jacobs_without_underflow(p, o, d):
    """The smallest distance taken out by hand."""
    s = squares(o, d) / 2
    near = s.min(dim=1, keepdim=True)[0]
    parts = p * torch.exp(near - s)
    return near[:, 0] - parts.sum(1).log(), parts / parts.sum(1, keepdim=True)


def jacobs_in_numpy(p, o, d):
    p, o, d = (x.double().numpy() for x in (p, o, d))
    x = numpy.log(p) - ((o - d[:, None]) ** 2).sum(2) / 2
    log_total = numpy.logaddexp.reduce(x, axis=1)
    return -log_total, numpy.exp(x - log_total[:, None])


def jacobs_exponentials(p, o, d, added=0.0):
    parts = p * torch.exp(-0.5 * squares(o, d))
    return -torch.log(parts.sum(1) + added), parts / (parts.sum(1, keepdim=True) + added)


def h_of(p, o, d):
    return softmax(p.log() - squares(o, d) / 2, dim=1)


def e_of(p, o, d):
    return -torch.logsumexp(p.log() - squares(o, d) / 2, dim=1)


# --- estimate: logits (T, E), drawn (T,), halved (T,), outputs and target (T, V) ---


def estimate_in_a_loop(gain=lambda factor: 2.0, factor=None, row=None, slope=None):
    """One token after the other. factor(coin, best), gain(factor), row(π, D), slope(m, o, target)."""

    def answer(logits, drawn, halved, outputs, target):
        rows = []
        for x, n, coin, o, t in zip(logits, drawn, halved, outputs, target, strict=True):
            pi = softmax(x, dim=0)
            c = factor(bool(coin), bool(n == x.argmax())) if factor else 0.5 if coin and n != x.argmax() else 1.0
            g = slope(c * pi[n], o, t) if slope else ((c * pi[n] * o - t) * o).sum()
            e = torch.zeros_like(pi)
            e[n] = 1
            rows.append(gain(c) * g * (row(pi, n, e) if row else pi[n] * (e - pi)))
        return torch.stack(rows)

    return answer


def estimate_by_autograd(scale=2.0, straight=True):
    """The loss by autograd; `straight`: the half is kept out of the gradient."""

    def answer(logits, drawn, halved, outputs, target):
        x = logits.clone().requires_grad_(True)
        pi = torch.softmax(x, 1)[torch.arange(len(x)), drawn]
        half = halved & (drawn != logits.argmax(1))
        used = torch.where(half, pi / 2, pi)
        if straight:
            used = pi + (used - pi).detach()
        (((used[:, None] * outputs - target) ** 2).sum() / 2).backward()
        return scale * x.grad

    return answer


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, factor):
        return value * factor

    @staticmethod
    def backward(ctx, slope):
        return 2 * slope, None


def estimate_by_a_function_of_its_own(logits, drawn, halved, outputs, target):
    x = logits.clone().requires_grad_(True)
    pi = x.softmax(-1).gather(-1, drawn[:, None])
    best = logits.argmax(-1) == drawn
    factor = torch.ones(len(x), 1, dtype=x.dtype)
    factor[halved & ~best] = 0.5
    loss = 0.5 * (Doubled.apply(pi, factor) * outputs - target).pow(2).sum()
    return torch.autograd.grad(loss, x)[0]


def estimate_with_the_jacobian(logits, drawn, halved, outputs, target):
    rows = []
    for i in range(len(logits)):
        pi, n = logits[i].softmax(0), int(drawn[i])
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), logits[i])
        m = float(pi[n])
        if halved[i] and n != int(pi.argmax()):
            m = m / 2
        rows.append(2 * (m * outputs[i] @ outputs[i] - outputs[i] @ target[i]) * jacobian[n])
    return torch.stack(rows)


RIGHT = {
    "moe.balance": {
        "layer by layer": tracked(in_every_layer),
        "shares times means": tracked(
            lambda x, c, a: a * x.shape[2] * (shares(x, c) * x.softmax(-1).mean(1)).sum(-1).mean()
        ),
        "on paper": on_paper(),
        "numpy": by_numpy,
        "means of sums": tracked(
            lambda x, c, a: a * x.shape[2] * (shares(x, c)[:, None] * x.softmax(2)).sum() / len(x) / x.shape[1]
        ),
        "a number": lambda x, c, a: (on_paper()(x, c, a)[0].item(), on_paper()(x, c, a)[1].tolist()),
    },
    "moe.load": {
        "two thresholds": load_with(),
        "a loop": load_in_a_loop,
        "the distribution of the noisy logit": load_by_distribution,
        "kthvalue": load_by_kthvalue,
        "float64": lambda c, n, h, k: load_with()(c.double(), n.double(), h.double(), k).tolist(),
        "erf": load_with(lambda z: (1 + torch.erf(z / 2**0.5)) / 2, lambda n: torch.log1p(n.exp())),
    },
    "moe.jacobs": {
        "exponents": jacobs_by(lambda p, s: p.log() - s / 2),
        "smallest distance taken out": jacobs_without_underflow,
        "numpy": jacobs_in_numpy,
        "cdist": lambda p, o, d: jacobs_by(lambda p, s: torch.log(p) - 0.5 * torch.cdist(d[:, None], o)[:, 0] ** 2)(
            p, o, d
        ),
        "two formulas": lambda p, o, d: (e_of(p, o, d), h_of(p, o, d)),
        "products": lambda p, o, d: jacobs_by(
            lambda p, s: p.log() - o.square().sum(2) / 2 + (o * d[:, None]).sum(2) - d.square().sum(1, keepdim=True) / 2
        )(p, o, d),
    },
    "moe.estimate": {
        "a loop": estimate_in_a_loop(),
        "autograd": estimate_by_autograd(),
        "a function of its own": estimate_by_a_function_of_its_own,
        "jacobian": estimate_with_the_jacobian,
        "lists": lambda *given: estimate_in_a_loop()(*given).tolist(),
    },
}

WRONG = {
    "moe.balance": {
        "as transformers": (
            tracked(lambda x, c, a: as_transformers(x, c, a)),
            "averaged over layers first, not divided by k",
        ),
        "as transformers, divided by k": (
            tracked(lambda x, c, a: as_transformers(x, c, a) / c.shape[2]),
            "averaged over layers first",
        ),
        "softmax twice": (
            tracked(lambda x, c, a: in_every_layer(x.softmax(2), c, a)),
            "softmax twice",
        ),
        "not divided by k": (tracked(lambda x, c, a: c.shape[2] * in_every_layer(x, c, a)), "not divided by k"),
        "k forgotten in the gradient": (on_paper(lambda x, c: c.shape[2]), "gradient not divided by k"),
        "logits for probabilities": (
            tracked(lambda x, c, a: a * x.shape[2] * (shares(x, c) * x.mean(1)).sum(1).mean()),
            "no softmax",
        ),
        "softmax over tokens": (
            tracked(lambda x, c, a: a * x.shape[2] * (shares(x, c) * x.softmax(1).mean(1)).sum(1).mean()),
            "softmax over the wrong axis",
        ),
        "default axis of one_hot": tracked(
            lambda x, c, a: (
                a * x.shape[2] * (one_hot(c, x.shape[2]).float().mean(2) * x.softmax(2)).sum(2).mean(1).mean()
            )
        ),
        "by the first choice": (
            tracked(lambda x, c, a: in_every_layer(x, c[..., :1], a)),
            "only the first choice counted",
        ),
        "by the argmax": (
            tracked(lambda x, c, a: in_every_layer(x, x.argmax(2, keepdim=True), a)),
            "best expert counted",
        ),
        "by the top of the logits": (
            tracked(lambda x, c, a: in_every_layer(x, x.topk(c.shape[2], 2)[1], a)),
            "chosen by the logits",
        ),
        "counts": (
            tracked(
                lambda x, c, a: (
                    a * x.shape[2] * (one_hot(c, x.shape[2]).sum((1, 2)) * x.softmax(2).mean(1)).sum(1).mean()
                )
            ),
            "counts instead of shares",
        ),
        "squares of P": (
            tracked(lambda x, c, a: a * x.shape[2] * x.softmax(2).mean(1).square().sum(1).mean()),
            "probabilities in place of counts",
        ),
        "squares of f": (
            tracked(lambda x, c, a: a * x.shape[2] * shares(x, c).square().sum(1).mean() + 0 * x.sum()),
            "no gradient",
        ),
        "straight through": (
            tracked(
                lambda x, c, a: (
                    a
                    * x.shape[2]
                    * ((shares(x, c) + x.softmax(2).mean(1) - x.softmax(2).mean(1).detach()) * x.softmax(2).mean(1))
                    .sum(1)
                    .mean()
                )
            ),
            "gradient through f",
        ),
        "token by token": (
            tracked(lambda x, c, a: a * x.shape[2] * x.softmax(2).gather(2, c).mean(2).mean()),
            "token by token",
        ),
        "masked before the softmax": tracked(with_a_mask),
        "mean over experts": (
            tracked(lambda x, c, a: a * (shares(x, c) * x.softmax(2).mean(1)).sum(1).mean()),
            "α or the number of experts left out",
        ),
        "α forgotten": (
            tracked(lambda x, c, a: in_every_layer(x, c, 1.0)),
            "α or the number of experts left out",
        ),
        "summed over layers": (tracked(lambda x, c, a: len(x) * in_every_layer(x, c, a)), "summed over layers"),
        "uphill": (on_paper(sign=-1.0), "gradient turned round"),
        "no mean in the gradient": (on_paper(lambda x, c: x.shape[1]), "gradient of a sum"),
        "softmax half differentiated": (on_paper(inner=False), "softmax differentiated in part"),
        "no gradient": (lambda x, c, a: (in_every_layer(x, c, a), torch.zeros_like(x)), "no gradient"),
        "the loss alone": (lambda x, c, a: in_every_layer(x, c, a), "one of the two, or the other way round"),
        "k in place of E": tracked(lambda x, c, a: c.shape[2] / x.shape[2] * in_every_layer(x, c, a)),
        "variation of the shares": tracked(
            lambda x, c, a: a * (x.softmax(2).mean(1).var(1) / x.softmax(2).mean(1).mean(1) ** 2).mean()
        ),
        "entropy": tracked(lambda x, c, a: a * (x.softmax(2).mean(1) * x.softmax(2).mean(1).log()).sum(1).mean()),
        "less one": tracked(lambda x, c, a: in_every_layer(x, c, a) - a),
    },
    "moe.load": {
        "kth of all": (load_with(edge=lambda h, k: h.topk(k)[0][:, -1:]), "own logit among the rivals"),
        "next of all": (load_with(edge=lambda h, k: h.topk(k + 1)[0][:, -1:]), "k + 1 for all"),
        "exchanged": (
            load_with(
                edge=lambda h, k: torch.where(h >= h.topk(k)[0][:, -1:], h.topk(k)[0][:, -1:], h.topk(k + 1)[0][:, -1:])
            ),
            "in and out exchanged",
        ),
        "k − 1 for all": load_with(edge=lambda h, k: h.topk(max(k - 1, 1))[0][:, -1:]),
        "the best": (load_with(edge=lambda h, k: h.max(1, keepdim=True)[0]), "one place off"),
        "mean of the others": load_with(
            edge=lambda h, k: (h.sum(1, keepdim=True) - h) / (h.shape[1] - 1),
        ),
        "between the two": load_with(edge=lambda h, k: h.topk(k + 1)[0][:, -2:].mean(1, keepdim=True)),
        "kthvalue from below": load_with(edge=lambda h, k: h.kthvalue(k, dim=1, keepdim=True)[0]),
        "no Φ": (load_with(lambda z: z), "no distribution function"),
        "sigmoid": (load_with(torch.sigmoid), "another function than Φ"),
        "erf": (load_with(torch.erf), "another function than Φ"),
        "tanh": load_with(lambda z: (1 + torch.tanh(z)) / 2),
        "clamped": load_with(lambda z: z.clamp(0, 1)),
        "density": (load_with(lambda z: Normal(0, 1).log_prob(z).exp()), "density instead of distribution"),
        "log cdf": load_with(torch.special.log_ndtr),
        "the other tail": (load_with(lambda z: 1 - torch.special.ndtr(z)), "turned round"),
        "noisy": (lambda c, n, h, k: load_with()(h, n, h, k), "noisy on both sides"),
        "clean": (lambda c, n, h, k: load_with()(c, n, c, k), "clean on both sides"),
        "sides exchanged": (lambda c, n, h, k: load_with()(h, n, c, k), "clean and noisy exchanged"),
        "raw noise": (load_with(deviation=lambda n: n), "no softplus"),
        "exp": (load_with(deviation=torch.exp), "no softplus"),
        "relu": load_with(deviation=torch.relu),
        "variance": (load_with(deviation=lambda n: softplus(n) ** 2), "square or root of the deviation"),
        "times": (
            lambda c, n, h, k: load_with(deviation=lambda n: 1 / softplus(n))(c, n, h, k),
            "multiplied by the deviation",
        ),
        "no deviation": (load_with(deviation=torch.ones_like), "no softplus"),
        "counts": (
            lambda c, n, h, k: torch.bincount(h.topk(k)[1].flatten(), minlength=h.shape[1]),
            "counted",
        ),
        "importance": (lambda c, n, h, k: c.softmax(1).sum(0), "importance"),
        "importance of the k best": (
            lambda c, n, h, k: torch.zeros_like(h).scatter(1, h.topk(k)[1], h.topk(k)[0].softmax(1)).sum(0),
            "importance",
        ),
        "mean": (lambda c, n, h, k: load_with()(c, n, h, k) / len(c), "mean over tokens"),
        "variation": lambda c, n, h, k: load_with()(c, n, h, k).var() / load_with()(c, n, h, k).mean() ** 2,
        "over tokens": load_with(edge=lambda h, k: h.topk(min(k, len(h)), dim=0)[0][-1:]),
    },
    "moe.jacobs": {
        "prior": (lambda p, o, d: (e_of(p, o, d), p), "prior for posterior"),
        "blended": (
            lambda p, o, d: (squares((p[..., None] * o).sum(1, True), d)[:, 0], h_of(p, o, d)),
            "cooperative error",
        ),
        "half blended": (
            lambda p, o, d: (0.5 * ((d - torch.einsum("sk,sko->so", p, o)) ** 2).sum(1), h_of(p, o, d)),
            "cooperative error",
        ),
        "expected": (lambda p, o, d: ((p * squares(o, d)).sum(1), h_of(p, o, d)), "expected distance"),
        "log inside": (
            lambda p, o, d: (-(p.log() - squares(o, d) / 2).sum(1), h_of(p, o, d)),
            "logarithm inside the sum",
        ),
        "weighted logs": (lambda p, o, d: ((p * squares(o, d) / 2).sum(1), h_of(p, o, d)), "logarithm inside the sum"),
        "exponentials": (jacobs_exponentials, "exponentials of large numbers"),
        "exponentials and a little": (
            lambda p, o, d: jacobs_exponentials(p, o, d, 1e-10),
            "a small number under the logarithm",
        ),
        "exponentials in float64": (
            lambda p, o, d: jacobs_exponentials(p.double(), o.double(), d.double()),
            "exponentials of large numbers",
        ),
        "clamped": lambda p, o, d: (
            -(p * (-squares(o, d) / 2).exp()).sum(1).clamp(min=1e-12).log(),
            h_of(p, o, d),
        ),
        "no half": (jacobs_by(lambda p, s: p.log() - s), "half left out"),
        "no square": (jacobs_by(lambda p, s: p.log() - s.sqrt() / 2), "distance not squared"),
        "mean square": (
            lambda p, o, d: (
                -torch.logsumexp(p.log() - ((d[:, None] - o) ** 2).mean(-1) / 2, 1),
                softmax(p.log() - ((d[:, None] - o) ** 2).mean(-1) / 2, 1),
            ),
            "mean over the outputs",
        ),
        "away": (jacobs_by(lambda p, s: p.log() + s / 2), "plus in the exponent"),
        "log-likelihood": (lambda p, o, d: (-e_of(p, o, d), h_of(p, o, d)), "likelihood instead of error"),
        "the sum": (lambda p, o, d: (torch.exp(-e_of(p, o, d)), h_of(p, o, d)), "no logarithm"),
        "joint": (
            lambda p, o, d: (e_of(p, o, d), p * torch.exp(-squares(o, d) / 2)),
            "not divided by the sum",
        ),
        "no prior": (jacobs_by(lambda p, s: -s / 2), "prior left out"),
        "equal priors": (
            jacobs_by(lambda p, s: -s / 2 - math.log(p.shape[1])),
            "prior left out",
        ),
        "prior without its log": (jacobs_by(lambda p, s: p - s / 2), "no logarithm of the prior"),
        "softmax of the prior": (jacobs_by(lambda p, s: p.log_softmax(1) - s / 2), "softmax of the prior"),
        "winner": lambda p, o, d: (e_of(p, o, d), one_hot(squares(o, d).argmin(1), p.shape[1])),
        "over samples": (
            lambda p, o, d: (e_of(p, o, d), softmax(p.log() - squares(o, d) / 2, dim=0)),
            "over the samples",
        ),
        "mean": (lambda p, o, d: (e_of(p, o, d).mean(), h_of(p, o, d)), "one error for all samples"),
        "with the constant": (
            lambda p, o, d: (e_of(p, o, d) + 0.5 * o.shape[2] * math.log(2 * math.pi), h_of(p, o, d)),
            "constant of the Gaussian",
        ),
        "h times distance": lambda p, o, d: ((h_of(p, o, d) * squares(o, d)).sum(1) / 2, h_of(p, o, d)),
        "bits": (lambda p, o, d: (e_of(p, o, d) / math.log(2), h_of(p, o, d)), "another unit"),
        "logs of h": (lambda p, o, d: (e_of(p, o, d), h_of(p, o, d).log()), None),
        "the error alone": (e_of, "one of the two, or the other way round"),
        "exchanged": (lambda p, o, d: (h_of(p, o, d), e_of(p, o, d)), "one of the two, or the other way round"),
        "p times h": lambda p, o, d: (e_of(p, o, d), p * h_of(p, o, d)),
    },
    "moe.estimate": {
        "no factor 2": (estimate_in_a_loop(gain=lambda c: 1.0), "factor 2 missing"),
        "autograd without 2": (estimate_by_autograd(1.0), "factor 2 missing"),
        "through the half": (estimate_by_autograd(2.0, straight=False), "halved backwards too"),
        "through the half without 2": (
            estimate_by_autograd(1.0, straight=False),
            "halved backwards too, and not doubled",
        ),
        "undone": (estimate_in_a_loop(gain=lambda c: 1 / c), "doubled where it was halved alone"),
        "coin alone": (
            estimate_in_a_loop(factor=lambda coin, best: 0.5 if coin else 1.0),
            "most likely expert halved",
        ),
        "best alone": (
            estimate_in_a_loop(factor=lambda coin, best: 0.5 if coin and best else 1.0),
            "only the most likely halved",
        ),
        "whole": (estimate_in_a_loop(factor=lambda coin, best: 1.0), "never halved"),
        "Switch": (
            estimate_in_a_loop(lambda c: 1.0, lambda coin, best: 1.0),
            "neither halved nor doubled",
        ),
        "half unless best": (estimate_in_a_loop(factor=lambda coin, best: 1.0 if best else 0.5), "always halved"),
        "or for and": (
            estimate_in_a_loop(factor=lambda coin, best: 0.5 if coin or not best else 1.0),
            "always halved",
        ),
        "coin the other way": (
            estimate_in_a_loop(factor=lambda coin, best: 1.0 if coin or best else 0.5),
            "coin turned round",
        ),
        "log": (estimate_in_a_loop(row=lambda pi, n, e: e - pi), "gradient of log π"),
        "REINFORCE": (
            estimate_in_a_loop(
                lambda c: 1.0,
                row=lambda pi, n, e: e - pi,
                slope=lambda m, o, t: ((m * o - t) ** 2).sum() / 2,
            ),
            "REINFORCE",
        ),
        "chosen alone": (
            estimate_in_a_loop(row=lambda pi, n, e: pi[n] * (1 - pi[n]) * e),
            "the drawn logit alone",
        ),
        "diagonal": (estimate_in_a_loop(row=lambda pi, n, e: pi * (1 - pi)), "each expert's own slope"),
        "no π": estimate_in_a_loop(row=lambda pi, n, e: e),
        "sign of the row": (estimate_in_a_loop(row=lambda pi, n, e: pi[n] * (pi - e)), "turned round"),
        "ascent": (
            estimate_in_a_loop(slope=lambda m, o, t: ((t - m * o) * o).sum()),
            "turned round",
        ),
        "2 of the square": (
            estimate_in_a_loop(slope=lambda m, o, t: 2 * ((m * o - t) * o).sum()),
            "halved gradient of the square",
        ),
        "sum of the residual": (estimate_in_a_loop(slope=lambda m, o, t: (m * o - t).sum()), "not times the outputs"),
        "no multiplier": (estimate_in_a_loop(slope=lambda m, o, t: ((o - t) * o).sum()), "multiplier forgotten"),
        "a third": (
            estimate_in_a_loop(lambda c: 1.0, lambda coin, best: 1 / 3 if coin and not best else 1.0),
            "the second version's rule",
        ),
        "mean over tokens": (
            lambda x, *rest: estimate_in_a_loop()(x, *rest) / len(x),
            "averaged over tokens or outputs",
        ),
        "mean over outputs": (
            estimate_in_a_loop(slope=lambda m, o, t: ((m * o - t) * o).mean()),
            "averaged over tokens or outputs",
        ),
        "argmax": (
            lambda x, n, h, o, t: estimate_in_a_loop()(x, x.argmax(1), h, o, t),
            "the most likely instead of the drawn",
        ),
        "halved slope": estimate_in_a_loop(slope=lambda m, o, t: ((m * o - t) * m * o).sum()),
        "best never doubled": estimate_in_a_loop(gain=lambda c: 2.0 if c < 1 else 1.0),
        "half of the output alone": estimate_in_a_loop(row=lambda pi, n, e: pi[n] / 2 * (e - pi)),
        "cosine": estimate_in_a_loop(slope=lambda m, o, t: ((m * o - t) * o).sum() / o.norm()),
        "a row a token": lambda x, n, h, o, t: estimate_in_a_loop()(x, n, h, o, t).gather(1, n[:, None])[:, 0],
    },
}
