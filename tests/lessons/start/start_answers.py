"""Answers to the exercises of lesson 00, as people write them."""

import math

import numpy
import torch


def zeros_one_by_one(tensor):
    n = 0
    for number in tensor.reshape(-1):
        if number == 0:
            n += 1
    return n / tensor.numel()


def step_by_case(flops, n_bytes, flops_per_second, bytes_per_second):
    total = 0
    for one, other in zip(flops, n_bytes, strict=True):
        computing, reading = one / flops_per_second, other / bytes_per_second
        total += computing if computing > reading else reading
    return total


def in_numpy(flops, n_bytes, flops_per_second, bytes_per_second):
    return numpy.maximum(flops.numpy() / flops_per_second, n_bytes.numpy() / bytes_per_second).sum()


def speedup_by_times(share, goal):
    rest = 1 - share
    allowed = 1 / goal
    if rest >= allowed:
        return 0
    return share / (allowed - rest)


def speedup_by_trying(share, goal):
    """Bisection over the share of the part's time that is left."""
    if 1 / goal <= 1 - share:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 / (1 - share + share * middle) > goal else (low, middle)
    return 1 / high


def caught_division(share, goal):
    try:
        return share / (1 / goal - (1 - share))
    except ZeroDivisionError:
        return 0.0


def cache_by_block(n_blocks, n_query, n_key_value, head_size, n_tokens, batch, value_bytes):
    total = 0
    for _ in range(n_blocks):
        keys = batch * n_key_value * n_tokens * head_size
        total += keys + keys
    return total * value_bytes


RIGHT = {
    "start.sparsity": {
        "one by one": zeros_one_by_one,
        "numpy": lambda tensor: float(1 - numpy.count_nonzero(tensor.numpy()) / tensor.numpy().size),
        "by the shape": lambda tensor: (tensor == 0).sum().item() / math.prod(tensor.shape),
        "logical not": lambda tensor: torch.logical_not(tensor).float().mean(),
    },
    "start.intensity": {
        "step by step": lambda o, i, n, b: (2 * o * i * n) / (o * i * b + n * i * b + n * o * b),
        "float64 tensor": lambda o, i, n, b: (
            torch.tensor(2.0, dtype=torch.float64) * o * i * n / ((o * i + n * i + n * o) * b)
        ),
        "tensors without numbers": lambda o, i, n, b: (
            2 * n * o * i / b / sum(torch.empty(s, device="meta").numel() for s in ((o, i), (n, i), (n, o)))
        ),
    },
    "start.step_seconds": {
        "by case": step_by_case,
        "numpy": in_numpy,
        "by the bound": lambda f, b, fs, bs: (f / torch.clamp(bs * f / b, max=fs)).sum(),
        "stacked": lambda f, b, fs, bs: torch.stack([f / fs, b / bs]).max(dim=0).values.sum(),
        "in float32": lambda f, b, fs, bs: float(torch.maximum((f / fs).float(), (b / bs).float()).sum()),
    },
    "start.speedup": {
        "by times": speedup_by_times,
        "bisection": speedup_by_trying,
        "numpy": lambda p, g: numpy.float64(p) / (1 / g - (1 - p)) if 1 / g - (1 - p) > 0 else numpy.float64(0),
    },
    "start.cache_bytes": {
        "block by block": cache_by_block,
        "numpy": lambda n, q, h, d, t, b, v: numpy.prod(numpy.array([2, n, h, d, t, b, v], dtype=object)),
        "math.prod": lambda n, q, h, d, t, b, v: math.prod((b, h, t, d)) * n * v * 2,
    },
}
WRONG = {
    "start.sparsity": {
        "density": lambda t: (t != 0).float().mean().item(),
        "count_nonzero over all": lambda t: torch.count_nonzero(t).item() / t.numel(),
        "count": lambda t: (t == 0).sum(),
        "count of what is not zero": lambda t: torch.count_nonzero(t).item(),
        "by rows": lambda t: (t == 0).sum().item() / t.shape[0],
        "by columns": lambda t: (t == 0).sum().item() / t.shape[-1],
        "below 1e-8": lambda t: (t.abs() < 1e-8).float().mean().item(),
        "below 1e-5": lambda t: (t.abs() < 1e-5).float().mean().item(),
        "not above zero": lambda t: (t <= 0).float().mean().item(),
        "a percentage": lambda t: 100 * (t == 0).float().mean().item(),
        "a number a row": lambda t: (t == 0).float().mean(dim=-1),
        "zeros to the others": lambda t: (t == 0).sum().item() / max(1, torch.count_nonzero(t).item()),
        "mean of truth values": lambda t: (t == 0).mean(),
    },
    "start.intensity": {
        "one FLOP": lambda o, i, n, b: o * i * n / (b * (o * i + n * (o + i))),
        "weights alone": lambda o, i, n, b: 2 * o * i * n / (b * o * i),
        "without outputs": lambda o, i, n, b: 2 * o * i * n / (b * (o * i + n * i)),
        "without inputs": lambda o, i, n, b: 2 * o * i * n / (b * (o * i + n * o)),
        "weights a token": lambda o, i, n, b: 2 * o * i * n / (b * n * (o * i + o + i)),
        "numbers": lambda o, i, n, b: 2 * o * i * n / (o * i + n * (o + i)),
        "bytes a FLOP": lambda o, i, n, b: b * (o * i + n * (o + i)) / (2 * o * i * n),
        "one token": lambda o, i, n, b: 2 * o * i / (b * (o * i + o + i)),
        "activations once": lambda o, i, n, b: 2 * o * i * n / (b * (o * i + o + i)),
        "FLOPs of one token": (lambda o, i, n, b: 2 * o * i / (b * (o * i + n * (o + i))), "FLOPs of one token"),
        "four bytes always": lambda o, i, n, b: 2 * o * i * n / (4 * (o * i + n * (o + i))),
        "times the bytes": lambda o, i, n, b: 2 * o * i * n * b / (o * i + n * (o + i)),
        "bytes of the weight alone": lambda o, i, n, b: 2 * o * i * n / (b * o * i + n * (o + i)),
    },
    "start.step_seconds": {
        "sum": lambda f, b, fs, bs: (f / fs + b / bs).sum(),
        "max of the sums": lambda f, b, fs, bs: max(f.sum() / fs, b.sum() / bs),
        "max of the sums by the ridge": lambda f, b, fs, bs: (
            f.sum() / fs if f.sum() / b.sum() > fs / bs else b.sum() / bs
        ),
        "shorter": lambda f, b, fs, bs: torch.minimum(f / fs, b / bs).sum(),
        "arithmetic": lambda f, b, fs, bs: (f / fs).sum(),
        "memory": lambda f, b, fs, bs: (b / bs).sum(),
        "slowest layer": lambda f, b, fs, bs: torch.maximum(f / fs, b / bs).max(),
        "the longest time of all": lambda f, b, fs, bs: max((f / fs).max(), (b / bs).max()),
        "a row of times": lambda f, b, fs, bs: torch.maximum(f / fs, b / bs),
        "upside down": lambda f, b, fs, bs: torch.maximum(fs / f, bs / b).sum(),
        "rates swapped": lambda f, b, fs, bs: torch.maximum(f / bs, b / fs).sum(),
        "mean of the layers": lambda f, b, fs, bs: torch.maximum(f / fs, b / bs).mean(),
        "mean of the two": lambda f, b, fs, bs: (f / fs + b / bs).sum() / 2,
        "products": lambda f, b, fs, bs: torch.maximum(f * fs, b * bs).sum(),
        "by the larger amount": lambda f, b, fs, bs: torch.where(f > b, f / fs, b / bs).sum(),
        "wrong way at the ridge": lambda f, b, fs, bs: torch.where(f / b < fs / bs, f / fs, b / bs).sum(),
        "milliseconds": lambda f, b, fs, bs: 1000 * torch.maximum(f / fs, b / bs).sum(),
        "the first layer": lambda f, b, fs, bs: max(f[0] / fs, b[0] / bs),
        "max of two rows": lambda f, b, fs, bs: max(f / fs, b / bs),
    },
    "start.speedup": {
        "forward": lambda p, g: 1 / ((1 - p) + p / g),
        "negative": lambda p, g: p / (1 / g - (1 - p)),
        "negative, but no division by zero": caught_division,
        "the goal": lambda p, g: g,
        "goal by share": lambda p, g: g / p,
        "goal times share": lambda p, g: g * p,
        "time left": lambda p, g: 1 / g - (1 - p),
        "one over time left": lambda p, g: 1 / (1 / g - (1 - p)) if 1 / g > 1 - p else 0,
        "the limit": lambda p, g: 1 / (1 - p) if p < 1 else math.inf,
        "infinite where out of reach": lambda p, g: p / (1 / g - (1 - p)) if 1 / g > 1 - p else math.inf,
        "none where out of reach": lambda p, g: p / (1 / g - (1 - p)) if 1 / g > 1 - p else None,
        "rest swapped": lambda p, g: (1 - p) / (1 / g - p) if 1 / g > p else 0,
        "absolute value": lambda p, g: p / abs(1 / g - (1 - p)) if 1 / g != 1 - p else 0,
        "the gain alone": lambda p, g: p / (p - (g - 1)) if p > g - 1 else 0,
        "limit instead of 0": lambda p, g: p / (1 / g - (1 - p)) if 1 / g > 1 - p else 1 / (1 - p),
    },
    "start.cache_bytes": {
        "keys": lambda n, q, h, d, t, b, v: n * h * d * t * b * v,
        "query heads": lambda n, q, h, d, t, b, v: 2 * n * q * d * t * b * v,
        "both kinds of heads": lambda n, q, h, d, t, b, v: 2 * n * (q + h) * d * t * b * v,
        "queries too": lambda n, q, h, d, t, b, v: n * (q + 2 * h) * d * t * b * v,
        "one block": lambda n, q, h, d, t, b, v: 2 * h * d * t * b * v,
        "one sequence": lambda n, q, h, d, t, b, v: 2 * n * h * d * t * v,
        "one token": lambda n, q, h, d, t, b, v: 2 * n * h * d * b * v,
        "one head": lambda n, q, h, d, t, b, v: 2 * n * d * t * b * v,
        "numbers": lambda n, q, h, d, t, b, v: 2 * n * h * d * t * b,
        "bits": lambda n, q, h, d, t, b, v: 16 * n * h * d * t * b * v,
        "the head's size left out": lambda n, q, h, d, t, b, v: 2 * n * h * t * b * v,
        "square of the tokens": lambda n, q, h, d, t, b, v: 2 * n * h * t * t * b * v,
        "the group's size": lambda n, q, h, d, t, b, v: 2 * n * (q // h) * d * t * b * v,
    },
}
