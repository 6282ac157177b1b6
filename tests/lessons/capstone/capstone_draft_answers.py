"""Answers to the last three exercises of lesson 12, as people write them.

Dimension key: k drafted tokens, V words, P parts, L levels.
"""

import bisect
import heapq
import itertools
import math

import numpy
import torch

# --- speculate: drafted (k,), q (k, V), p (k + 1, V), luck (k + 1,), stop ---


def left(p, q):
    more = torch.relu(p - q)
    return more / more.sum()


def roulette(weights, luck):
    for word, reached in enumerate(itertools.accumulate(weights.tolist())):
        if reached > luck:
            return word
    return len(weights) - 1


def block(
    falls=lambda p, q, u: u >= p / q,
    instead=left,
    behind=lambda p, q: p[-1],
    draw=roulette,
    which=lambda luck, i: luck[-1],
    end=lambda out, stop: out[: out.index(stop) + 1] if stop in out else out,
):
    def answer(drafted, q, p, luck, stop):
        out, weights = [], behind(p, q)
        for i, x in enumerate(drafted):
            if falls(p[i, x], q[i, x], luck[i]):
                weights = instead(p[i], q[i])
                break
            out.append(x.item())
        if weights is not None:
            out.append(draw(weights, which(luck, len(out))))
        return end(out, stop)

    return answer


def early(drafted, q, p, luck, stop):
    """Returns as soon as it is over."""
    out = []
    for i in range(len(drafted)):
        x = int(drafted[i])
        if luck[i] * q[i][x] < p[i][x]:
            out += [x]
            if x == stop:
                return torch.tensor(out)
        else:
            return torch.tensor([*out, roulette(left(p[i], q[i]), luck[-1])])
    return torch.tensor([*out, roulette(p[len(drafted)], luck[-1])])


def in_numpy(drafted, q, p, luck, stop):
    d, q, p, u = (numpy.asarray(each) for each in (drafted, q, p, luck))
    rows = numpy.arange(len(d))
    fall = numpy.flatnonzero(u[:-1] >= p[rows, d] / q[rows, d])
    n = fall[0] if len(fall) else len(d)
    w = p[n].astype(float)
    if n < len(d):
        w = numpy.maximum(w - q[n], 0)
        w = w / w.sum()
    word = int(numpy.searchsorted(numpy.cumsum(w), u[-1], side="right"))
    tokens = numpy.append(d[:n], min(word, len(w) - 1))
    at = numpy.flatnonzero(tokens == stop)
    return tokens[: at[0] + 1] if len(at) else tokens


def scaled_luck(drafted, q, p, luck, stop):
    """Luck times the sum, in place of the sum divided."""

    def draw(weights, u):
        return bisect.bisect_right(
            list(itertools.accumulate(weights.double().tolist())), float(u * weights.double().sum())
        )

    return block(instead=lambda p, q: (p - q).clamp(min=0), draw=draw)(drafted, q, p, luck, stop)


def any_fallen(drafted, q, p, luck, stop):
    """Each place by itself."""
    out = [
        int(x) if luck[i] < p[i, x] / q[i, x] else roulette(left(p[i], q[i]), luck[-1]) for i, x in enumerate(drafted)
    ]
    return [*out, roulette(p[-1], luck[-1])]


def kept(drafted, q, p, luck, stop):
    out = []
    for i, x in enumerate(drafted.tolist()):
        out.append(x)
        if luck[i] >= p[i, x] / q[i, x]:
            return out
    return [*out, roulette(p[-1], luck[-1])]


# --- gain: acceptance, k, model, further, draft ---


def worth(
    tokens=lambda a, k: sum(a**i for i in range(k + 1)),
    cost=lambda k, model, further, draft: model + k * further + k * draft,
    gain=lambda model, cost, n: model - cost / n,
):
    def answer(acceptance, k, model, further, draft):
        n = tokens(acceptance, k)
        return n, gain(model, cost(k, model, further, draft), n)

    return answer


def simulated(acceptance, k, model, further, draft):
    """All ways in which it can end."""
    n = 0.0
    for outcome in range(k + 1):
        chance = acceptance**outcome * (1 if outcome == k else 1 - acceptance)
        n += chance * (outcome + 1)
    return [n, model - (model + k * (further + draft)) / n]


def closed(a, k):
    return k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a)


# --- split: sizes (P, L), losses (P, L), budget ---


def climbing(
    value=lambda sizes, losses, p, i: (losses[p][i] - losses[p][i + 1]) / (sizes[p][i + 1] - sizes[p][i]),
    allowed=lambda used, budget: used <= budget,
    begin=lambda sizes: sum(row[0] for row in sizes),
    skip=True,
    out=lambda at, sizes: at,
):
    def answer(sizes, losses, budget):
        sizes, losses = sizes.tolist(), losses.tolist()
        at, used = [0] * len(sizes), begin(sizes)
        while True:
            up = [(value(sizes, losses, p, i), p) for p, i in enumerate(at) if i + 1 < len(sizes[p])]
            if skip:
                up = [(v, p) for v, p in up if allowed(used + sizes[p][at[p] + 1] - sizes[p][at[p]], budget)]
            if not up:
                return out(at, sizes)
            p = max(up)[1]
            more = sizes[p][at[p] + 1] - sizes[p][at[p]]
            if not allowed(used + more, budget):
                return out(at, sizes)
            used, at[p] = used + more, at[p] + 1

    return answer


def heaped(sizes, losses, budget):
    s, x = sizes.numpy(), losses.numpy().astype(float)
    at, rest = numpy.zeros(len(s), dtype=int), budget - s[:, 0].sum()

    def entry(p):
        i = at[p]
        return -(x[p, i] - x[p, i + 1]) / (s[p, i + 1] - s[p, i]), p

    heap = [entry(p) for p in range(len(s))]
    heapq.heapify(heap)
    while heap:
        p = heapq.heappop(heap)[1]
        more = s[p, at[p] + 1] - s[p, at[p]]
        if more <= rest:
            rest -= more
            at[p] += 1
            if at[p] + 1 < s.shape[1]:
                heapq.heappush(heap, entry(p))
    return at


def recursive(sizes, losses, budget, at=None):
    at = torch.zeros(len(sizes), dtype=torch.long) if at is None else at
    best, chosen = -math.inf, None
    for p in range(len(sizes)):
        trial = at.clone()
        trial[p] += 1
        if trial[p] < sizes.shape[1] and sizes.gather(1, trial[:, None]).sum() <= budget:
            rate = (losses[p, at[p]] - losses[p, trial[p]]).double() / (sizes[p, trial[p]] - sizes[p, at[p]])
            if rate > best:
                best, chosen = rate, trial
    return at if chosen is None else recursive(sizes, losses, budget, chosen)


def numpy_rates(sizes, losses, budget):
    s, x = sizes.numpy(), losses.numpy().astype(float)
    rate = -numpy.diff(x, axis=1) / numpy.diff(s, axis=1)
    at, rows = numpy.zeros(len(s), dtype=int), numpy.arange(len(s))
    for _ in range(s.size):
        more = numpy.where(at < rate.shape[1], s[rows, numpy.minimum(at + 1, rate.shape[1])] - s[rows, at], 10**15)
        r = numpy.where(
            more <= budget - s[rows, at].sum(), rate[rows, numpy.minimum(at, rate.shape[1] - 1)], -numpy.inf
        )
        if r.max() == -numpy.inf:
            break
        at[r.argmax()] += 1
    return torch.from_numpy(at)


def sorted_steps(sizes, losses, budget):
    steps = sorted(
        (
            ((losses[p, i] - losses[p, i + 1]).item() / (sizes[p, i + 1] - sizes[p, i]).item(), p, i)
            for p in range(len(sizes))
            for i in range(sizes.shape[1] - 1)
        ),
        reverse=True,
    )
    at, used = [0] * len(sizes), int(sizes[:, 0].sum())
    for _, p, i in steps:
        more = int(sizes[p, i + 1] - sizes[p, i])
        if at[p] == i and used + more <= budget:
            at[p], used = i + 1, used + more
    return at


def any_level(sizes, losses, budget):
    """The best jump to any level, not the next one."""
    at = [0] * len(sizes)
    while True:
        used = sum(int(sizes[p, i]) for p, i in enumerate(at))
        jumps = [
            (float(losses[p, i] - losses[p, j]) / float(sizes[p, j] - sizes[p, i]), p, j)
            for p, i in enumerate(at)
            for j in range(i + 1, sizes.shape[1])
            if used + int(sizes[p, j] - sizes[p, i]) <= budget
        ]
        if not jumps:
            return at
        _, p, j = max(jumps)
        at[p] = j


def downwards(sizes, losses, budget):
    """From the largest level down, what costs least a byte first."""
    at = [sizes.shape[1] - 1] * len(sizes)
    while sum(int(sizes[p, i]) for p, i in enumerate(at)) > budget:
        steps = [
            (float(losses[p, i - 1] - losses[p, i]) / float(sizes[p, i] - sizes[p, i - 1]), p)
            for p, i in enumerate(at)
            if i
        ]
        at[min(steps)[1]] -= 1
    return at


RIGHT = {
    "capstone.speculate": {
        "in a loop": block(),
        "early": early,
        "numpy": in_numpy,
        "scaled luck": scaled_luck,
        "tuple": lambda *given: tuple(block()(*given)),
        "p at least": block(falls=lambda p, q, u: p <= u * q),
        "min(1, p/q)": block(falls=lambda p, q, u: u >= min(1.0, float(p / q))),
        "in float64": lambda x, q, p, u, stop: block()(x, q.double(), p.double(), u.double(), stop),
    },
    "capstone.gain": {
        "sum": worth(),
        "quotient": worth(closed),
        "ways it can end": simulated,
        "tensor": lambda *given: torch.tensor(worth()(*given)),
        "list": lambda *given: list(worth()(*given)),
        "linspace": worth(lambda a, k: float(numpy.power(float(a), numpy.arange(k + 1)).sum())),
        "by tokens": worth(gain=lambda model, cost, n: (n * model - cost) / n),
        "polynomial": worth(lambda a, k: float(numpy.polyval([1.0] * (k + 1), a))),
    },
    "capstone.split": {
        "climbing": climbing(),
        "heap": heaped,
        "recursive": recursive,
        "numpy": numpy_rates,
        "left over": lambda s, x, budget: climbing(
            begin=lambda s: sum(r[0] for r in s) - budget, allowed=lambda u, b: u <= 0
        )(s, x, budget),
        "tensor": lambda *given: torch.tensor(climbing()(*given)),
        "tuple": lambda *given: tuple(climbing()(*given)),
        "negative": climbing(value=lambda s, x, p, i: -(x[p][i + 1] - x[p][i]) / (s[p][i + 1] - s[p][i])),
    },
}

WRONG = {
    "capstone.speculate": {
        "q/p": block(falls=lambda p, q, u: u >= q / p),
        "p alone": block(falls=lambda p, q, u: u >= p),
        "whenever p < q": block(falls=lambda p, q, u: p < q),
        "never": block(falls=lambda p, q, u: False),
        "not divided": block(instead=lambda p, q: (p - q).clamp(min=0)),
        "from p": block(instead=lambda p, q: p),
        "from q": block(instead=lambda p, q: q),
        "q - p": block(instead=lambda p, q: left(q, p)),
        "absolute": block(instead=lambda p, q: (p - q).abs() / (p - q).abs().sum()),
        "kept": kept,
        "nothing behind": block(behind=lambda p, q: None),
        "nothing instead": block(instead=lambda p, q: None),
        "from the last row but one": block(behind=lambda p, q: p[-2]),
        "greedy": block(draw=lambda w, u: int(w.argmax())),
        "next luck": block(which=lambda luck, i: luck[i]),
        "no stop": block(end=lambda out, stop: out),
        "without stop": block(end=lambda out, stop: out[: out.index(stop)] if stop in out else out),
        "each by itself": any_fallen,
        "from one": block(draw=lambda w, u: roulette(w, u) + 1),
        "how many": lambda *given: len(block()(*given)),
    },
    "capstone.gain": {
        "power k": worth(lambda a, k: k if a == 1 else (1 - a**k) / (1 - a)),
        "unguarded": worth(lambda a, k: (1 - a ** (k + 1)) / (1 - a)),
        "power k + 2": worth(lambda a, k: sum(a**i for i in range(k + 2))),
        "linear": worth(lambda a, k: 1 + k * a),
        "no bonus": worth(lambda a, k: sum(a**i for i in range(1, k + 1))),
        "a to the k": worth(lambda a, k: 1 + k * a**k),
        "free draft": worth(cost=lambda k, model, further, draft: model + k * further),
        "one draft": worth(cost=lambda k, model, further, draft: model + k * further + draft),
        "no further": worth(cost=lambda k, model, further, draft: model + k * draft),
        "k passes": worth(cost=lambda k, model, further, draft: k * (model + draft)),
        "a pass": worth(gain=lambda model, cost, n: model - cost),
        "times": worth(gain=lambda model, cost, n: model * n / cost),
        "cost a token": worth(gain=lambda model, cost, n: cost / n),
        "minus": worth(gain=lambda model, cost, n: cost / n - model),
        "at least 0": worth(gain=lambda model, cost, n: max(0.0, model - cost / n)),
        "harmonic": worth(lambda a, k: sum(a / i for i in range(1, k + 1)) + 1),
        "tokens alone": lambda *given: worth()(*given)[0],
        "root": worth(lambda a, k: (k + 1) ** a),
    },
    "capstone.split": {
        "most saved": climbing(value=lambda s, x, p, i: x[p][i] - x[p][i + 1]),
        "sorted once": sorted_steps,
        "ends at the first": climbing(skip=False),
        "by the new size": climbing(value=lambda s, x, p, i: (x[p][i] - x[p][i + 1]) / s[p][i + 1]),
        "from the smallest": climbing(value=lambda s, x, p, i: (x[p][0] - x[p][i + 1]) / (s[p][i + 1] - s[p][0])),
        "start for nothing": climbing(begin=lambda s: 0),
        "less than the budget": climbing(allowed=lambda used, budget: used < budget),
        "least saved": climbing(value=lambda s, x, p, i: -(x[p][i] - x[p][i + 1]) / (s[p][i + 1] - s[p][i])),
        "largest loss": climbing(value=lambda s, x, p, i: x[p][i]),
        "smallest step": climbing(value=lambda s, x, p, i: s[p][i] - s[p][i + 1]),
        "equal shares": lambda s, x, budget: ((s <= budget / len(s)).sum(1) - 1).clamp(min=0),
        "same level": lambda s, x, budget: torch.full((len(s),), int((s.sum(0) <= budget).sum()) - 1),
        "sizes": climbing(out=lambda at, sizes: [row[i] for row, i in zip(sizes, at, strict=True)]),
        "from one": climbing(out=lambda at, sizes: [i + 1 for i in at]),
        "any level": any_level,
        "downwards": downwards,
        "all": lambda s, x, budget: torch.full((len(s),), s.shape[1] - 1),
        "in order": climbing(value=lambda s, x, p, i: -p),
    },
}
