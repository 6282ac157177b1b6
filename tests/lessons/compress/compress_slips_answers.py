"""Slips in the exercises of lesson 10 that were told another slip's name, each with the name it gets."""

import numpy
import torch

# --- before: prompt, text, real ---


def put_before(prompt, text, real, seen=None, fill=lambda text, real: text):
    vectors = torch.cat([prompt.expand(len(text), -1, -1), fill(text, real)], dim=1)
    mask = torch.cat([torch.ones(len(text), len(prompt), dtype=torch.bool), real], dim=1)
    return vectors, mask if seen is None else seen, mask.long().cumsum(dim=1) - 1


def mask_filled_up(prompt, text, real):
    return put_before(prompt, text, real, torch.nn.functional.pad(real, (0, len(prompt))))


BEFORE = {
    "padding vectors cleared": (
        lambda p, x, r: put_before(p, x, r, fill=lambda text, real: text.masked_fill(~real[..., None], 0.0)),
        "padding set to 0",
    ),
    "False at the mask's end": (mask_filled_up, "mask padded at the end"),
    "positions second": (lambda p, x, r: tuple(put_before(p, x, r)[i] for i in (0, 2, 1)), "returned in another order"),
}


# --- initial: table, lots, n, step ---


def begun(rows=None, step=lambda s: s, table=lambda t, ids: t):
    def answer(t, lots, n, s):
        ids = lots.topk(n).indices
        return (t[ids] if rows is None else rows(t, n)) - step(s), table(t, ids)

    return answer


def without(t, ids):
    keep = torch.ones(len(t), dtype=torch.bool)
    keep[ids] = False
    return t[keep]


INITIAL = {
    "table without the rows": (begun(table=without), "another table"),
    "rows of the table cleared": (begun(table=lambda t, ids: t.index_fill(0, ids, 0.0)), "another table"),
    "table sorted": (begun(table=lambda t, ids: t.sort(dim=0).values), "another table"),
    "steps from behind": (begun(step=lambda s: s.flip(0)), "steps in another order"),
    "the mean step": (begun(step=lambda s: s.mean(dim=0)), "steps in another order"),
    "the first rows and no step": (begun(rows=lambda t, n: t[:n], step=lambda s: 0 * s), "step forgotten"),
    "twice the step": (begun(step=lambda s: 2 * s), "no rows of the table"),
}


# --- metric: prompted, plain, real; transfer: plain, own, moved, dense, dense_own ---


def compared(error, ratio=lambda d: d.mean().exp()):
    def answer(prompted, plain, real):
        counts = real[:, 1:].double()
        d = ((prompted[:, -plain.shape[1] :] - plain) * counts).sum(dim=1) / counts.sum(dim=1)
        return ratio(d), error(d)

    return answer


def usual(d):
    return d.mean().exp() * d.std() / len(d) ** 0.5


METRIC = {
    "divided by N": (compared(lambda d: d.mean().exp() * d.std() / len(d)), "divided by N"),
    "variance over N": (compared(lambda d: d.mean().exp() * d.var() / len(d)), "the square of the error"),
    "N − 1 twice": (compared(lambda d: d.mean().exp() * d.std() / (len(d) - 1) ** 0.5), "√(N − 1) instead of √N"),
    "N − 1 without a root": (compared(lambda d: d.mean().exp() * d.std() / (len(d) - 1)), "divided by N"),
    "numpy's std, in nats": (compared(lambda d: numpy.std(d.numpy()) / len(d) ** 0.5), "error of the logarithm"),
    "numpy's std, of a window": (compared(lambda d: d.mean().exp() * numpy.std(d.numpy())), "spread of the windows"),
    "around zero": (
        compared(lambda d: d.mean().exp() * d.square().mean() ** 0.5 / len(d) ** 0.5),
        "mean not subtracted",
    ),
    "numpy's std, of the windows' ratios": (
        compared(lambda d: numpy.std(d.exp().numpy()) / len(d) ** 0.5, lambda d: d.exp().mean()),
        "mean of the windows' ratios",
    ),
    "windows' ratios": (compared(usual, lambda d: d.exp().mean()), "mean of the windows' ratios"),
}


def shared(error=None, moved=1, own=1):
    """moved, own: how often the control is taken off each."""

    def answer(plain, with_own, with_moved, dense, dense_own):
        control = (dense - dense_own).double()
        a, b = plain - with_moved - moved * control, plain - with_own - own * control
        q = a.mean() / b.mean()
        return q, error(a, b) if error else (a - q * b).std() / len(a) ** 0.5 / b.mean().abs()

    return answer


def spread(a, b):
    return (a - a.mean() / b.mean() * b).std() / b.mean().abs()


TRANSFER = {
    "divided by N": (shared(lambda a, b: spread(a, b) / len(a)), "divided by N"),
    "N − 1 twice": (shared(lambda a, b: spread(a, b) / (len(a) - 1) ** 0.5), "√(N − 1) instead of √N"),
    "spread of a − b": (shared(lambda a, b: (a - b).std() / len(a) ** 0.5 / b.mean().abs()), "spread of a − b"),
    "control off the moved gain": (shared(own=0), "control on one side"),
    "control off the own gain": (shared(moved=0), "control on one side"),
}


# --- bytes: layers, others, prompt, bits, group ---


def ratio_of(average, with_the_rest=False):
    """How many times smaller: an average of the ratios of the layers."""

    def answer(layers, others, prompt, bits, group):
        ratios = [stored()((layer,), 0, 0, bits, group)[1] for layer in layers] + [1] * with_the_rest
        return stored()(layers, others, prompt, bits, group)[0], average(ratios)

    return answer


def stored(codes=lambda k, bits, n: -(-k * bits // 8), bitmap=lambda rows, columns, k: rows * -(-columns // 8)):
    def answer(layers, others, prompt, bits, group):
        total = 2 * (others + prompt)
        for rows, columns, k in layers:
            groups = -(-columns // group)
            total += codes(k, bits, rows * columns) + bitmap(rows, columns, k) + 4 * (rows + 1)
            total += rows * (2 * groups + -(-groups * bits // 8))
        return total, 2 * (others + sum(rows * columns for rows, columns, _ in layers)) / total

    return answer


BYTES = {
    "bits of what is left": (stored(bitmap=lambda rows, columns, k: -(-k // 8)), "bitmap for some weights"),
    "bits of what is gone": (
        stored(bitmap=lambda rows, columns, k: -(-(rows * columns - k) // 8)),
        "bitmap for some weights",
    ),
    "mean over the layers": (ratio_of(numpy.mean), "mean of ratios"),
    "mean over the layers and the rest": (ratio_of(numpy.mean, with_the_rest=True), "mean of ratios"),
    "harmonic mean over the layers": (ratio_of(lambda each: 1 / numpy.mean(1 / numpy.array(each))), "mean of ratios"),
    "a byte a code": (stored(codes=lambda k, bits, n: k), "codes not packed"),
    "nothing left out": (
        stored(lambda k, bits, n: -(-n * bits // 8), lambda rows, columns, k: -4 * (rows + 1)),
        "nothing pruned",
    ),
}

RIGHT = {}
WRONG = {
    "compress.before": BEFORE,
    "compress.initial": INITIAL,
    "compress.metric": METRIC,
    "compress.transfer": TRANSFER,
    "compress.bytes": BYTES,
}
