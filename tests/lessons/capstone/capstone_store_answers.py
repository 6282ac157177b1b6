"""Answers to the first four exercises of lesson 12, as people write them.

Dimension key: O rows, I columns, N windows, M models.
"""

import math
import statistics

import numpy
import scipy.stats
import torch

# --- bytes: rows, columns, bits, group ---


def counted(
    every=lambda o, i, b: o * math.ceil(i * b / 8),
    codes=lambda n, b: math.ceil(n * b / 8),
    bitmap=lambda o, i: o * math.ceil(i / 8),
    index=lambda n: 2 * n,
    starts=lambda o: 4 * o + 4,
    fewer=lambda a, b: a < b,
    out=lambda found, o, i: found,
):
    """Counts the bytes of both formats for one number of weights after the other, with large steps first."""

    def answer(rows, columns, bits, group):
        found = []
        for where in (lambda n: bitmap(rows, columns), index):
            n, step = -1, 2**21
            while step:
                size = codes(n + step, bits) + where(n + step) + starts(rows)
                if fewer(size, every(rows, columns, bits)):
                    n += step
                else:
                    step //= 2
            found.append(n)
        return out(tuple(found), rows, columns)

    return answer


def in_bits(rows, columns, bits, group):
    """Everything in bits, and one bit less than a whole byte more."""
    padded = [n + -n % 8 for n in (columns * bits, columns)]
    room = rows * padded[0] - 32 * (rows + 1) - 8
    return torch.tensor([(room - rows * padded[1]) // bits, room // (bits + 16)]).clamp(min=-1)


def with_divmod(rows, columns, bits, group):
    whole = lambda n: n // 8 + (n % 8 > 0)  # noqa: E731
    bytes_left = rows * whole(columns * bits) - 4 * (rows + 1)
    a, b = bytes_left - rows * whole(columns), bytes_left
    return (a - 1) * 8 // bits if a > 0 else -1, (b - 1) * 8 // (bits + 16) if b > 0 else -1


def in_floats(rows, columns, bits, group):
    left = rows * numpy.ceil(columns * bits / 8) - 4 * (rows + 1)
    most = numpy.array([(left - rows * numpy.ceil(columns / 8) - 1) / (bits / 8), (left - 1) / (2 + bits / 8)])
    return numpy.maximum(numpy.floor(most + 1e-9), -1)


# --- combine: weight (O, I), norm (I,), n_kept, bits, group ---


def put_together(
    score=lambda w, norm: w.abs() * norm,
    pick=lambda score, n: score.topk(n).indices,
    ends=lambda kept: (min(kept), max(kept)),
    steps=lambda bits: 2**bits - 1,
    to=round,
    size=lambda row, group: group,
    final=lambda low, code, step: low + code * step,
    zeros=lambda low, step: 0.0,
):
    """Row by row, group by group."""

    def answer(weight, norm, n_kept, bits, group):
        out = torch.zeros_like(weight)
        for r, row in enumerate(weight):
            stays = set(pick(score(row, norm), n_kept).tolist())
            group_size = size(row, group)
            for start in range(0, len(row), group_size):
                here = [i for i in range(start, start + group_size) if i in stays]
                if not here:
                    continue
                low, high = ends([row[i].item() for i in here])
                step = (high - low) / steps(bits)
                for i in range(start, start + group_size):
                    code = to((row[i].item() - low) / step) if step else 0
                    if i in stays:
                        out[r, i] = final(low, code, step)
                    else:
                        out[r, i] = zeros(low, step)
        return out

    return answer


def by_kth_value(weight, norm, n_kept, bits, group):
    score = weight.abs() * norm
    least = score.kthvalue(score.shape[1] - n_kept + 1, dim=1, keepdim=True).values
    keep = score >= least
    w, k = (
        weight.view(len(weight), -1, group) if weight.is_contiguous() else weight.reshape(len(weight), -1, group),
        None,
    )
    k = keep.reshape(w.shape)
    low = torch.where(k, w, w.new_tensor(math.inf)).min(-1, keepdim=True).values
    high = torch.where(k, w, w.new_tensor(-math.inf)).max(-1, keepdim=True).values
    step = ((high - low) / (2**bits - 1)).clamp(min=1e-12)
    out = low + torch.round((w - low) / step) * step
    out[~k] = 0
    return out.reshape(weight.shape)


def in_numpy(weight, norm, n_kept, bits, group):
    w, f = weight.numpy().astype(float), norm.numpy().astype(float)
    out = numpy.zeros_like(w)
    for r in range(len(w)):
        best = numpy.argsort(-abs(w[r]) * f)[:n_kept]
        for g in set(best // group):
            i = best[best // group == g]
            levels = numpy.linspace(w[r, i].min(), w[r, i].max(), 2**bits)
            out[r, i] = levels[abs(levels[:, None] - w[r, i]).argmin(0)]
    return out


def masked_arrays(weight, norm, n_kept, bits, group):
    rank = (weight.abs() * norm).argsort(dim=1, descending=True).argsort(dim=1)
    masked = numpy.ma.masked_array(weight.numpy().reshape(len(weight), -1, group), mask=(rank >= n_kept).numpy())
    low, high = masked.min(axis=2, keepdims=True), masked.max(axis=2, keepdims=True)
    step = (high - low) / (2**bits - 1)
    step = numpy.ma.where(step == 0, 1, step)
    return torch.tensor((low + numpy.ma.round((masked - low) / step) * step).filled(0.0)).reshape(weight.shape)


def many_masks(weight, norm, n_kept, bits, group):
    """In place, in a copy."""
    new = weight.clone()
    keep = torch.zeros(new.shape, dtype=torch.bool)
    keep.scatter_(1, torch.topk(new.abs() * norm.unsqueeze(0), n_kept, dim=1)[1], True)
    for start in range(0, new.shape[1], group):
        part, k = new[:, start : start + group], keep[:, start : start + group]
        for r in range(len(new)):
            some = part[r][k[r]]
            if len(some) > 1:
                step = (some.max() - some.min()) / (2**bits - 1)
                part[r][k[r]] = torch.round((some - some.min()) / step) * step + some.min()
    new[~keep] = 0
    return new


def searched(weight, norm, n_kept, bits, group):
    """bucketize between the values."""
    base = put_together()(weight, norm, n_kept, bits, group)
    out = base.clone()
    keep = torch.zeros(weight.shape, dtype=torch.bool)
    keep.scatter_(1, (weight.abs() * norm).topk(n_kept).indices, True)
    for r in range(len(weight)):
        for s in range(0, weight.shape[1], group):
            i = torch.arange(s, s + group)[keep[r, s : s + group]]
            if len(i):
                values = torch.linspace(0, 1, 2**bits, dtype=torch.float64) * float(
                    weight[r, i].max() - weight[r, i].min()
                )
                values += float(weight[r, i].min())
                middles = (values[1:] + values[:-1]) / 2
                out[r, i] = values[torch.bucketize(weight[r, i].double(), middles)].to(out)
    return out


def pruned_then_grid(weight, norm, n_kept, bits, group):
    keep = torch.zeros(weight.shape, dtype=torch.bool)
    keep.scatter_(1, (weight.abs() * norm).topk(n_kept).indices, True)
    w = (weight * keep).unflatten(1, (-1, group))
    low, high = w.amin(-1, True), w.amax(-1, True)
    step = ((high - low) / (2**bits - 1)).clamp(min=1e-9)
    return low, step, w, keep


def zeros_rounded(weight, norm, n_kept, bits, group):
    low, step, w, _ = pruned_then_grid(weight, norm, n_kept, bits, group)
    return (low + ((w - low) / step).round() * step).flatten(1)


def zeros_in_the_grid(weight, norm, n_kept, bits, group):
    low, step, w, keep = pruned_then_grid(weight, norm, n_kept, bits, group)
    return (low + ((w - low) / step).round() * step).flatten(1) * keep


def dense_grid(weight, norm, n_kept, bits, group, order=False):
    w = weight.unflatten(1, (-1, group))
    low, high = w.amin(-1, True), w.amax(-1, True)
    step = (high - low) / (2**bits - 1)
    rounded = (low + ((w - low) / step).round() * step).flatten(1)
    score = (rounded if order else weight).abs() * norm
    keep = torch.zeros(weight.shape, dtype=torch.bool).scatter_(1, score.topk(n_kept).indices, True)
    return rounded * keep


# --- ratio: losses, dense (N,), factor ---


def needed(
    paired=lambda a, b: (a - b).var(),
    independent=lambda a, b: a.var() + b.var(),
    reach=math.log,
    n_errors=2,
    to=math.ceil,
    least=2,
    out=tuple,
):
    def answer(losses, dense, factor):
        a, b = losses.double(), dense.double()
        variances = float(paired(a, b)), float(independent(a, b))
        return out([max(least, to(n_errors**2 * each / reach(factor) ** 2)) for each in variances])

    return answer


def needed_in_numpy(losses, dense, factor):
    a, b = (numpy.asarray(each, dtype=float) for each in (losses, dense))
    n = (2 / numpy.log(factor)) ** 2 * numpy.array([(a - b).var(ddof=1), a.var(ddof=1) + b.var(ddof=1)])
    return numpy.maximum(numpy.ceil(n), 2).astype(int)


def by_errors(losses, dense, factor):
    """From the standard errors of the given windows."""
    n = len(losses)
    errors = scipy.stats.sem((losses - dense).double()), math.hypot(*map(scipy.stats.sem, (losses, dense)))
    return [max(2, math.ceil(n * (2 * each / math.log(factor)) ** 2)) for each in errors]


def by_statistics(losses, dense, factor):
    a, b = losses.tolist(), dense.tolist()
    differences = [x - y for x, y in zip(a, b, strict=True)]
    variances = statistics.variance(differences), statistics.variance(a) + statistics.variance(b)
    return torch.tensor([max(2, math.ceil(4 * v / math.log(factor) ** 2)) for v in variances])


# --- front: cost (M,), losses (M, N) ---


def pairs(beats, count=lambda beaten: not beaten):
    def answer(cost, losses):
        n = len(cost)
        rows = losses.double()
        return torch.tensor([count(any(beats(cost, rows, i, j) for i in range(n) if i != j)) for j in range(n)])

    return answer


def clear(cost, losses, i, j, cheap=lambda a, b: a <= b, n_errors=2, twin=True, sign=1):
    d = sign * (losses[j] - losses[i])
    if twin and (d == 0).all():
        return bool(cost[i] < cost[j])
    error = d.std() / len(d) ** 0.5
    return bool(cheap(cost[i], cost[j])) and bool(d.mean() > n_errors * error)


def by_means(cost, losses, i, j):
    a, b = losses[i].mean(), losses[j].mean()
    return bool(cost[i] <= cost[j] and a <= b and (cost[i] < cost[j] or a < b))


def front_in_numpy(cost, losses):
    c, x = cost.numpy(), losses.numpy().astype(float)
    d = x[None] - x[:, None]
    beats = (c[:, None] <= c) & (d.mean(-1) > 2 * d.std(-1, ddof=1) / numpy.sqrt(x.shape[1]))
    beats |= (d == 0).all(-1) & (c[:, None] < c)
    return ~beats.any(0)


def taken_out(cost, losses):
    left = set(range(len(cost)))
    for i in range(len(cost)):
        left -= {j for j in range(len(cost)) if j != i and clear(cost, losses.double(), i, j)}
    return [j in left for j in range(len(cost))]


def t_statistic(cost, losses):
    """Where t is above 2."""
    keep = torch.ones(len(cost), dtype=torch.bool)
    for j in range(len(cost)):
        for i in range(len(cost)):
            d = (losses[j] - losses[i]).double()
            if cost[i] <= cost[j]:
                t = d.mean() / (d.std() / len(d) ** 0.5)
                if t > 2 or (d.abs().max() == 0 and cost[i] != cost[j]):
                    keep[j] = False
    return keep


def running(cost, losses, order=lambda c, x: c.argsort(stable=True)):
    """Sorted by cost, the best so far is compared."""
    rows, best, keep = losses.double(), None, torch.zeros(len(cost), dtype=torch.bool)
    for j in order(cost, losses).tolist():
        if best is None or not clear(cost, rows, best, j):
            keep[j] = True
        if best is None or rows[j].mean() < rows[best].mean():
            best = j
    return keep


def only_better(cost, losses):
    best, keep = math.inf, torch.zeros(len(cost), dtype=torch.bool)
    for j in sorted(range(len(cost)), key=lambda j: float(cost[j])):
        if losses[j].mean() < best:
            best, keep[j] = float(losses[j].mean()), True
    return keep


def hull(cost, losses):
    """Below the line between its neighbours."""
    x, order = losses.mean(1), cost.argsort()
    keep = torch.ones(len(cost), dtype=torch.bool)
    for a, b, c in zip(order, order[1:], order[2:], strict=False):
        t = (cost[b] - cost[a]) / (cost[c] - cost[a]).clamp(min=1e-9)
        keep[b] = x[b] <= x[a] + t * (x[c] - x[a])
    return keep


RIGHT = {
    "capstone.bytes": {
        "counted": counted(),
        "in bits": in_bits,
        "divmod": with_divmod,
        "floats": in_floats,
        "list": counted(out=lambda found, o, i: list(found)),
    },
    "capstone.combine": {
        "in loops": put_together(),
        "kth value": by_kth_value,
        "numpy": in_numpy,
        "masked arrays": masked_arrays,
        "in place in a copy": many_masks,
        "bucketize": searched,
        "sorted": put_together(pick=lambda s, n: s.argsort()[-n:]),
        "in float64": lambda w, norm, *rest: put_together()(w.double(), norm.double(), *rest).float(),
    },
    "capstone.ratio": {
        "plain": needed(),
        "numpy": needed_in_numpy,
        "from errors": by_errors,
        "statistics": by_statistics,
        "list": needed(out=list),
        "float32": lambda losses, dense, factor: torch.stack(
            [(4 * v / math.log(factor) ** 2).ceil() for v in ((losses - dense).var(), losses.var() + dense.var())]
        ).clamp(min=2),
    },
    "capstone.front": {
        "pairs": pairs(clear),
        "numpy": front_in_numpy,
        "taken out": taken_out,
        "t": t_statistic,
        "list": lambda cost, losses: pairs(clear)(cost, losses).tolist(),
        "float": lambda cost, losses: pairs(clear)(cost, losses).float(),
        "against itself too": lambda c, x: torch.tensor(
            [not any(clear(c, x.double(), i, j) for i in range(len(c))) for j in range(len(c))]
        ),
        "all": lambda c, x: torch.tensor(
            [all(not clear(c, x.double(), i, j) for i in range(len(c))) for j in range(len(c))]
        ),
    },
}

NONE = lambda *given: 0  # noqa: E731, as what is left out
WRONG = {
    "capstone.bytes": {
        "no bitmap": counted(bitmap=NONE),
        "no index": counted(index=NONE),
        "no starts": counted(starts=NONE),
        "starts of rows alone": counted(starts=lambda o: 4 * o),
        "starts everywhere": counted(every=lambda o, i, b: o * math.ceil(i * b / 8) + 4 * o + 4),
        "as many": counted(fewer=lambda a, b: a <= b),
        "int32 columns": counted(index=lambda n: 4 * n),
        "one byte per code": counted(codes=lambda n, b: n, every=lambda o, i, b: o * i),
        "whole matrix": counted(
            every=lambda o, i, b: math.ceil(o * i * b / 8), bitmap=lambda o, i: math.ceil(o * i / 8)
        ),
        "floor": counted(codes=lambda n, b: n * b // 8),
        "zeros": counted(out=lambda found, o, i: tuple(o * i - n for n in found)),
        "sparsity": counted(out=lambda found, o, i: tuple(1 - n / (o * i) for n in found)),
        "one too many": counted(out=lambda found, o, i: tuple(n + 1 for n in found)),
        "the better one": counted(out=lambda found, o, i: max(found)),
        "exchanged": counted(out=lambda found, o, i: found[::-1]),
        "not below 0": counted(out=lambda found, o, i: tuple(max(0, n) for n in found)),
        "half of them": lambda o, i, b, g: (o * i // 2, o * i // 2),
        "one in b": lambda o, i, b, g: (o * i - o * i // b, o * i * b // (b + 16)),
    },
    "capstone.combine": {
        "zeros rounded": zeros_rounded,
        "zeros in the grid": zeros_in_the_grid,
        "dense grid": dense_grid,
        "rounded first": lambda *given: dense_grid(*given, order=True),
        "magnitude": put_together(score=lambda w, norm: w.abs()),
        "norms alone": put_together(score=lambda w, norm: norm),
        "signed": put_together(score=lambda w, norm: w * norm),
        "smallest": put_together(pick=lambda s, n: s.argsort()[:n]),
        "2^bits steps": put_together(steps=lambda bits: 2**bits),
        "int": put_together(to=int),
        "row grid": put_together(size=lambda row, group: len(row)),
        "from zero": put_together(final=lambda low, code, step: code * step),
        "codes": put_together(final=lambda low, code, step: code),
        "symmetric": put_together(ends=lambda kept: (-max(map(abs, kept)), max(map(abs, kept)))),
        "mean and deviation": put_together(
            ends=lambda kept: (
                statistics.fmean(kept) - 2 * statistics.pstdev(kept),
                statistics.fmean(kept) + 2 * statistics.pstdev(kept),
            )
        ),
        "no rounding": put_together(to=lambda code: code),
        "zeros become the low end": put_together(zeros=lambda low, step: low),
        "dense": lambda w, *rest: w,
    },
    "capstone.ratio": {
        "not paired": needed(paired=lambda a, b: a.var() + b.var()),
        "own variance": needed(independent=lambda a, b: a.var()),
        "averaged": needed(independent=lambda a, b: (a.var() + b.var()) / 2),
        "errors added": needed(independent=lambda a, b: (a.std() + b.std()) ** 2),
        "one error": needed(n_errors=1),
        "1.96": needed(n_errors=1.96),
        "width": needed(n_errors=4),
        "factor less 1": needed(reach=lambda factor: factor - 1),
        "factor": needed(reach=lambda factor: factor),
        "log10": needed(reach=math.log10),
        "standard deviations": needed(paired=lambda a, b: (a - b).std(), independent=lambda a, b: a.std() + b.std()),
        "errors": needed(paired=lambda a, b: (a - b).var() / len(a), independent=lambda a, b: (a.var() + b.var()) / 9),
        "biased": needed(
            paired=lambda a, b: (a - b).var(correction=0),
            independent=lambda a, b: a.var(correction=0) + b.var(correction=0),
        ),
        "floor": needed(to=int),
        "nearest": needed(to=round),
        "not whole": needed(to=float),
        "one window": needed(least=1),
        "exchanged": needed(out=lambda found: found[::-1]),
        "only pairs": needed(out=lambda found: found[0]),
        "ratios": needed(paired=lambda a, b: (a / b).var()),
        "perplexities": needed(paired=lambda a, b: (a.exp() / b.exp()).var()),
        "as many as given": lambda losses, dense, factor: (len(losses), len(losses)),
    },
    "capstone.front": {
        "means": pairs(by_means),
        "new best": only_better,
        "running best": running,
        "one error": pairs(lambda c, x, i, j: clear(c, x, i, j, n_errors=1)),
        "cheaper only": pairs(lambda c, x, i, j: clear(c, x, i, j, cheap=lambda a, b: a < b)),
        "dearer ones beat": pairs(lambda c, x, i, j: clear(c, x, i, j, cheap=lambda a, b: a >= b)),
        "worse ones beat": pairs(lambda c, x, i, j: clear(c, x, i, j, sign=-1)),
        "whatever the cost": pairs(lambda c, x, i, j: clear(c, x, i, j, cheap=lambda a, b: True)),
        "no twins": pairs(lambda c, x, i, j: clear(c, x, i, j, twin=False)),
        "beaten": pairs(clear, count=bool),
        "indices": lambda c, x: pairs(clear)(c, x).nonzero()[:, 0],
        "hull": hull,
        "largest window": pairs(lambda c, x, i, j: bool(c[i] <= c[j]) and bool((x[j] > x[i]).all())),
        "most windows": pairs(lambda c, x, i, j: bool(c[i] <= c[j]) and bool((x[j] > x[i]).float().mean() > 0.5)),
        "unpaired": pairs(
            lambda c, x, i, j: (
                bool(c[i] <= c[j])
                and bool(x[j].mean() - x[i].mean() > 2 * ((x[i].var() + x[j].var()) / x.shape[1]) ** 0.5)
            )
        ),
        "twins leave": pairs(
            lambda c, x, i, j: (
                bool(c[i] <= c[j]) and bool((x[j] - x[i]).mean() >= 2 * (x[j] - x[i]).std() / x.shape[1] ** 0.5)
            )
        ),
        "everything": lambda c, x: torch.ones(len(c), dtype=torch.bool),
        "below the median": lambda c, x: x.mean(1) <= x.mean(1).median(),
    },
}
