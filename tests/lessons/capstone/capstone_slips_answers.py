"""Slips in the exercises of lesson 12 that were let through or told another slip's name, each with the name it gets."""

import torch

INF = float("inf")


# --- combine: weight, norm, n_kept, bits, group ---


def combined(
    score=lambda w, norm: w.abs() * norm,
    n_steps=lambda bits: 2**bits - 1,
    alone=lambda low: low,
    how_many=lambda n, columns: n,
):
    def answer(weight, norm, n_kept, bits, group):
        out = torch.zeros_like(weight)
        for i, row in enumerate(weight):
            keep = score(row, norm).topk(how_many(n_kept, len(row))).indices.tolist()
            for start in range(0, len(row), group):
                here = [j for j in keep if start <= j < start + group]
                if here:
                    low, high = row[here].min(), row[here].max()
                    step = (high - low) / n_steps(bits)
                    code = ((row[here] - low) / step).round()
                    out[i, here] = low + code * step if step > 0 else alone(low)
        return out

    return answer


def on_a_line(weight, norm, n_kept, bits, group):
    """The nearest of the values of torch.linspace, which are of torch's own dtype."""
    out = torch.zeros_like(weight)
    for i, row in enumerate(weight):
        keep = (row.abs() * norm).topk(n_kept).indices.tolist()
        for start in range(0, len(row), group):
            here = [j for j in keep if start <= j < start + group]
            if here:
                values = torch.linspace(float(row[here].min()), float(row[here].max()), 2**bits)
                out[i, here] = values[(row[here][:, None] - values).abs().argmin(dim=1)]
    return out


def transposed_if_square(weight, *rest):
    return combined()(weight.T if weight.shape[0] == weight.shape[1] else weight, *rest)


COMBINE = {
    "divided by the norm": (combined(lambda w, norm: w.abs() / norm), "divided by the norm"),
    "norms alone": (combined(lambda w, norm: norm), "the norm alone"),
    "2^b − 2 steps": (combined(n_steps=lambda bits: 2**bits - 2), "too few steps"),
    "one alone becomes 0": (combined(alone=lambda low: 0.0), "a single weight becomes 0"),
    "n_kept are pruned": (combined(how_many=lambda n, columns: columns - n), "n_kept pruned"),
    "rows and columns exchanged where it fits": transposed_if_square,
}


# --- front: cost, losses ---


def fronts(n_errors=2.0, same=lambda a, b: bool((a == b).all()), both=True):
    def beats(cost, losses, i, j):
        d = (losses[j] - losses[i]).double()
        clear = d.mean() > n_errors * d.std() / len(d) ** 0.5
        cheap = cost[i] <= cost[j]
        return bool(cheap & clear if both else cheap | clear) or (
            same(losses[i], losses[j]) and bool(cost[i] < cost[j])
        )

    def answer(cost, losses):
        models = range(len(cost))
        return torch.tensor([not any(beats(cost, losses, i, j) for i in models) for j in models])

    return answer


def square_by_columns(cost, losses):
    return fronts()(cost, losses.T if losses.shape[0] == losses.shape[1] else losses)


FRONT = {
    "the same mean": (fronts(same=lambda a, b: bool(a.mean() == b.mean())), "equal means for equal losses"),
    "the same up to 0.01": (
        fronts(same=lambda a, b: bool(((a - b).abs() < 0.01).all())),
        "equal means for equal losses",
    ),
    "1.96 errors": (fronts(1.96), "not two errors"),
    "or for and": (fronts(both=False), "all models beaten"),
    "rows and columns exchanged where it fits": square_by_columns,
}


# --- split: sizes, losses, budget ---


def from_level_0(sizes, losses, budget):
    levels = [0] * len(sizes)
    while True:
        used, steps = sum(int(sizes[p, level]) for p, level in enumerate(levels)), []
        for p, level in enumerate(levels):
            if level + 1 < sizes.shape[1] and used + int(sizes[p, level + 1] - sizes[p, level]) <= budget:
                steps.append((float((losses[p, 0] - losses[p, level + 1]) / (sizes[p, level + 1] - sizes[p, 0])), p))
        if not steps:
            return torch.tensor(levels)
        levels[max(steps)[1]] += 1


# --- speculate: drafted, q, p, luck, stop ---


def block(stays=lambda p, q, luck: luck < p / q, fallen=lambda p, q: (p - q).clamp(min=0), greedy=False):
    def draw(weights, luck):
        return int((weights.double().cumsum(0) / weights.double().sum() <= luck).sum().clamp(max=len(weights) - 1))

    def answer(drafted, q, p, luck, stop):
        tokens, weights = [], p[-1]
        for i, x in enumerate(drafted.tolist()):
            if not (p[i].argmax() == x if greedy else stays(p[i, x], q[i, x], luck[i])):
                weights = fallen(p[i], q[i])
                break
            tokens.append(x)
        tokens.append(draw(weights, luck[-1]))
        return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens

    return answer


SPECULATE = {
    "luck above the ratio": (block(lambda p, q, luck: luck > p / q), "above the ratio"),
    "greedy": (block(greedy=True), "only the likeliest token"),
    "p at least q": (block(lambda p, q, luck: p >= q), "random number left out"),
    "below q": (block(lambda p, q, luck: luck < q), "q alone"),
    "below p": (block(lambda p, q, luck: luck < p), "p alone"),
    "|p − q|": (block(fallen=lambda p, q: (p - q).abs()), "absolute difference"),
    "softmax of p − q": (block(fallen=lambda p, q: (p - q).softmax(0)), "softmax of the difference"),
}


# --- gain: acceptance, k, model, further, draft ---


def gained(n_drafts=lambda k: k, n_further=lambda k: k, gain=lambda before, after: before - after, tokens=None):
    def answer(a, k, model, further, draft):
        n = sum(a**i for i in range(k + 1)) if tokens is None else tokens(a, k)
        return n, gain(model, (model + n_further(k) * further + n_drafts(k) * draft) / n)

    return answer


GAIN = {
    "k + 1 drafts": (gained(n_drafts=lambda k: k + 1), "not k drafted tokens"),
    "k − 1 further": (gained(n_further=lambda k: k - 1), "not k further tokens"),
    "a share": (gained(gain=lambda before, after: 1 - after / before), "a ratio"),
    "all or none": (gained(tokens=lambda a, k: 1 + k * a**k), "all or none"),
}

RIGHT = {"capstone.combine": {"torch.linspace": on_a_line}}
WRONG = {
    "capstone.combine": COMBINE,
    "capstone.front": FRONT,
    "capstone.split": {"slope from level 0": (from_level_0, "counted from level 0")},
    "capstone.speculate": SPECULATE,
    "capstone.gain": GAIN,
}
