"""Answers to the first four exercises of lesson 12, as people write them.

Dimension key: O rows, I columns, D domains, N windows, M models.
"""

import math
import statistics

import numpy
import scipy.stats
import torch

WAYS = ("all codes", "bitmap", "index")


# --- bytes: weight (O, I), bits, group ---


def counted(
    codes=lambda w, bits: math.ceil(w.count_nonzero() * bits / 8),
    every=lambda w, bits: len(w) * math.ceil(w.shape[1] * bits / 8),
    bitmap=lambda w: len(w) * math.ceil(w.shape[1] / 8),
    index=lambda w: 2 * int(w.count_nonzero()),
    starts=lambda w: 4 * len(w) + 4,
    groups=lambda w, group: math.ceil(w.shape[1] / group),
    scale=lambda n: 2 * n,
    zero=lambda n, bits: math.ceil(n * bits / 8),
    to=lambda size: size,
):
    def answer(weight, bits, group):
        n = groups(weight, group)
        grids = len(weight) * (scale(n) + zero(n, bits))
        beside = codes(weight, bits) + starts(weight) + grids
        sizes = every(weight, bits) + grids, beside + bitmap(weight), beside + index(weight)
        return {way: to(int(size)) for way, size in zip(WAYS, sizes, strict=True)}

    return answer


def packed_in_numpy(weight, bits, group):
    """By packing it, and looking how long that is."""
    w = weight.numpy()
    mask = numpy.packbits(w != 0, axis=1)
    codes = numpy.packbits(numpy.zeros((len(w), w.shape[1] * bits), dtype=numpy.uint8), axis=1)
    some = numpy.packbits(numpy.zeros(numpy.count_nonzero(w) * bits, dtype=numpy.uint8))
    n = len(range(0, w.shape[1], group))
    zeros = numpy.packbits(numpy.zeros((len(w), n * bits), dtype=numpy.uint8), axis=1)
    grids = numpy.zeros((len(w), n), dtype=numpy.float16).nbytes + zeros.nbytes
    starts = numpy.zeros(len(w) + 1, dtype=numpy.int32).nbytes
    columns = numpy.nonzero(w)[1].astype(numpy.uint16)
    return {
        "index": grids + starts + some.nbytes + columns.nbytes,
        "bitmap": grids + starts + some.nbytes + mask.nbytes,
        "all codes": grids + codes.nbytes,
    }


def with_divmod(weight, bits, group):
    def whole(n, d=8):
        q, r = divmod(n, d)
        return q + (r > 0)

    o, i = weight.size()
    k = (weight != 0).sum().item()
    g = whole(i, group)
    out = dict.fromkeys(WAYS, o * (2 * g + whole(g * bits)))
    out["all codes"] += o * whole(i * bits)
    for name, where in (("bitmap", o * whole(i)), ("index", k * 2)):
        out[name] += whole(k * bits) + where + (o + 1) * 4
    return out


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


# --- ratio: mine, dense (D, N) ---


def interval(
    middle=lambda d: d.mean(1),
    error=lambda d: d.std(1) / d.shape[1] ** 0.5,
    out=lambda m, e: (torch.exp(m), torch.exp(m - 2 * e), torch.exp(m + 2 * e)),
    of=lambda mine, dense: mine - dense,
):
    def answer(mine, dense):
        d = of(mine, dense)
        return out(middle(d), error(d))

    return answer


def ratio_in_numpy(mine, dense):
    d = numpy.asarray(mine, dtype=float) - numpy.asarray(dense, dtype=float)
    mean, error = d.mean(axis=1), scipy.stats.sem(d, axis=1)
    return numpy.exp(mean), numpy.exp(mean - 2 * error), numpy.exp(mean + 2 * error)


def ratio_by_domain(mine, dense):
    rows = []
    for a, b in zip(mine, dense, strict=True):
        d = [x - y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        m, e = statistics.fmean(d), statistics.stdev(d) / math.sqrt(len(d))
        rows.append([math.exp(m), math.exp(m - 2 * e), math.exp(m + 2 * e)])
    return torch.tensor(rows, dtype=torch.float64).T.unbind()


def geometric(mine, dense):
    r = (mine - dense).double().exp()
    log = r.log()
    se = (log.var(dim=1) / r.shape[1]).sqrt()
    g = log.mean(dim=1).exp()
    return g, g * (-2 * se).exp(), g * (2 * se).exp()


def of_two(mine, dense, error):
    m = mine.mean(1) - dense.mean(1)
    return m.exp(), (m - 2 * error).exp(), (m + 2 * error).exp()


def sem(x):
    return x.std(1) / x.shape[1] ** 0.5


def ppl_means(mine, dense):
    a, b = mine.exp(), dense.exp()
    r = a.mean(1) / b.mean(1)
    e = sem(a / b)
    return r, r - 2 * e, r + 2 * e


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
        "by parts": counted(),
        "packed in numpy": packed_in_numpy,
        "divmod": with_divmod,
        "floats": counted(to=float),
        "tensors": counted(to=torch.tensor),
        "nonzero": counted(index=lambda w: w.nonzero().numel()),
        "shifted": counted(bitmap=lambda w: len(w) * ((w.shape[1] + 7) >> 3)),
        "float64 first": lambda w, bits, group: counted()(w.double(), bits, group),
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
        "plain": interval(),
        "numpy": ratio_in_numpy,
        "by domain": ratio_by_domain,
        "geometric mean": geometric,
        "float64": lambda mine, dense: interval()(mine.double(), dense.double()),
        "powers of e": interval(out=lambda m, e: tuple(math.e ** (m + k * e) for k in (0, -2, 2))),
        "var": interval(error=lambda d: (d.var(1) / d.shape[1]).sqrt()),
        "variance by hand": interval(
            error=lambda d: (((d - d.mean(1, True)) ** 2).sum(1) / (d.shape[1] * (d.shape[1] - 1))).sqrt()
        ),
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
        "no grids": counted(scale=NONE, zero=NONE),
        "no scales": counted(scale=NONE),
        "zeros twice": counted(codes=lambda w, b: math.ceil(w.numel() * b / 8)),
        "no starts": counted(starts=NONE),
        "starts of rows alone": counted(starts=lambda w: 4 * len(w)),
        "int32 columns": counted(index=lambda w: 4 * int(w.count_nonzero())),
        "bits": counted(to=lambda size: 8 * size),
        "one grid a row": counted(groups=lambda w, g: 1),
        "zero points in 16 bits": counted(zero=lambda n, bits: 2 * n),
        "half precision everywhere": counted(
            every=lambda w, b: 2 * w.numel(), codes=lambda w, b: 2 * w.count_nonzero()
        ),
        "floor": counted(
            codes=lambda w, b: w.count_nonzero() * b // 8,
            every=lambda w, b: w.numel() * b // 8,
            bitmap=lambda w: w.numel() // 8,
            zero=lambda n, bits: n * bits // 8,
        ),
        "the number of zeros": counted(codes=lambda w, b: math.ceil((w == 0).sum() * b / 8)),
        "starts everywhere": lambda w, b, g: {
            k: v + 4 * (len(w) + 1) * (k == "all codes") for k, v in counted()(w, b, g).items()
        },
        "the best": lambda *given: min(counted()(*given).values()),
        "dense": lambda w, bits, group: dict.fromkeys(WAYS, w.numel() * 4),
        "half done": lambda w, bits, group: {"all codes": counted()(w, bits, group)["all codes"]},
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
        "sum of errors": lambda m, d: of_two(m, d, sem(m) + sem(d)),
        "two samples": lambda m, d: of_two(m, d, (sem(m) ** 2 + sem(d) ** 2) ** 0.5),
        "own error": lambda m, d: of_two(m, d, sem(m)),
        "mean of ratios": interval(of=lambda m, d: (m - d).exp(), out=lambda m, e: (m, m - 2 * e, m + 2 * e)),
        "perplexities": ppl_means,
        "deviation": interval(error=lambda d: d.std(1)),
        "biased": interval(error=lambda d: d.std(1, correction=0) / d.shape[1] ** 0.5),
        "one error": interval(out=lambda m, e: (m.exp(), (m - e).exp(), (m + e).exp())),
        "1.96": interval(out=lambda m, e: (m.exp(), (m - 1.96 * e).exp(), (m + 1.96 * e).exp())),
        "delta rule": interval(out=lambda m, e: (m.exp(), m.exp() * (1 - 2 * e), m.exp() * (1 + 2 * e))),
        "nats": interval(out=lambda m, e: (m, m - 2 * e, m + 2 * e)),
        "dense over mine": interval(of=lambda m, d: d - m),
        "windows for domains": lambda m, d: interval()(m.T, d.T),
        "high before low": interval(out=lambda m, e: (m.exp(), (m + 2 * e).exp(), (m - 2 * e).exp())),
        "no ends": interval(out=lambda m, e: m.exp()),
        "ratio and error": interval(out=lambda m, e: (m.exp(), m.exp() * e)),
        "medians": interval(middle=lambda d: d.median(1).values),
        "extremes": lambda m, d: ((m - d).mean(1).exp(), (m - d).amin(1).exp(), (m - d).amax(1).exp()),
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
