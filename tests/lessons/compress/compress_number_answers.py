"""Answers to the last three exercises of lesson 10, as people write them.

Dimension key: N windows, T tokens of a window, P vectors of the prompt.
"""

import math
from statistics import fmean, stdev

import numpy
import torch

# --- metric: prompted (N, P + T - 1), plain (N, T - 1), real (N, T) ---


def mean_where(losses, counts):
    return torch.where(counts, losses.double(), 0).sum(1) / counts.sum(1)


def of_windows(prompted, plain, real):
    counts = real[:, 1:]
    return mean_where(prompted[:, -plain.shape[1] :], counts), mean_where(plain, counts)


def factor(a, b):
    d = a - b
    return d.mean().exp(), d.mean().exp() * d.std() / math.sqrt(len(d))


def compared(losses=of_windows, ratio=None, error=None):
    """From other losses of the windows, with another ratio or another error: (a, b) -> a number."""

    def answer(*given):
        a, b = losses(*given)
        right = factor(a, b)
        return right[0] if ratio is None else ratio(a, b), right[1] if error is None else error(a, b)

    return answer


def compared_in_numpy(prompted, plain, real):
    p, q = prompted.numpy()[:, prompted.shape[1] - plain.shape[1] :], plain.numpy()
    d = numpy.average(p.astype(float) - q, axis=1, weights=real.numpy()[:, 1:])
    return numpy.exp(d.mean()), numpy.exp(d.mean()) * numpy.std(d, ddof=1) / numpy.sqrt(d.size)


def compared_in_python(prompted, plain, real):
    d = []
    for p, q, r in zip(prompted.tolist(), plain.tolist(), real.tolist(), strict=True):
        n = r.count(True) - 1
        d.append(fmean(x - y for x, y in zip(p[len(p) - len(q) :][:n], q[:n], strict=True)))
    ratio = math.exp(fmean(d))
    return [ratio, ratio * stdev(d) / len(d) ** 0.5]


def published(prompted, plain, real):
    """As published: the mean over all places with the prompt, over the text without."""
    return prompted.double().mean(1), plain.double().mean(1)


def nonzero(prompted, plain, real):
    """What is zero is left out, so that the first token counts."""
    n = prompted.shape[1] - plain.shape[1]
    counts = torch.cat([torch.zeros(len(real), n - 1, dtype=torch.bool), real], 1)
    return mean_where(prompted, counts), mean_where(plain, real[:, 1:])


# --- bytes: layers, others, prompt, bits, group ---


def up(x):
    return math.ceil(x)


def sized(
    codes=lambda r, c, k, b: up(k * b / 8),
    bitmap=lambda r, c, k: r * up(c / 8),
    starts=lambda r: 4 * (r + 1),
    scales=lambda r, c, g: 2 * r * up(c / g),
    zeros=lambda r, c, g, b: r * up(up(c / g) * b / 8),
    others=lambda n, b: 2 * n,
    prompt=lambda n: 2 * n,
    dense=lambda layers, n: 2 * n + 2 * sum(r * c for r, c, _ in layers),
    times=lambda n, dense: dense / n,
):
    def answer(layers, n_others, n_prompt, bits, group):
        n = others(n_others, bits) + prompt(n_prompt)
        for r, c, k in layers:
            n += codes(r, c, k, bits) + bitmap(r, c, k) + starts(r) + scales(r, c, group) + zeros(r, c, group, bits)
        return n, times(n, dense(layers, n_others))

    return answer


def sized_in_numpy(layers, others, prompt, bits, group):
    rows, columns, kept = numpy.array(layers, dtype=numpy.int64).T
    groups = (columns + group - 1) // group
    parts = (kept * bits + 7) // 8 + rows * ((columns + 7) // 8 + 2 * groups + (groups * bits + 7) // 8) + 4 * rows + 4
    n = int(parts.sum()) + 2 * others + 2 * prompt
    return n, 2 * (int((rows * columns).sum()) + others) / n


# --- transfer: plain, own, moved, dense, dense_own, each (N,) ---


def repaired(plain, own, moved, dense, dense_own):
    return (plain - moved) - (dense - dense_own), (plain - own) - (dense - dense_own)


def delta(a, b):
    q = a.mean() / b.mean()
    return (a - q * b).std() / len(a) ** 0.5 / abs(b.mean())


def shared(gains=repaired, share=lambda a, b: a.mean() / b.mean(), error=delta):
    def answer(*given):
        a, b = gains(*(x.double() for x in given))
        return share(a, b), error(a, b)

    return answer


def shared_in_numpy(*given):
    p, o, m, d, c = (x.numpy().astype(float) for x in given)
    a, b = p - m - d + c, p - o - d + c
    q, (of_a, of_ab, of_b) = a.mean() / b.mean(), numpy.cov(a, b).flatten()[[0, 1, 3]]
    return q, numpy.sqrt((of_a + q * q * of_b - 2 * q * of_ab) / len(a)) / abs(b.mean())


RIGHT = {
    "compress.metric": {
        "numpy": compared_in_numpy,
        "Python": compared_in_python,
        "torch": compared(),
        "ratio of the two mean perplexities of logs": compared(
            ratio=lambda a, b: a.mean().exp() / b.mean().exp(),
            error=lambda a, b: a.mean().exp() / b.mean().exp() * ((a - b).var() / len(a)).sqrt(),
        ),
        "in float32": lambda p, q, r: factor(*(x.float() for x in of_windows(p, q, r))),
    },
    "compress.bytes": {
        "numpy": sized_in_numpy,
        "Python": sized(),
        "as a dictionary's values": lambda *given: list(dict(zip("ab", sized()(*given), strict=True)).values()),
    },
    "compress.transfer": {
        "numpy": shared_in_numpy,
        "torch": shared(),
        "in the number format that is given": lambda *given: (
            shared()(*given)[0].float(), delta(*repaired(*given))
        ),
        "jackknife in its place would differ, sums do not": shared(share=lambda a, b: a.sum() / b.sum()),
    },
}  # fmt: skip

WRONG = {
    "compress.metric": {
        "published": (compared(published), "zeros of the prompt averaged"),
        "published, text alone counted in both": (
            compared(
                lambda p, q, r: (
                    (p[:, p.shape[1] - q.shape[1] :] * r[:, 1:]).double().sum(1)
                    / (r.sum(1) - 1 + p.shape[1] - q.shape[1]),
                    mean_where(q, r[:, 1:]),
                )
            ),
            "zeros of the prompt averaged",
        ),
        "what is not zero": (compared(nonzero), "different tokens"),
        "all columns of the text": (
            compared(lambda p, q, r: (p[:, -q.shape[1] :].double().mean(1), q.double().mean(1))),
            "padding counted",
        ),
        "zeros in padding": (
            compared(
                lambda p, q, r: ((p[:, -q.shape[1] :] * r[:, 1:]).double().mean(1), (q * r[:, 1:]).double().mean(1))
            ),
            "divided by the padding too",
        ),
        "first columns": (
            compared(lambda p, q, r: (mean_where(p[:, : q.shape[1]], r[:, 1:]), mean_where(q, r[:, 1:]))),
            "columns shifted against each other",
        ),
        "one column early": (
            compared(lambda p, q, r: (mean_where(p[:, -q.shape[1] - 1 : -1], r[:, 1:]), mean_where(q, r[:, 1:]))),
            "columns shifted against each other",
        ),
        "mask of the tokens read": (
            compared(lambda p, q, r: (mean_where(p[:, -q.shape[1] :], r[:, :-1]), mean_where(q, r[:, :-1]))),
            "mask not shifted",
        ),
        "mean perplexities": (compared(ratio=lambda a, b: a.exp().mean() / b.exp().mean()), "mean of perplexities"),
        "mean of ratios": (compared(ratio=lambda a, b: (a - b).exp().mean()), "mean of the windows' ratios"),
        "one heap": (
            compared(lambda p, q, r: (p[:, -q.shape[1] :][r[:, 1:]].double(), q[r[:, 1:]].double())),
            "tokens instead of windows",
        ),
        "one heap, error of windows": (
            lambda p, q, r: ((p[:, -q.shape[1] :] - q)[r[:, 1:]].mean().exp(), factor(*of_windows(p, q, r))[1]),
            "tokens instead of windows",
        ),
        "independent": (
            compared(error=lambda a, b: (a - b).mean().exp() * ((a.var() + b.var()) / len(a)) ** 0.5),
            "not paired",
        ),
        "spread": (compared(error=lambda a, b: (a - b).mean().exp() * (a - b).std()), "spread of the windows"),
        "error in nats": (compared(error=lambda a, b: (a - b).std() / len(a) ** 0.5), "error of the logarithm"),
        "population": (
            compared(error=lambda a, b: (a - b).mean().exp() * (a - b).std(unbiased=False) / len(a) ** 0.5),
            "N instead of N − 1",
        ),
        "error of the ratios": (
            compared(error=lambda a, b: (a - b).exp().std() / len(a) ** 0.5),
            "error of the windows' ratios",
        ),
        "the other way": (compared(lambda *g: of_windows(*g)[::-1]), "upside down"),
        "nats": (
            compared(ratio=lambda a, b: (a - b).mean(), error=lambda a, b: (a - b).std() / len(a) ** 0.5),
            "nats, or a ratio of losses",
        ),
        "ratio of losses": (compared(ratio=lambda a, b: a.mean() / b.mean()), "nats, or a ratio of losses"),
        "gain": (compared(ratio=lambda a, b: 1 - (a - b).mean().exp()), "the reduction"),
        "twice the error": (compared(error=lambda a, b: 1.96 * factor(a, b)[1]), "half an interval"),
        "median": (compared(ratio=lambda a, b: (a - b).median().exp()), "median of the windows"),
        "one number": (lambda *g: compared()(*g)[0], "not these two numbers"),
    },
    "compress.bytes": {
        "no bitmap": (sized(bitmap=lambda r, c, k: 0), "bitmap forgotten"),
        "no bitmap, no starts": (sized(bitmap=lambda r, c, k: 0, starts=lambda r: 0), "bitmap forgotten"),
        "no grids": (sized(scales=lambda r, c, g: 0, zeros=lambda r, c, g, b: 0), "scales forgotten"),
        "no zero points": (sized(zeros=lambda r, c, g, b: 0), "scales forgotten"),
        "all codes": (sized(codes=lambda r, c, k, b: up(r * c * b / 8)), "zeros counted twice"),
        "codes in bits": (sized(codes=lambda r, c, k, b: k * b), "bits instead of bytes"),
        "a byte a weight in the map": (sized(bitmap=lambda r, c, k: r * c), "bits instead of bytes"),
        "embedding left out": (
            sized(others=lambda n, b: 0, dense=lambda layers, n: 2 * sum(r * c for r, c, _ in layers)),
            "embedding left out",
        ),
        "embedding not stored": (sized(others=lambda n, b: 0), "embedding left out"),
        "embedding in 4 bits": (sized(others=lambda n, b: up(n * b / 8)), "others rounded as well"),
        "no prompt": (sized(prompt=lambda n: 0), "prompt forgotten"),
        "prompt in float32": (sized(prompt=lambda n: 4 * n), "another number format"),
        "against float32": (
            sized(dense=lambda layers, n: 4 * n + 4 * sum(r * c for r, c, _ in layers)),
            "another number format",
        ),
        "8 times": (sized(times=lambda n, dense: 8.0), "codes alone"),
        "codes and map alone": (
            sized(starts=lambda r: 0, scales=lambda r, c, g: 0, zeros=lambda r, c, g, b: 0),
            "scales forgotten",
        ),
        "prompt not in the ratio": (
            lambda L, o, p, b, g: (sized()(L, o, p, b, g)[0], sized()(L, o, 0, b, g)[1]),
            "prompt forgotten",
        ),
        "no starts": (sized(starts=lambda r: 0), "row starts forgotten"),
        "a start a row": (sized(starts=lambda r: 4 * r), "row starts forgotten"),
        "map in one run": (sized(bitmap=lambda r, c, k: up(r * c / 8)), "parts of bytes"),
        "whole groups alone": (
            sized(scales=lambda r, c, g: 2 * r * (c // g), zeros=lambda r, c, g, b: r * up(c // g * b / 8)),
            "other groups",
        ),
        "a scale a row": (
            sized(scales=lambda r, c, g: 2 * r, zeros=lambda r, c, g, b: r * up(b / 8)),
            "other groups",
        ),
        "zero points in 16 bits": (sized(zeros=lambda r, c, g, b: 2 * r * up(c / g)), "zero points not packed"),
        "a byte for a zero point": (
            sized(zeros=lambda r, c, g, b: r * up(c / g)),
            "zero points not packed",
        ),
        "column indices": (sized(bitmap=lambda r, c, k: 4 * k), "column numbers instead of the bitmap"),
        "short column indices, no starts": (
            sized(bitmap=lambda r, c, k: 2 * k, starts=lambda r: 0),
            "column numbers instead of the bitmap",
        ),
        "what is gone": (sized(codes=lambda r, c, k, b: up((r * c - k) * b / 8)), "the zeros stored instead"),
        "share": (sized(times=lambda n, dense: n / dense), "upside down"),
        "saved": (sized(times=lambda n, dense: 1 - n / dense), "upside down"),
        "megabytes": (lambda *g: (sized()(*g)[0] / 1e6, sized()(*g)[1]), "another unit"),
        "bits a weight": (
            lambda *g: (8 * sized()(*g)[0] / sum(r * c for r, c, _ in g[0]), sized()(*g)[1]),
            "another unit",
        ),
        "bytes alone": (lambda *g: sized()(*g)[0], "not these two numbers"),
    },
    "compress.transfer": {
        "no control": (shared(lambda p, o, m, d, c: (p - m, p - o)), "control forgotten"),
        "control above": (shared(lambda p, o, m, d, c: (p - m - d + c, p - o)), "control on one side"),
        "control below": (shared(lambda p, o, m, d, c: (p - m, p - o - d + c)), "control on one side"),
        "control added": (shared(lambda p, o, m, d, c: (p - m + d - c, p - o + d - c)), "control added"),
        "from the dense model": (shared(lambda p, o, m, d, c: (d - m, d - o)), "wrong baseline"),
        "of the gap": (shared(lambda p, o, m, d, c: (p - m, p - d)), "wrong baseline"),
        "from the dense model's prompt": (shared(lambda p, o, m, d, c: (m - c, o - c)), "wrong baseline"),
        "losses": (shared(lambda p, o, m, d, c: (m, o)), "losses instead of gains"),
        "perplexities": (
            lambda p, o, m, d, c: (
                repaired(*(x.double().mean().exp() for x in (p, o, m, d, c)))[0]
                / repaired(*(x.double().mean().exp() for x in (p, o, m, d, c)))[1],
                shared()(p, o, m, d, c)[1],
            ),
            "perplexities instead of losses",
        ),
        "ratio of ratios": (
            shared(share=lambda a, b: a.mean().exp() / b.mean().exp()),
            "perplexities instead of losses",
        ),
        "perplexities of windows": (
            shared(lambda *g: repaired(*(x.exp() for x in g))),
            "perplexities instead of losses",
        ),
        "mean of shares": (shared(share=lambda a, b: (a / b).mean()), "mean of ratios"),
        "mean of shares and its error": (
            shared(share=lambda a, b: (a / b).mean(), error=lambda a, b: (a / b).std() / len(a) ** 0.5),
            "mean of ratios",
        ),
        "independent errors": (
            shared(
                error=lambda a, b: (
                    abs(a.mean() / b.mean()) * (a.var() / a.mean() ** 2 + b.var() / b.mean() ** 2).div(len(a)).sqrt()
                )
            ),
            "not paired",
        ),
        "error of the numerator": (
            shared(error=lambda a, b: a.std() / len(a) ** 0.5 / b.mean()),
            "as if the own gain were exact",
        ),
        "error of the difference": (
            shared(error=lambda a, b: (a - b).std() / len(a) ** 0.5 / b.mean()),
            "spread of a − b",
        ),
        "in nats": (
            shared(error=lambda a, b: (a - a.mean() / b.mean() * b).std() / len(a) ** 0.5),
            "error of a difference",
        ),
        "error of shares": (
            shared(error=lambda a, b: (a / b).std() / len(a) ** 0.5),
            "error of the windows' fractions",
        ),
        "control as one number": (
            lambda p, o, m, d, c: (
                shared()(p, o, m, d, c)[0],
                delta(*repaired(p, o, m, *(x.mean().expand(len(x)) for x in (d, c)))),
            ),
            "control in the mean alone",
        ),
        "no control, no error": (
            lambda p, o, m, d, c: ((p - m).mean() / (p - o).mean(), 0.0),
            "control forgotten",
        ),
        "no error": (lambda *g: (shared()(*g)[0], 0.0), "not these two numbers"),
        "relative error": (
            shared(error=lambda a, b: delta(a, b) / abs(a.mean() / b.mean())),
            "relative error",
        ),
        "half an interval": (shared(error=lambda a, b: 1.96 * delta(a, b)), "half an interval"),
        "spread": (shared(error=lambda a, b: delta(a, b) * len(a) ** 0.5), "spread of the windows"),
        "population": (
            shared(error=lambda a, b: (a - a.mean() / b.mean() * b).std(unbiased=False) / len(a) ** 0.5 / b.mean()),
            "N instead of N − 1",
        ),
        "the other way": (shared(lambda *g: repaired(*g)[::-1]), "upside down"),
        "lost": (shared(share=lambda a, b: 1 - a.mean() / b.mean()), "the part that does not transfer"),
        "nats lost": (shared(share=lambda a, b: (b - a).mean()), "the part that does not transfer"),
        "clamped": (shared(share=lambda a, b: (a.mean() / b.mean()).clamp(0, 1)), "clamped, or in per cent"),
        "slope of a line": (shared(share=lambda a, b: (a * b).sum() / (b * b).sum()), "slope of a line"),
        "slope with a constant": (
            shared(share=lambda a, b: ((a - a.mean()) * (b - b.mean())).sum() / (b - b.mean()).square().sum()),
            "slope of a line",
        ),
        "share alone": (lambda *g: shared()(*g)[0], "not these two numbers"),
    },
}
